"""The scenarios, in the order they run. Each module has FIGURES and `measure(session)`, which yields their samples.

A further benchmark is a further module in this list.
"""

from collections.abc import Iterator
from typing import Protocol

from bench.figures import Figure, Sample
from bench.scenarios import (
    cluster,
    cluster_failures,
    cluster_partitions,
    compaction,
    consume,
    groups,
    http,
    latency,
    many_partitions,
    memory,
    produce,
    produce_confined,
    spark,
    start,
    synced,
    transactions,
)
from bench.session import Session


class Scenario(Protocol):
    @property
    def FIGURES(self) -> tuple[Figure, ...]: ...

    def measure(self, session: Session) -> Iterator[tuple[str, Sample]]:
        """(key of the figure, sample), one after the other as they are measured."""


# memory is of the broker that the ones before it used; the last one that uses it comes right after.
SCENARIOS: dict[str, Scenario] = {
    "start": start,
    "produce": produce,
    "consume": consume,
    "latency": latency,
    "synced": synced,
    "groups": groups,
    "transactions": transactions,
    "compaction": compaction,
    "spark": spark,
    "memory": memory,
    "produce-confined": produce_confined,
    "http": http,
    "partitions": many_partitions,
    "cluster": cluster,
    "cluster-failures": cluster_failures,
    "cluster-partitions": cluster_partitions,
}

# Their goals are absolute and Apache Kafka needs minutes for them: one look at that is enough.
ONCE_FOR_KAFKA = frozenset({"partitions", "cluster-failures", "cluster-partitions"})
# They start brokers of their own, while no other one runs.
ALONE = frozenset({"start", "partitions", "cluster", "cluster-failures", "cluster-partitions"})
