"""Making sure that the transaction coordinator knows of a partition before a transaction writes to it (KIP-890).

Clients of transaction version 2 leave it to the broker to tell the coordinator; of older ones, which tell it
themselves, it is checked that they did. Only the first batch of a transaction in a partition has to wait for that.
Requests of one producer that come meanwhile wait behind it, so that batches are appended in the order they came in.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.cluster.partition.partition import Partition
from penstock.cluster.partition.verification import NOTHING_TO_VERIFY, TRUSTED, Verification
from penstock.coordinator.transaction.records import TRANSACTIONS_V2
from penstock.coordinator.transaction.requests import Addition, TopicPartition
from penstock.protocol.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL, read_header
from penstock.protocol.produce import TopicData

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.broker.broker import Broker

# Errors of the coordinator that pass, and that old clients do not expect from Produce: they hear one that makes them
# try again without asking for metadata, as from Kafka.
_TRANSIENT = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


class Client(NamedTuple):
    """What a client's version of a request says of its kind."""

    # Transaction version 2: the broker adds partitions, and every transaction ends with a bumped epoch.
    adds_implicitly: bool
    # It knows TRANSACTION_ABORTABLE.
    knows_abortable: bool


def produce_client(version: int) -> Client:
    return Client(adds_implicitly=version >= 12, knows_abortable=version >= 11)


def offset_commit_client(version: int) -> Client:
    return Client(adds_implicitly=version >= 5, knows_abortable=version >= 4)


class BatchOfTransaction(NamedTuple):
    partition: Partition
    producer_id: int
    epoch: int
    sequence: int


class VerifiedWrites:
    """The transactional batches of one request."""

    def __init__(self, transactional_id: str, client: Client, batches: Sequence[BatchOfTransaction]) -> None:
        self.transactional_id = transactional_id
        self.client = client
        self.batches = batches
        self.producer_id = batches[0].producer_id
        self._verifications: dict[TopicPartition, Verification] = {}
        self._errors: Mapping[TopicPartition, ErrorCode] = {}

    def start(self, now_ms: int, *, is_verifying: bool) -> list[TopicPartition]:
        """The partitions that the coordinator has to be asked about. Raises DiskError."""
        unverified = []
        for partition, producer_id, epoch, sequence in self.batches:
            key = partition.topic, partition.index
            if not is_verifying and not self.client.adds_implicitly:
                self._verifications[key] = TRUSTED
                continue
            verification = partition.start_verification(
                producer_id, epoch, sequence, self.client.adds_implicitly, now_ms
            )
            self._verifications[key] = verification
            if verification is not NOTHING_TO_VERIFY:
                unverified.append(key)
        return unverified

    def verification_of(self, partition: Partition) -> Verification:
        return self._verifications.get((partition.topic, partition.index), NOTHING_TO_VERIFY)

    def note_errors(self, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        self._errors = errors

    def error_of(self, partition: Partition) -> ErrorCode:
        """As the client understands it."""
        error = self._errors.get((partition.topic, partition.index), ErrorCode.none)
        if error == ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        if error == ErrorCode.transaction_abortable and not self.client.knows_abortable:
            return ErrorCode.invalid_txn_state
        return error


def refusal_of_produce(error: ErrorCode) -> tuple[ErrorCode, str]:
    """The code and the message that a producer is told."""
    if error in _TRANSIENT:
        return (
            ErrorCode.not_enough_replicas,
            f"the coordinator could not yet confirm that the partition is in the transaction: {error.name}",
        )
    if error == ErrorCode.invalid_txn_state:
        return error, "the partition was not added to the transaction"
    return error, f"the coordinator refused the partition: {error.name}"


def transactional_batches(
    hosted: Callable[[bytes], Mapping[int, Partition] | None], requested: Sequence[TopicData]
) -> Iterator[BatchOfTransaction]:
    """Those of a Produce request, as far as their headers can be read; what is wrong with others, the append says."""
    for topic, partitions in requested:
        of_topic = hosted(topic) or {}
        for index, records in partitions:
            partition = of_topic.get(index)
            if partition is None or records is None or len(records) < HEADER_BYTES:
                continue
            header = read_header(records)
            if header.magic == MAGIC and header.attributes & TRANSACTIONAL and header.producer_id >= 0:
                yield BatchOfTransaction(partition, header.producer_id, header.producer_epoch, header.base_sequence)


class TransactionVerification:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # The last request of each producer that waits.
        self._last: dict[int, asyncio.Future[None]] = {}
        self._kept: set[asyncio.Future[None]] = set()

    def keep(self, write: "asyncio.Future[None]") -> None:
        """Until it is done: asyncio keeps only weak references to tasks."""
        self._kept.add(write)
        write.add_done_callback(self._kept.discard)

    def is_ready(self, writes: VerifiedWrites) -> bool:
        """Whether the batches can be appended at once, but for those that `error_of` says are refused. Raises
        DiskError."""
        unverified = self._start(writes)
        if writes.producer_id in self._last:
            return False
        if not unverified:
            return True
        if writes.client.adds_implicitly:
            return False
        # Hot: a client has told the coordinator itself, which is mostly here, and has nothing to wait for.
        epoch = writes.batches[0].epoch
        errors = self._broker.transactions.verified_at_once(
            writes.transactional_id, writes.producer_id, epoch, unverified
        )
        if errors is None:
            return False
        writes.note_errors(errors)
        return True

    @asynccontextmanager
    async def verified(self, writes: VerifiedWrites) -> "AsyncIterator[None]":
        """Inside, the batches can be appended, but for those that `error_of` says are refused. Raises DiskError."""
        before = self._last.get(writes.producer_id)
        mine = self._last[writes.producer_id] = asyncio.get_running_loop().create_future()
        try:
            if before is not None:
                await asyncio.wait([before])
            unverified = self._start(writes)
            if unverified:
                (first, *_) = writes.batches
                addition = Addition(
                    writes.transactional_id,
                    first.producer_id,
                    first.epoch,
                    frozenset(unverified),
                    not writes.client.adds_implicitly,
                    TRANSACTIONS_V2,
                )
                writes.note_errors(await self._broker.transactions.add_written(addition))
            yield
        finally:
            mine.set_result(None)
            if self._last.get(writes.producer_id) is mine:
                del self._last[writes.producer_id]

    def _start(self, writes: VerifiedWrites) -> list[TopicPartition]:
        is_verifying = self._broker.settings["transaction.partition.verification.enable"]
        return writes.start(self._broker.clock.now_ms(), is_verifying=is_verifying)
