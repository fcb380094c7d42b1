"""The `.snapshot` file: a partition's producer state at one offset, in Kafka's bytes (version 1).

    version int16, crc-32c uint32 of everything after it, number of entries int32, then for each producer
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64,
    coordinator epoch int32, first offset of the open transaction int64 (-1 if none)

Kafka keeps only the last batch of each producer, and forgets producers by the time of their records. So retries after a
restart may be refused or, where the records are old, written twice. Here a trailer follows, which Kafka's readers pass
over (their checksum is of all there is, and so includes it), for each producer in the same order:

    when it last wrote, by this node's clock, int64, number of batches before its last one int8, and of each, the oldest
    first: last sequence int32, last offset int64, offset delta int32, timestamp int64

A file's name is the offset it was taken at.
"""

from struct import Struct
from struct import error as struct_error

from crc32c import crc32c

from penstock.log.producer_state import (
    NO_SEQUENCE,
    PRODUCER_EXPIRATION_MS,
    AppendedBatch,
    Producer,
    ProducerState,
    first_sequence_of,
)

_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_TRAILER = Struct(">qb")
_EARLIER_BATCH = Struct(">iqiq")
_CRC_START = 6
_VERSION = 1


class CorruptSnapshot(ValueError):
    """The bytes are no producer snapshot; an older one, or the log itself, tells the same."""


def encode_snapshot(state: ProducerState | None) -> bytes:
    producers = state.producers if state is not None else {}
    data = bytearray(_HEADER.pack(_VERSION, 0, len(producers)))
    trailer = bytearray()
    for producer_id, producer in producers.items():
        last = producer.batches[-1] if producer.batches else AppendedBatch(NO_SEQUENCE, NO_SEQUENCE, -1, 0, -1)
        data += _ENTRY.pack(
            producer_id,
            producer.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.transaction_first_offset,
        )
        earlier = producer.batches[:-1]
        trailer += _TRAILER.pack(producer.last_seen_ms, len(earlier))
        for batch in earlier:
            trailer += _EARLIER_BATCH.pack(batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp)
    data += trailer
    _HEADER.pack_into(data, 0, _VERSION, crc32c(memoryview(data)[_CRC_START:]), len(producers))
    return bytes(data)


def decode_snapshot(data: bytes) -> dict[int, Producer]:
    if len(data) < _HEADER.size:
        raise CorruptSnapshot("it is cut short")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"its version is {version}; only {_VERSION} is known")
    entries_end = _HEADER.size + count * _ENTRY.size
    if count < 0 or len(data) < entries_end:
        raise CorruptSnapshot("it does not hold as many producers as it says")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise CorruptSnapshot("its checksum is wrong")
    producers: dict[int, Producer] = {}
    for entry in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size : entries_end]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = entry
        producer = Producer(epoch, coordinator_epoch, timestamp, max(first_offset, -1))
        if last_offset >= 0:
            producer.batches.append(_batch(last_sequence, last_offset, delta, timestamp))
        producers[producer_id] = producer
    if len(data) > entries_end:
        _read_trailer(data, entries_end, producers)
    return producers


def _read_trailer(data: bytes, position: int, producers: dict[int, Producer]) -> None:
    try:
        for producer in producers.values():
            producer.last_seen_ms, count = _TRAILER.unpack_from(data, position)
            position += _TRAILER.size
            end = position + count * _EARLIER_BATCH.size
            producer.batches[:0] = [_batch(*one) for one in _EARLIER_BATCH.iter_unpack(data[position:end])]
            position = end
    except struct_error as problem:
        raise CorruptSnapshot(f"its trailer is cut short: {problem}") from problem
    if position != len(data):
        raise CorruptSnapshot("bytes are left over")


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp: int) -> AppendedBatch:
    return AppendedBatch(first_sequence_of(last_sequence, delta), last_sequence, last_offset, delta, timestamp)


def state_from_snapshot(data: bytes, now_ms: int) -> ProducerState:
    """Leaves out the producers that have expired meanwhile."""
    state = ProducerState()
    state.load(
        {
            producer_id: producer
            for producer_id, producer in decode_snapshot(data).items()
            if not producer.is_expired(now_ms, PRODUCER_EXPIRATION_MS)
        }
    )
    return state
