"""Nodes are killed, paused and restarted under acks=all load: nothing that was acknowledged is lost, nothing is doubled
or reordered, no error reaches a producer, and in the end all replicas hold the same bytes."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.load import Load, check_nothing_lost_doubled_or_reordered
from tests.e2e.cluster.nodes import NODE_IDS, Cluster

TOPIC = "numbers"
PARTITIONS = 3
# How long a producer may be without an acknowledgement, on a machine with other work. Kafka takes 11 s by default.
SILENCE_SECONDS_MAX_KILLED = 5
SILENCE_SECONDS_MAX_HUNG = 10
STOP_SECONDS_MAX = 5


@pytest.fixture
def load(cluster: Cluster) -> Load:
    cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas="2")
    load = Load(cluster, TOPIC, PARTITIONS)
    load.start()
    load.await_progress()
    return load


def leader_then_controller(cluster: Cluster) -> Iterator[int]:
    """Each as it is when its turn comes."""
    yield cluster.leader_of(TOPIC)
    yield cluster.controller()


def check(cluster: Cluster, load: Load) -> None:
    load.finish()
    cluster.await_in_sync(TOPIC)
    check_nothing_lost_doubled_or_reordered(load, cluster)
    began_s = time.monotonic()
    cluster.stop()
    assert time.monotonic() - began_s < STOP_SECONDS_MAX, "they wait for each other"
    cluster.check_replicas_are_identical()


def test_nothing_is_lost_or_doubled_by_kill_9_of_leader_and_controller(cluster: Cluster, load: Load) -> None:
    for victim in leader_then_controller(cluster):
        load.forget_silence()
        cluster.kill9(victim)
        load.await_progress()
        assert load.longest_silence_s < SILENCE_SECONDS_MAX_KILLED
        cluster.start_node(victim)
        cluster.await_in_sync(TOPIC)
        load.await_progress()
    check(cluster, load)


@pytest.mark.long
def test_nothing_is_lost_or_doubled_while_a_leader_and_the_controller_hang(cluster: Cluster, load: Load) -> None:
    for victim in leader_then_controller(cluster):
        load.forget_silence()
        cluster.pause(victim)
        load.await_progress(300)
        assert load.longest_silence_s < SILENCE_SECONDS_MAX_HUNG
        cluster.resume(victim)
        cluster.await_in_sync(TOPIC)
        load.await_progress()
    check(cluster, load)


def test_a_rolling_restart_is_not_noticed_by_a_producer(cluster: Cluster, load: Load) -> None:
    for node_id in NODE_IDS:
        load.forget_silence()
        cluster.stop_node(node_id)
        cluster.start_node(node_id)
        cluster.await_in_sync(TOPIC)
        load.await_progress()
        assert load.longest_silence_s < SILENCE_SECONDS_MAX_KILLED
    check(cluster, load)
