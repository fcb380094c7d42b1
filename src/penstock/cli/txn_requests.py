"""Transactions as their coordinators and partitions tell of them, over the wire: librdkafka's AdminClient has nothing
to ask about them.
"""

import time
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cli.connection import Cluster
from penstock.cli.coordinators import TRANSACTION, coordinator_of, settled
from penstock.cli.failures import Failed
from penstock.cli.wire import request
from penstock.protocol.messages import Struct

INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION = 22, 5
WRITE_TXN_MARKERS, WRITE_TXN_MARKERS_VERSION = 27, 1
DESCRIBE_PRODUCERS, DESCRIBE_PRODUCERS_VERSION = 61, 0
DESCRIBE_TRANSACTIONS, DESCRIBE_TRANSACTIONS_VERSION = 65, 0
LIST_TRANSACTIONS, LIST_TRANSACTIONS_VERSION = 66, 0

# The timeout of those who take part in two-phase commits (KIP-939): nobody but a person or their coordinator ends them.
_NEVER_MS = 2**31 - 1
# What the new owner of an id that is aborted would have, if there was one.
_TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Transaction:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    # None where none is open.
    started_ms: int | None
    # None for one that waits for its two-phase commit.
    timeout_ms: int | None
    # topic-partition
    partitions: list[str]

    def age_ms(self, now_ms: int) -> int | None:
        return None if self.started_ms is None else max(0, now_ms - self.started_ms)


@dataclass(frozen=True)
class OpenTransaction:
    """As a partition sees it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def list_transactions(cluster: Cluster, states: list[str]) -> list[Transaction]:
    """Of all nodes, by name; of all states if none is named."""
    found = []
    for address in cluster.nodes().values():
        body = Struct(state_filters=states, producer_id_filters=[], duration_filter=-1)

        def ask(address: tuple[str, int] = address, body: Struct = body) -> Any:
            answer = request(cluster, address, LIST_TRANSACTIONS, LIST_TRANSACTIONS_VERSION, body)
            return answer, answer.error_code, None

        names = [one.transactional_id for one in settled(ask).transaction_states]
        if names:
            found += _describe(cluster, address, names)
    return sorted((one for one in found if one is not None), key=lambda one: one.transactional_id)


def describe_transaction(cluster: Cluster, name: str) -> Transaction:
    coordinator = coordinator_of(cluster, TRANSACTION, name)
    (found,) = _describe(cluster, (coordinator["host"], coordinator["port"]), [name])
    if found is None:
        raise Failed(f"there is no transactional id '{name}'")
    return found


def _describe(cluster: Cluster, address: tuple[str, int], names: list[str]) -> list[Transaction | None]:
    def ask() -> Any:
        body = Struct(transactional_ids=names)
        answer = request(cluster, address, DESCRIBE_TRANSACTIONS, DESCRIBE_TRANSACTIONS_VERSION, body)
        states = answer.transaction_states
        unknown = (ErrorCode.none, ErrorCode.transactional_id_not_found)
        problem = next((one.error_code for one in states if one.error_code not in unknown), ErrorCode.none)
        return states, problem, None

    return [None if one.error_code else _transaction(one) for one in settled(ask)]


def _transaction(one: Any) -> Transaction:
    timeout_ms = round(one.transaction_timeout.total_seconds() * 1000)
    partitions = [f"{topic.topic}-{index}" for topic in one.topics for index in sorted(topic.partitions)]
    return Transaction(
        one.transactional_id,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        _milliseconds(one.transaction_start_time) if partitions else None,
        None if timeout_ms >= _NEVER_MS else timeout_ms,
        sorted(partitions),
    )


def _milliseconds(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def abort_transaction(cluster: Cluster, name: str) -> None:
    """Takes the id away from whoever has it, which aborts its transaction. Its producer is fenced."""
    coordinator = coordinator_of(cluster, TRANSACTION, name)
    body = Struct(transactional_id=name, transaction_timeout=_TIMEOUT_MS, producer_id=-1, producer_epoch=-1)

    def ask() -> Any:
        address = (coordinator["host"], coordinator["port"])
        answer = request(cluster, address, INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, body)
        return answer, answer.error_code, None

    settled(ask)


def open_transactions(cluster: Cluster, topic: str, partition: int) -> list[OpenTransaction]:
    body = Struct(topics=[Struct(name=topic, partition_indexes=[partition])])
    address = _leader_of(cluster, topic, partition)
    answer = request(cluster, address, DESCRIBE_PRODUCERS, DESCRIBE_PRODUCERS_VERSION, body)
    (found,) = answer.topics[0].partitions
    if found.error_code:
        raise Failed(f"{topic}-{partition}: {found.error_message or found.error_code.name.replace('_', ' ')}")
    return [
        OpenTransaction(
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.current_txn_start_offset,
            one.last_timestamp,
        )
        for one in found.active_producers
        if one.current_txn_start_offset >= 0
    ]


def abort_in_partition(cluster: Cluster, topic: str, partition: int, hanging: OpenTransaction) -> None:
    """Writes the marker that no coordinator writes any more."""
    marker = Struct(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[Struct(name=topic, partition_indexes=[partition])],
        # Where no marker was ever written, any coordinator's epoch will do.
        coordinator_epoch=max(0, hanging.coordinator_epoch),
    )
    address = _leader_of(cluster, topic, partition)
    answer = request(cluster, address, WRITE_TXN_MARKERS, WRITE_TXN_MARKERS_VERSION, Struct(markers=[marker]))
    error = answer.markers[0].topics[0].partitions[0].error_code
    if error:
        raise Failed(f"{topic}-{partition} refused the marker: {error.name.replace('_', ' ')}")


def _leader_of(cluster: Cluster, topic: str, partition: int) -> tuple[str, int]:
    existing = cluster.partitions_of(topic)
    if partition not in existing:
        raise Failed(f"'{topic}' has no partition {partition}; it has {len(existing)}")
    leader = cluster.metadata().topics[topic].partitions[partition].leader
    address = cluster.nodes().get(leader)
    if address is None:
        raise Failed(f"{topic}-{partition} has no leader now")
    return address
