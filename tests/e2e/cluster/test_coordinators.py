"""Groups and transactions go on when the node that coordinates them is killed: another one takes over what it kept."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.conformance.wire import LIST_OFFSETS, Wire, list_offsets_of
from tests.e2e.cluster.load import Load, read_all
from tests.e2e.cluster.nodes import Cluster
from tests.e2e.node import wait_until

COPIER = Path(__file__).parent.parent / "transactional_copier.py"
SOURCE, TARGET = "source", "target"
PARTITIONS = 3


class Member(threading.Thread):
    """Reads all it is given, and commits it; remembers what came."""

    def __init__(self, cluster: Cluster, group: str, protocol: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[int] = []
        self.failures: list[str] = []
        self.commits = 0
        self._ended = threading.Event()
        settings = {"group.protocol": protocol}
        if protocol == "classic":
            settings["session.timeout.ms"] = "10000"
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **settings,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([SOURCE])
        while not self._ended.is_set():
            messages = [one for one in self._consumer.consume(500, 0.1) if one.error() is None]
            self.seen += [int(one.value() or b"") for one in messages]
            if messages:
                self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
            self.commits += 1
        except Exception as problem:
            self.failures.append(str(problem))

    def finish(self) -> None:
        self._ended.set()
        self.join(60)
        assert not self.is_alive()


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.long), "consumer"])
def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: Cluster, protocol: str) -> None:
    cluster.create_topic(SOURCE, PARTITIONS)
    load = Load(cluster, SOURCE, PARTITIONS)
    member = Member(cluster, "readers", protocol)
    load.start()
    member.start()
    for _ in range(2):
        enough = member.commits + 10
        wait_until(lambda enough=enough: member.commits >= enough, "the group makes progress")  # type: ignore[misc]
        victim = cluster.group_coordinator("readers")
        cluster.kill9(victim)
        enough = member.commits + 10
        wait_until(lambda enough=enough: member.commits >= enough, "the group goes on")  # type: ignore[misc]
        cluster.start_node(victim)
        cluster.await_in_sync("__consumer_offsets")
    load.finish()
    assert not load.failures, load.failures[:3]
    wait_until(lambda: len(set(member.seen)) == load.sent, "all is read")
    member.finish()
    assert set(member.seen) == set(range(load.sent))
    # A member that was put out and came back reads what it could not commit again; who stayed reads once.
    assert len(member.seen) - load.sent <= 500 * (len(member.failures) + 2)
    ends = [len(range(index, load.sent, PARTITIONS)) for index in range(PARTITIONS)]
    assert committed_offsets(cluster, "readers") == ends


def committed_offsets(cluster: Cluster, group: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    asked = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
    offsets = [one.offset for one in consumer.committed(asked, 30)]
    consumer.close()
    return offsets


def test_a_transactional_copy_is_exact_though_coordinators_and_leaders_are_killed(cluster: Cluster) -> None:
    cluster.create_topic(SOURCE, PARTITIONS)
    cluster.create_topic(TARGET, 1, min_insync_replicas="2")
    load = Load(cluster, SOURCE, PARTITIONS)
    load.start()
    copier = start_copier(cluster)

    def await_copied(is_copied: Callable[[], bool]) -> None:
        """A copier that was ended by an error is started again."""
        nonlocal copier
        deadline_s = time.monotonic() + 60
        while not is_copied():
            assert time.monotonic() < deadline_s, "the copy does not go on"
            if copier.poll() is not None:
                copier = start_copier(cluster)
            time.sleep(0.05)

    def await_more() -> None:
        end = stable_offset(cluster) + 100
        await_copied(lambda: stable_offset(cluster) >= end)

    try:
        for kind in ("transactions", "group", "leader"):
            await_more()
            victim = {
                "transactions": lambda: cluster.transaction_coordinator("copy"),
                "group": lambda: cluster.group_coordinator("copiers"),
                "leader": lambda: cluster.leader_of(TARGET),
            }[kind]()
            cluster.kill9(victim)
            await_more()
            cluster.start_node(victim)
            cluster.await_in_sync(TARGET)
        load.finish()
        assert not load.failures, load.failures[:3]
        await_copied(lambda: stable_offset(cluster) >= load.sent)
        ends = [len(range(index, load.sent, PARTITIONS)) for index in range(PARTITIONS)]
        await_copied(lambda: committed_offsets(cluster, "copiers") == ends)
    finally:
        load.finish()
        copier.kill()
        copier.wait()
    (copy,) = read_all(cluster, TARGET, 1, "read_committed")
    numbers = [int(value) for value in copy]
    assert sorted(numbers) == list(range(load.sent))
    for index in range(PARTITIONS):
        of_partition = [number for number in numbers if number % PARTITIONS == index]
        assert of_partition == sorted(of_partition)


def stable_offset(cluster: Cluster) -> int:
    """Up to where the target can be read by those who want committed records."""
    with Wire(cluster.ports[cluster.leader_of(TARGET)]) as wire:
        answer = wire.ask(LIST_OFFSETS, 8, list_offsets_of(TARGET, [(0, -1)], isolation_level=1))
    (found,) = answer.topics[0].partitions
    return -1 if found.error_code else int(found.offset)


def start_copier(cluster: Cluster) -> "subprocess.Popen[bytes]":
    arguments = [cluster.bootstrap, SOURCE, TARGET, "copiers", "copy", "10000"]
    return subprocess.Popen([sys.executable, str(COPIER), *arguments], stderr=subprocess.DEVNULL)
