"""Transactions of one and of a hundred records, and how soon readers of committed records have them.

Ten producers commit as fast as they can: of confluent-kafka, and by the raw replayer, for a hundred records into
Python's hands and out again are more work than what the broker does with them. For the latency one producer commits a
transaction every 20 ms. All of it twice, both brokers giving the same promise: kept in the page cache, which is
Kafka's default, and synced before the answer, which is Penstock's for a topic with one replica. That goes for the
topic and for the coordinator's own.
"""

import time
from collections.abc import Iterator

from bench import wire
from bench.figures import Figure, Sample, at_least, at_most
from bench.session import Session
from bench.transaction_replay import TransactionReplay
from bench.transactions import TransactionsPlan
from penstock.base.errors import ErrorCode, Refused
from penstock.protocol.messages import Struct

_PARTITIONS = 4
_PRODUCERS = 10
_RECORD_BYTES = 100
_PAUSE_SECONDS = 0.02
# Of each producer of a replay, about.
_TRANSACTIONS_PER_SECOND = 100
_STATE_TOPIC = "__transaction_state"
_FIND_COORDINATOR, _TRANSACTION = 10, 1
_TOPIC_RESOURCE = 2
_STATE_TOPIC_SECONDS_MAX = 30
_PROMISES = {"": "in memory", "synced.": "synced"}


def _figures(prefix: str, promise: str) -> tuple[Figure, ...]:
    client = "confluent-kafka"
    key = f"transactions.{prefix}"
    return (
        Figure(f"{key}single", f"transactions of 1 record, {promise}", client, "commits/s", at_least(1.5)),
        Figure(f"{key}single.raw", f"transactions of 1 record, {promise}", "raw", "commits/s", at_least(1.5)),
        Figure(f"{key}hundred", f"transactions of 100 records, {promise}", client, "commits/s", at_least(1.5)),
        Figure(f"{key}hundred.raw", f"transactions of 100 records, {promise}", "raw", "commits/s", at_least(1.5)),
        Figure(f"{key}p50", f"publish to committed read, {promise}, p50", client, "ms"),
        Figure(f"{key}p99", f"publish to committed read, {promise}, p99", client, "ms", at_most(1.0)),
    )


FIGURES = tuple(figure for prefix, promise in _PROMISES.items() for figure in _figures(prefix, promise))


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    broker = session.shared()
    for prefix, settings in (("", broker.unsynced_topic_settings), ("synced.", broker.synced_topic_settings)):
        _set_up_coordinator(broker.port, {**broker.default_flush_settings, **settings})
        name = f"transactions-{prefix or 'in-memory.'}"
        for key, records in (("single", 1), ("hundred", 100)):
            result = session.transactions(_plan(session, name + key, settings, _PRODUCERS, records, 0))
            note = f"p99 to a committed read {result['p99_ms']:.0f} ms"
            yield f"transactions.{prefix}{key}", Sample(result["commits"] / result["seconds"], note=note)
            replayed = _replay(session, f"{name}{key}.raw", settings, records)
            yield f"transactions.{prefix}{key}.raw", session.transactions_replayed(replayed)
        result = session.transactions(_plan(session, f"{name}latency", settings, 1, 1, _PAUSE_SECONDS))
        yield f"transactions.{prefix}p50", Sample(result["p50_ms"])
        yield f"transactions.{prefix}p99", Sample(result["p99_ms"])


def _set_up_coordinator(port: int, settings: dict[str, str]) -> None:
    """Its topic is made by whoever asks for a coordinator first."""
    deadline_s = time.monotonic() + _STATE_TOPIC_SECONDS_MAX
    with wire.Connection(port) as connection:
        while wire.find_topics(connection, [_STATE_TOPIC]) is None:
            if time.monotonic() > deadline_s:
                raise Refused(ErrorCode.coordinator_not_available, f"{_STATE_TOPIC} is not there")
            connection.ask(_FIND_COORDINATOR, 4, Struct(key_type=_TRANSACTION, coordinator_keys=["anybody"]))
            time.sleep(0.1)
        for name, value in settings.items():
            wire.alter_config(connection, _TOPIC_RESOURCE, _STATE_TOPIC, name, value)


def _replay(session: Session, topic: str, settings: dict[str, str], records: int) -> TransactionReplay:
    port = session.shared().port
    wire.make_topic(port, topic, _PARTITIONS, settings)
    transactions = session.sizes.latency_seconds * _TRANSACTIONS_PER_SECOND
    return TransactionReplay(port, topic, _PARTITIONS, _PRODUCERS, records, _RECORD_BYTES, transactions)


def _plan(
    session: Session, topic: str, settings: dict[str, str], producers: int, records: int, pause_seconds: float
) -> TransactionsPlan:
    port = session.shared().port
    wire.make_topic(port, topic, _PARTITIONS, settings)
    seconds = session.sizes.latency_seconds
    return TransactionsPlan(
        port, topic, _PARTITIONS, producers, records, _RECORD_BYTES, seconds, seconds / 2, pause_seconds
    )
