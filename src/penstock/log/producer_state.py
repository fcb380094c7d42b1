"""What a partition knows of its idempotent and transactional producers (KIP-98, KIP-360).

For every producer id: its epoch, its last five batches (enough for the five requests a producer keeps in flight), and
the first offset of its open transaction. A batch seen before is answered with its first offsets, one that leaves a gap
is refused. Transactions that are open, or whose marker the high watermark has not passed, hold the last stable offset
back.

State changes only by `update`, which replays a batch that stands in the log; so the same call serves the append, the
follower and the rebuilding after a crash. The caller asks `check` first where a client is the one who appends.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ports import Bytes
from penstock.log.transaction_index import AbortedTransaction
from penstock.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from penstock.protocol.records import iterate_records

PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000
NO_EPOCH = -1
NO_OFFSET = -1
NO_SEQUENCE = -1

_BATCHES_KEPT = 5
_SEQUENCE_MAX = 2**31 - 1
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1


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


class EndMarker(NamedTuple):
    """The one record of a control batch that ends a transaction."""

    is_abort: bool
    coordinator_epoch: int


class Producer:
    """One producer id's entry."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_first_offset")

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
        self.transaction_first_offset = transaction_first_offset
        self.batches: list[AppendedBatch] = []

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.transaction_first_offset < 0 and now_ms - self.last_timestamp >= expiration_ms


class ProducerState:
    __slots__ = ("_open", "_unreplicated", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        # First offset -> producer id of the open transactions, in the order of the log.
        self._open: dict[int, int] = {}
        # First offset -> marker's offset of transactions whose end may not be replicated yet.
        self._unreplicated: dict[int, int] = {}

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
                    return Duplicate(batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp)
            current = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
            if first_sequence != current + 1 and not (first_sequence == 0 and current == _SEQUENCE_MAX):
                return ErrorCode.out_of_order_sequence_number
        if producer.transaction_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            return ErrorCode.invalid_txn_state
        return None

    def update(self, header: BatchHeader, base_offset: int, marker: EndMarker | None) -> None:
        """Replays one batch with a producer id that stands at `base_offset`; `marker` is that of a control batch."""
        if header.attributes & CONTROL and marker is None:
            return
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer()
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp = header.max_timestamp
        if marker is not None:
            self._end_transaction(producer, base_offset, marker)
            return
        delta = header.last_offset_delta
        first_sequence = header.base_sequence
        if len(producer.batches) == _BATCHES_KEPT:
            del producer.batches[0]
        producer.batches.append(
            AppendedBatch(
                first_sequence, _last_sequence(first_sequence, delta), base_offset + delta, delta, header.max_timestamp
            )
        )
        if header.attributes & TRANSACTIONAL and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = base_offset
            self._open[base_offset] = header.producer_id

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
            self._unreplicated[first_offset] = marker_offset
            producer.transaction_first_offset = NO_OFFSET
        producer.coordinator_epoch = marker.coordinator_epoch

    def last_stable_offset(self, high_watermark: int) -> int:
        """What read-committed consumers may read up to: the high watermark, or the first offset whose fate is not known
        or not replicated."""
        if self._unreplicated:
            self._unreplicated = {
                first: marker for first, marker in self._unreplicated.items() if marker >= high_watermark
            }
        first_open = next(iter(self._open), high_watermark)
        return min(high_watermark, first_open, min(self._unreplicated, default=high_watermark))

    def load(self, producer_id: int, producer: Producer) -> None:
        """One entry of a snapshot."""
        self.producers[producer_id] = producer
        if producer.transaction_first_offset >= 0:
            self._open[producer.transaction_first_offset] = producer_id
            self._open = dict(sorted(self._open.items()))

    def expire(self, now_ms: int, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> None:
        """Forgets producers that were silent for so long. A periodic task, not a part of `check`: the time is that of
        their records, and a producer of old records would otherwise lose its guarantees while it writes."""
        expired = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.is_expired(now_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self.producers[producer_id]


def read_end_marker(batch: Bytes, header: BatchHeader) -> EndMarker | None:
    """The marker in a control batch; None when it is none that ends a transaction (a leader change, an emptied batch).
    Raises CorruptRecords."""
    for record in iterate_records(batch, header):
        try:
            _, kind = _MARKER_KEY.unpack_from(record.key or b"")
            if kind in (_ABORT, _COMMIT):
                _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
                return EndMarker(kind == _ABORT, coordinator_epoch)
        except struct_error:
            pass
        return None
    return None


def _last_sequence(first_sequence: int, delta: int) -> int:
    """Sequences go round from 2^31-1 to 0."""
    return (first_sequence + delta) & _SEQUENCE_MAX


def first_sequence_of(last_sequence: int, delta: int) -> int:
    return (last_sequence - delta) & _SEQUENCE_MAX
