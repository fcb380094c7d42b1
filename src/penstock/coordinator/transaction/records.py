"""What is known of one transactional id, and how it stands in `__transaction_state`: Kafka's own schemas and bytes.

The record of an id always holds all of its state, so the last one is enough to go on from.
"""

from struct import Struct as Packer
from struct import pack
from typing import NamedTuple

from penstock.base.ports import Bytes
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.record_schema import (
    ANY_VERSION,
    RecordPart,
    decode_part,
    field,
    record_part,
    structure,
)
from penstock.coordinator.transaction.requests import TopicPartition
from penstock.coordinator.transaction.states import NAMES, PREPARING, TransactionState
from penstock.protocol.messages import Malformed, write_uvarint

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIME = -1
# The last epoch that a client is given. The one above it can still be written in a marker, to fence that client.
EPOCH_MAX = 32766
# A transaction of a two-phase commit has no timeout (KIP-939), which is written so.
NO_TIMEOUT_MS = 2**31 - 1
# The transaction protocol that a client speaks: with 2 (KIP-890) the epoch grows with every transaction.
TRANSACTIONS_V2 = 2

_KEY = Packer(">hh")
_VALUE_HEAD = Packer(">hqhib")
_VALUE_TIMES = Packer(">qq")
_TAGGED_INT64 = Packer(">bbq")
_TAGGED_INT16 = Packer(">bbh")


class Transaction(NamedTuple):
    """The state of a transactional id. `producer_id` and `producer_epoch` are those of the transaction's records and
    markers; a client may have been given newer ones, see `client_producer_id`."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    # What the client has, or will have when this transaction is complete. Without an epoch it is epoch 0.
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    transaction_version: int = 0
    # The epoch before this one, which a client that missed an answer may come back with (KIP-360). It has no place in
    # the record: as in Kafka, another coordinator does not know it.
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether the open transaction is a prepared one that a new producer has taken over, to end it (KIP-939)."""
        return self.state is TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def client_producer_id(self) -> int:
        return self.next_producer_id if self.next_producer_id != NO_PRODUCER_ID else self.producer_id

    @property
    def client_producer_epoch(self) -> int:
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_epoch
        return max(0, self.next_producer_epoch)

    @property
    def deadline_ms(self) -> int | None:
        """When the open transaction is to be aborted."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.start_ms + self.timeout_ms


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """The transaction whose markers are all written."""
    assert transaction.state in PREPARING
    is_commit = transaction.state is TransactionState.PREPARE_COMMIT
    return transaction._replace(
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        producer_id=transaction.client_producer_id,
        producer_epoch=transaction.client_producer_epoch,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        partitions=frozenset(),
        update_ms=now_ms,
    )


@record_part(0, flexible_from=ANY_VERSION)
class TransactionLogKey(RecordPart):
    transactional_id: str = field("string")


@structure
class PartitionsSchema:
    topic: str = field("string")
    partition_ids: tuple[int, ...] = field("int32")


@record_part(0, version=1, flexible_from=1)
class TransactionLogValue(RecordPart):
    producer_id: int = field("int64")
    previous_producer_id: int = field("int64", since=1, tag=0, default=NO_PRODUCER_ID)
    next_producer_id: int = field("int64", since=1, tag=1, default=NO_PRODUCER_ID)
    producer_epoch: int = field("int16")
    next_producer_epoch: int = field("int16", since=1, tag=3, default=NO_PRODUCER_EPOCH)
    transaction_timeout_ms: int = field("int32")
    transaction_status: int = field("int8")
    transaction_partitions: tuple[PartitionsSchema, ...] | None = field()
    transaction_last_update_timestamp_ms: int = field("int64")
    transaction_start_timestamp_ms: int = field("int64")
    client_transaction_version: int = field("int16", since=1, tag=2, default=0)


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    # Hot: three to a transaction, so they are written by hand. A test holds them against the schemas above.
    name = record.key.encode()
    key = _KEY.pack(TransactionLogKey.__api_key__, len(name)) + name
    transaction: Transaction | None = record.value
    if transaction is None:
        return key, None
    value = bytearray(
        _VALUE_HEAD.pack(
            TransactionLogValue.__version__,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state,
        )
    )
    if transaction.state is TransactionState.EMPTY:
        value.append(0)
    else:
        _write_partitions(value, transaction.partitions)
    value += _VALUE_TIMES.pack(transaction.update_ms, transaction.start_ms)
    tagged = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tagged.append(_TAGGED_INT64.pack(0, 8, transaction.previous_producer_id))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tagged.append(_TAGGED_INT64.pack(1, 8, transaction.next_producer_id))
    if transaction.transaction_version:
        tagged.append(_TAGGED_INT16.pack(2, 2, transaction.transaction_version))
    if transaction.next_producer_epoch != NO_PRODUCER_EPOCH:
        tagged.append(_TAGGED_INT16.pack(3, 2, transaction.next_producer_epoch))
    value.append(len(tagged))
    value += b"".join(tagged)
    return key, bytes(value)


def _write_partitions(value: bytearray, partitions: frozenset[TopicPartition]) -> None:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    write_uvarint(value, len(topics) + 1)
    for topic, indexes in topics.items():
        name = topic.encode()
        write_uvarint(value, len(name) + 1)
        value += name
        write_uvarint(value, len(indexes) + 1)
        value += pack(f">{len(indexes)}i", *indexes)
        value.append(0)


def decode_record(key: Bytes, value: Bytes | None) -> CoordinatorRecord | None:
    """The record; None for kinds that are not known. Raises Malformed."""
    if _leading_int16(key) != TransactionLogKey.__api_key__:
        return None
    transactional_id = decode_part(TransactionLogKey, 0, key, 2).transactional_id
    if value is None:
        return CoordinatorRecord(transactional_id, None)
    version = _leading_int16(value)
    if not 0 <= version <= TransactionLogValue.__version_max__:
        raise Malformed(f"the state of {transactional_id} has version {version}; 0 and 1 can be read")
    decoded = decode_part(TransactionLogValue, version, value, 2)
    return CoordinatorRecord(transactional_id, _transaction(transactional_id, decoded))


def _transaction(transactional_id: str, value: TransactionLogValue) -> Transaction:
    if value.transaction_status not in NAMES:
        raise Malformed(f"the state of {transactional_id} is {value.transaction_status}, which is none")
    return Transaction(
        state=TransactionState(value.transaction_status),
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        transaction_version=value.client_transaction_version,
    )


def _leading_int16(data: Bytes) -> int:
    if len(data) < 2:
        raise Malformed(f"a part of a record of __transaction_state is {len(data)} bytes long; it opens with two")
    return int.from_bytes(data[:2], signed=True)
