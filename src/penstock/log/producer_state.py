"""What a partition knows of its idempotent and transactional producers (KIP-98, KIP-360).

For every producer id: its epoch, its last five batches (enough for the five requests a producer keeps in flight), and
the first offset of its open transaction. A batch seen before is answered with its first offsets, one that leaves a gap
is refused. Transactions that are open, or whose marker the high watermark has not passed, hold the last stable offset
back.

State changes only by `update`, which replays a batch that stands in the log; so the same call serves the append, the
follower and the rebuilding after a crash. The caller asks `check` first where a client is the one who appends.
"""

from collections import deque
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.log.end_marker import EndMarker
from penstock.log.transaction_index import AbortedTransaction
from penstock.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader

PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000
NO_EPOCH = -1
NO_OFFSET = -1
NO_SEQUENCE = -1

_new_tuple = tuple.__new__
_BATCHES_KEPT = 5
_SEQUENCE_MAX = 2**31 - 1
_EPOCH_MAX = 2**15 - 1
# From here on each transaction ends with a bumped epoch (KIP-890), so that markers tell one from the next (KIP-1228).
_EPOCH_BUMPS_FROM = 2


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class Duplicate(NamedTuple):
    """The batch stands in the log already: answer with where."""

    base_offset: int
    last_offset: int
    timestamp: int


