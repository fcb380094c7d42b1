"""1,000 topics of 10 partitions on three nodes, three replicas each: create them, let them idle, lose a node."""

import time
from collections.abc import Iterator

from bench import clusters, processes, wire
from bench.clusters import NODE_IDS, REPLICAS, Cluster
from bench.figures import Figure, Sample, no_more_than
from bench.session import Session

_PARTITIONS = 10
_TOPICS_PER_REQUEST = 50
_PARTITIONS_PER_REQUEST = 200
_TIMEOUT_S = 300.0
_SETTLE_SECONDS = 5.0
_IDLE_SECONDS = 20.0
_LOOK_SECONDS = 0.05
_LABEL = "3 nodes, RF 3, 1,000 topics x 10 partitions"

FIGURES = (
    Figure("cluster.partitions.create", f"{_LABEL}: create, all in sync", "raw", "s"),
    Figure("cluster.partitions.memory", f"{_LABEL}: resident memory of all nodes", "", "MB"),
    Figure("cluster.partitions.idle", f"{_LABEL}: idle CPU of the busiest node, of a core", "", "%", no_more_than(5)),
    Figure(
        "cluster.partitions.failover", f"{_LABEL}: node killed, all lead and take records", "raw", "s", no_more_than(5)
    ),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    with session.cluster() as cluster:
        names = [f"many-{index:04}" for index in range(session.sizes.cluster_topics)]
        started_s = time.perf_counter()
        _create(cluster, names)
        yield "cluster.partitions.create", Sample(time.perf_counter() - started_s)
        placements = wire.placements(cluster.ports[NODE_IDS[0]], names)
        _write(cluster, placements)
        yield "cluster.partitions.memory", Sample(processes.resident_bytes(cluster.pids()) / 1e6)
        yield "cluster.partitions.idle", _idle(cluster)
        yield "cluster.partitions.failover", _failover(cluster, names)


def _create(cluster: Cluster, names: list[str]) -> None:
    with wire.Connection(cluster.ports[NODE_IDS[0]], timeout_s=_TIMEOUT_S) as connection:
        for start in range(0, len(names), _TOPICS_PER_REQUEST):
            wire.create_topics(connection, names[start : start + _TOPICS_PER_REQUEST], _PARTITIONS, {}, REPLICAS)
    clusters.await_in_sync(cluster, names)


def _write(cluster: Cluster, placements: list[wire.Placement]) -> set[tuple[str, int]]:
    """One record into each, acks=all, at its leader, some hundred with each request; those that were refused."""
    batch = wire.record_batch(1, 100)
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for one in placements:
        by_leader.setdefault(one.leader, []).append((one.topic, one.partition))
    refused: set[tuple[str, int]] = set()
    for leader, led in by_leader.items():
        with wire.Connection(cluster.ports[leader], timeout_s=_TIMEOUT_S) as connection:
            for start in range(0, len(led), _PARTITIONS_PER_REQUEST):
                refused |= wire.produce_many(connection, led[start : start + _PARTITIONS_PER_REQUEST], batch, acks=-1)
    return refused


def _idle(cluster: Cluster) -> Sample:
    """The busiest of the nodes, for that is the one that has no time for others."""
    time.sleep(_SETTLE_SECONDS)
    before = {node_id: processes.cpu_seconds([cluster.pid(node_id)]) for node_id in NODE_IDS}
    time.sleep(_IDLE_SECONDS)
    shares = [
        100 * (processes.cpu_seconds([cluster.pid(node_id)]) - before[node_id]) / _IDLE_SECONDS for node_id in NODE_IDS
    ]
    return Sample(max(shares), note="each: " + ", ".join(f"{share:.1f}" for share in shares))


def _failover(cluster: Cluster, names: list[str]) -> Sample:
    """From the kill until every partition that the dead node led has acknowledged a record."""
    victim, witness = NODE_IDS[0], NODE_IDS[1]
    led = {(one.topic, one.partition) for one in wire.placements(cluster.ports[witness], names) if one.leader == victim}
    started_s = time.perf_counter()
    cluster.kill9(victim)
    led_s = 0.0
    missing = set(led)
    while missing and time.perf_counter() - started_s < _TIMEOUT_S:
        placements = [
            one
            for one in wire.placements(cluster.ports[witness], sorted({topic for topic, _ in missing}))
            if (one.topic, one.partition) in missing
        ]
        if any(one.leader in (victim, -1) for one in placements):
            time.sleep(_LOOK_SECONDS)
            continue
        led_s = led_s or time.perf_counter() - started_s
        missing = _write(cluster, placements)
    if missing:
        raise processes.Failed(f"{len(missing)} partitions take no records {_TIMEOUT_S:.0f} s after the kill")
    seconds = time.perf_counter() - started_s
    return Sample(seconds, note=f"{len(led)} partitions; all had another leader after {led_s:.1f} s")
