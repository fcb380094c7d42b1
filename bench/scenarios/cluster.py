"""Three nodes, three replicas, acks=all with two in sync: how fast, how soon, in how much memory."""

from collections.abc import Iterator
from math import floor

from bench import clusters, processes
from bench.figures import Figure, Sample, at_least, at_most
from bench.session import Session
from bench.steady_load import SteadyLoad

PARTITIONS = 6
_TOOL = "ProducerPerformance"
_RATE = "records/s"
_MESSAGES_PER_SECOND = 1_000
_PROPERTIES = {"acks": "all", "enable.idempotence": "true"}

FIGURES = (
    Figure("cluster.produce.100", "3 nodes, RF 3: produce 100 B, acks=all", _TOOL, _RATE, at_least(1.0)),
    Figure("cluster.produce.1000", "3 nodes, RF 3: produce 1 KB, acks=all", _TOOL, _RATE, at_least(1.0)),
    Figure("cluster.latency.p50", "3 nodes, RF 3: acknowledged at 1,000 msg/s, p50", "confluent-kafka", "ms"),
    Figure(
        "cluster.latency.p99",
        "3 nodes, RF 3: acknowledged at 1,000 msg/s, p99",
        "confluent-kafka",
        "ms",
        at_most(1.0),
    ),
    Figure("cluster.memory", "3 nodes: resident memory after that", "", "MB", at_most(0.2)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    with session.cluster() as cluster:
        clusters.make_topic(cluster, "warmup", PARTITIONS)
        records = session.sizes.warmup_seconds * 100_000
        session.producer_performance("warmup", 100, records, _PROPERTIES, cluster)
        for record_bytes in (100, 1000):
            key = f"cluster.produce.{record_bytes}"
            clusters.make_topic(cluster, key, PARTITIONS)
            records = session.sizes.tool_bytes // record_bytes
            yield key, session.producer_performance(key, record_bytes, records, _PROPERTIES, cluster)
        latencies_s = _latencies_s(session, cluster)
        for percent in (50, 99):
            yield f"cluster.latency.p{percent}", Sample(latencies_s[floor(len(latencies_s) * percent / 100)] * 1e3)
        yield "cluster.memory", Sample(processes.resident_bytes(cluster.pids()) / 1e6)


def _latencies_s(session: Session, cluster: clusters.Cluster) -> list[float]:
    """In order of their length; of the first seconds nothing is counted."""
    clusters.make_topic(cluster, "latency", PARTITIONS)
    session.settle()
    load = SteadyLoad(cluster.address, "latency", PARTITIONS, _MESSAGES_PER_SECOND, 100)
    load.start()
    try:
        load.await_progress(_MESSAGES_PER_SECOND * session.sizes.latency_seconds // 2 // PARTITIONS)
        counted = len(load.latencies)
        load.await_progress(_MESSAGES_PER_SECOND * session.sizes.latency_seconds // PARTITIONS)
    finally:
        load.finish()
    if load.errors:
        raise processes.Failed(f"{len(load.errors)} records were refused: {load.errors[0]}")
    return sorted(seconds for _, seconds in load.latencies[counted:])
