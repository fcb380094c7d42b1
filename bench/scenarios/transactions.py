"""Transactions of one and of a hundred records, and how soon readers of committed records have them.

Ten producers commit as fast as they can; for the latency one producer commits a transaction every 20 ms. Penstock
syncs what it answers, as it does for every topic with one replica: the decision of a transaction, and its markers.
Kafka keeps all of it in the page cache.
"""

from collections.abc import Iterator

from bench import wire
from bench.figures import Figure, Sample, at_least, at_most
from bench.session import Session
from bench.transactions import TransactionsPlan

_PARTITIONS = 4
_PRODUCERS = 10
_RECORD_BYTES = 100
_PAUSE_SECONDS = 0.02

FIGURES = (
    Figure(
        "transactions.single", "transactions of 1 record, 10 producers", "confluent-kafka", "commits/s", at_least(1.5)
    ),
    Figure(
        "transactions.hundred",
        "transactions of 100 records, 10 producers",
        "confluent-kafka",
        "commits/s",
        at_least(1.5),
    ),
    Figure("transactions.p50", "publish to committed read, 1 producer, p50", "confluent-kafka", "ms"),
    Figure("transactions.p99", "publish to committed read, 1 producer, p99", "confluent-kafka", "ms", at_most(1.0)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    for key, records in (("single", 1), ("hundred", 100)):
        result = session.transactions(_plan(session, f"transactions-{key}", _PRODUCERS, records, 0))
        note = f"p99 to a committed read {result['p99_ms']:.0f} ms"
        yield f"transactions.{key}", Sample(result["commits"] / result["seconds"], note=note)
    result = session.transactions(_plan(session, "transactions-latency", 1, 1, _PAUSE_SECONDS))
    yield "transactions.p50", Sample(result["p50_ms"])
    yield "transactions.p99", Sample(result["p99_ms"])


def _plan(session: Session, topic: str, producers: int, records: int, pause_seconds: float) -> TransactionsPlan:
    port = session.shared().port
    wire.make_topic(port, topic, _PARTITIONS)
    seconds = session.sizes.latency_seconds
    return TransactionsPlan(
        port, topic, _PARTITIONS, producers, records, _RECORD_BYTES, seconds, seconds / 2, pause_seconds
    )
