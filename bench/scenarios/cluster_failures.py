"""What a producer notices when nodes of a cluster of three are killed, hang, or are restarted one after the other.

A producer with its default retries writes all the time, to partitions that each node leads one of. The figure is the
longest time that any of these partitions went without an acknowledgement; an error that reaches the producer is told in
a note, and spoils the figure.

A request that waits at a node that hangs cannot be sent to another before it has timed out, which takes a minute by
confluent-kafka's default, whatever the cluster does. So for that figure, and for both brokers, it takes a second.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from statistics import median

from bench import clusters, processes, wire
from bench.clusters import NODE_IDS, Cluster
from bench.figures import Figure, Sample, no_more_than
from bench.session import Session
from bench.steady_load import SteadyLoad

_TOPIC = "failures"
_PARTITIONS = 3
_MESSAGES_PER_SECOND = 300
_RECORD_BYTES = 100
# What a node that came back has to catch up with, and clients that look for it, is over by then.
_CALM_SECONDS = 2.0
# Longer than any session: a node that hangs for less might not be noticed.
_HANG_SECONDS = 15.0
_HANG_TIMEOUT_MS = 1_000
_CLIENT = "confluent-kafka"

FIGURES = (
    Figure("failures.kill", "leader killed with -9: longest time without acks", _CLIENT, "s", no_more_than(1)),
    Figure("failures.hang", "leader stopped (SIGSTOP): longest time without acks", _CLIENT, "s", no_more_than(4)),
    Figure("failures.rolling", "rolling restart: longest time without acks", _CLIENT, "s", no_more_than(0.5)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    times = range(session.sizes.cluster_kills)
    with session.cluster() as cluster:
        clusters.make_topic(cluster, _TOPIC, _PARTITIONS)
        with _loaded(cluster) as load:
            kills = [_stall_s(cluster, load, _kill) for _ in times]
            yield "failures.kill", _sample(median(kills), load, kills)
        with _loaded(cluster, socket_timeout_ms=_HANG_TIMEOUT_MS) as load:
            hangs = [_stall_s(cluster, load, _hang) for _ in times]
            yield "failures.hang", _sample(median(hangs), load, hangs)
        with _loaded(cluster) as load:
            restarts = [_stall_s(cluster, load, _restart(node_id)) for node_id in NODE_IDS]
            yield "failures.rolling", _sample(max(restarts), load, restarts)


@contextlib.contextmanager
def _loaded(cluster: Cluster, **settings: int) -> Iterator[SteadyLoad]:
    load = SteadyLoad(cluster.address, _TOPIC, _PARTITIONS, _MESSAGES_PER_SECOND, _RECORD_BYTES, **settings)
    load.start()
    try:
        load.await_progress()
        yield load
    finally:
        load.finish()


def _sample(seconds: float, load: SteadyLoad, each_s: list[float]) -> Sample:
    note = "each: " + ", ".join(f"{one:.2f}" for one in each_s)
    if load.errors:
        return Sample(None, note=f"{len(load.errors)} errors reached the producer: {load.errors[0]}; {note}")
    return Sample(seconds, note=note)


def _stall_s(cluster: Cluster, load: SteadyLoad, happen: Callable[[Cluster, SteadyLoad], float | None]) -> float:
    """The longest time without an acknowledgement from when it happens until all is as before; or what `happen` says
    it was, where that brings the node back on its own account."""
    _calm_down(cluster, load)
    began_s = time.monotonic()
    stall_s = happen(cluster, load)
    if stall_s is None:
        _calm_down(cluster, load)
        stall_s = load.longest_gap_s(began_s)
    return stall_s


def _calm_down(cluster: Cluster, load: SteadyLoad) -> None:
    clusters.await_in_sync(cluster, [_TOPIC])
    time.sleep(_CALM_SECONDS)
    load.await_progress()


def _leader(cluster: Cluster) -> int:
    """Of the first partition."""
    placements = wire.placements(cluster.ports[NODE_IDS[0]], [_TOPIC])
    leader = next((one.leader for one in placements if one.partition == 0), -1)
    if leader not in cluster.ports:
        raise processes.Failed("the first partition has no leader")
    return leader


def _kill(cluster: Cluster, load: SteadyLoad) -> float:
    victim = _leader(cluster)
    began_s = time.monotonic()
    cluster.kill9(victim)
    load.await_progress()
    stall_s = load.longest_gap_s(began_s)
    cluster.launch(victim)
    return stall_s


def _hang(cluster: Cluster, load: SteadyLoad) -> float:
    victim = _leader(cluster)
    began_s = time.monotonic()
    cluster.pause(victim)
    try:
        time.sleep(_HANG_SECONDS)
        load.await_progress()
        stall_s = load.longest_gap_s(began_s)
    finally:
        cluster.resume(victim)
    return stall_s


def _restart(node_id: int) -> Callable[[Cluster, SteadyLoad], None]:
    def restart(cluster: Cluster, load: SteadyLoad) -> None:
        cluster.stop(node_id)
        cluster.launch(node_id)

    return restart