class Producer:
    """One producer id's entry."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_seen_ms", "last_timestamp", "transaction_first_offset")

    def __init__(
        self,
        epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        transaction_first_offset: int = NO_OFFSET,
    ) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        # By the node's clock. The time of its records, by which Kafka forgets producers, may be any.
        self.last_seen_ms = last_timestamp
        self.transaction_first_offset = transaction_first_offset
        self.batches: list[AppendedBatch] = []

    def has_in_transaction(self, batch: AppendedBatch) -> bool:
        """Whether the batch is of the transaction that is open."""
        return 0 <= self.transaction_first_offset <= batch.last_offset - batch.offset_delta

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.transaction_first_offset < 0 and now_ms - self.last_seen_ms >= expiration_ms


class ProducerState:
    __slots__ = ("_first_offsets", "_open", "_unreplicated", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        # First offset -> producer id of the open transactions, in the order of the log.
        self._open: dict[int, int] = {}
        # The same first offsets; those that are not open any more are dropped when they come to the front.
        self._first_offsets: deque[int] = deque()
        # (marker's offset, first offset) of transactions whose end may not be replicated yet, in the order of the log.
        self._unreplicated: deque[tuple[int, int]] = deque()

    def leaves_gap(self, header: BatchHeader) -> bool:
        """Whether something of a producer that is known must come before this batch, and has not."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return False
        is_next_epoch = header.producer_epoch > producer.epoch or not producer.batches
        return header.base_sequence > (0 if is_next_epoch else producer.batches[-1].last_sequence + 1)

    def check(self, header: BatchHeader) -> Duplicate | ErrorCode | None:
        """Whether a client's batch may be appended: None if so. The batch has a producer id."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            # Nothing is known, perhaps because retention took it: any sequence may begin here (KIP-360).
            return None
        first_sequence = header.base_sequence
        if header.producer_epoch != producer.epoch:
            if header.producer_epoch < producer.epoch:
                return ErrorCode.invalid_producer_epoch
            if first_sequence != 0:
                return ErrorCode.out_of_order_sequence_number
        else:
            last_sequence = _last_sequence(first_sequence, header.last_offset_delta)
            for batch in producer.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    if header.attributes & TRANSACTIONAL and not producer.has_in_transaction(batch):
                        # Nobody waits for a batch of a transaction that has ended. librdkafka, though, uses numbers
                        # again when it aborts before it has heard of a batch: these are other records, and an answer
                        # as for a duplicate would lose them. Kafka gives that.
                        return ErrorCode.out_of_order_sequence_number
                    return Duplicate(batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp)
            current = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
            if first_sequence != current + 1 and not (first_sequence == 0 and current == _SEQUENCE_MAX):
                return ErrorCode.out_of_order_sequence_number
        if producer.transaction_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            return ErrorCode.invalid_txn_state
        return None

    def check_epoch(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Whether a coordinator may append for the producer: its batches have no sequence numbers."""
        producer = self.producers.get(producer_id)
        if producer is not None and producer_epoch < producer.epoch:
            return ErrorCode.invalid_producer_epoch
        return ErrorCode.none

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> ErrorCode:
        """Whether a marker may be appended. Where every transaction ends with a bumped epoch, a marker of the epoch
        that data was written with is of an earlier transaction, come late; with no transaction open, or no higher epoch
        left, it is one that was appended already, and does no harm."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return ErrorCode.none
        if producer_epoch < producer.epoch:
            return ErrorCode.invalid_producer_epoch
        if (
            transaction_version >= _EPOCH_BUMPS_FROM
            and producer_epoch == producer.epoch
            and producer.transaction_first_offset >= 0
            and producer_epoch < _EPOCH_MAX
        ):
            return ErrorCode.invalid_producer_epoch
        if coordinator_epoch < producer.coordinator_epoch:
            return ErrorCode.transaction_coordinator_fenced
        return ErrorCode.none

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        producer = self.producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset >= 0 and producer.epoch == producer_epoch

    def update(self, header: BatchHeader, base_offset: int, marker: EndMarker | None, now_ms: int) -> None:
        """Replays one batch with a producer id that stands at `base_offset`; `marker` is that of a control batch."""
        # Hot where producers are idempotent, and most are: the header is taken apart once.
        _, _, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, first_sequence, _ = header
        if attributes & CONTROL and marker is None:
            return
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer()
        batches = producer.batches
        if producer.epoch != epoch:
            producer.epoch = epoch
            batches.clear()
        producer.last_timestamp = max_timestamp
        producer.last_seen_ms = now_ms
        if marker is not None:
            self._end_transaction(producer, base_offset, marker)
            return
        if len(batches) == _BATCHES_KEPT:
            del batches[0]
        last_sequence = _last_sequence(first_sequence, delta)
        appended = (first_sequence, last_sequence, base_offset + delta, delta, max_timestamp)
        batches.append(_new_tuple(AppendedBatch, appended))
        if attributes & TRANSACTIONAL and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = base_offset
            self._note_open(producer_id, base_offset)

    def _note_open(self, producer_id: int, first_offset: int) -> None:
        self._open[first_offset] = producer_id
        self._first_offsets.append(first_offset)

    def aborted_by(self, header: BatchHeader, marker_offset: int, marker: EndMarker) -> AbortedTransaction | None:
        """The entry for the transaction index that this marker calls for, before it is replayed. A marker of an empty
        transaction holds nothing back and needs none."""
        producer = self.producers.get(header.producer_id)
        if not marker.is_abort or producer is None or producer.transaction_first_offset < 0:
            return None
        others = (first for first, producer_id in self._open.items() if producer_id != header.producer_id)
        last_stable_offset = next(others, marker_offset + 1)
        return AbortedTransaction(
            header.producer_id, producer.transaction_first_offset, marker_offset, last_stable_offset
        )

    def _end_transaction(self, producer: Producer, marker_offset: int, marker: EndMarker) -> None:
        first_offset = producer.transaction_first_offset
        if first_offset >= 0:
            del self._open[first_offset]
            self._unreplicated.append((marker_offset, first_offset))
            producer.transaction_first_offset = NO_OFFSET
        producer.coordinator_epoch = marker.coordinator_epoch

    def last_stable_offset(self, high_watermark: int) -> int:
        """What read-committed consumers may read up to: the high watermark, or the first offset whose fate is not known
        or not replicated."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][0] < high_watermark:
            unreplicated.popleft()
        first_offsets = self._first_offsets
        while first_offsets and first_offsets[0] not in self._open:
            first_offsets.popleft()
        stable_offset = high_watermark
        if first_offsets:
            stable_offset = min(stable_offset, first_offsets[0])
        if unreplicated:
            stable_offset = min(stable_offset, min(first for _, first in unreplicated))
        return stable_offset

    def load(self, producers: dict[int, Producer]) -> None:
        """The entries of a snapshot, before anything else."""
        self.producers = producers
        open_transactions = (
            (producer.transaction_first_offset, producer_id)
            for producer_id, producer in producers.items()
            if producer.transaction_first_offset >= 0
        )
        for first_offset, producer_id in sorted(open_transactions):
            self._note_open(producer_id, first_offset)

    def expire(self, now_ms: int, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> None:
        """Forgets producers that were silent for so long."""
        expired = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.is_expired(now_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self.producers[producer_id]


def _last_sequence(first_sequence: int, delta: int) -> int:
    """Sequences go round from 2^31-1 to 0. Batches of coordinators have none."""
    if first_sequence < 0:
        return NO_SEQUENCE
    return (first_sequence + delta) & _SEQUENCE_MAX


def first_sequence_of(last_sequence: int, delta: int) -> int:
    if last_sequence < 0:
        return NO_SEQUENCE
    return (last_sequence - delta) & _SEQUENCE_MAX
