"""The `.snapshot` file: a partition's producer state at one offset, in Kafka's bytes (version 1).

    version int16, crc-32c uint32 of everything after it, number of entries int32, then for each producer
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64,
    coordinator epoch int32, first offset of the open transaction int64 (-1 if none)

Only the last batch of each producer is kept, as in Kafka. A file's name is the offset it was taken at.
"""

from struct import Struct

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
_CRC_START = 6
_VERSION = 1


class CorruptSnapshot(ValueError):
    """The bytes are no producer snapshot; an older one, or the log itself, tells the same."""


def encode_snapshot(state: ProducerState | None) -> bytes:
    producers = state.producers if state is not None else {}
    data = bytearray(_HEADER.pack(_VERSION, 0, len(producers)))
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
    _HEADER.pack_into(data, 0, _VERSION, crc32c(memoryview(data)[_CRC_START:]), len(producers))
    return bytes(data)


def decode_snapshot(data: bytes) -> dict[int, Producer]:
    if len(data) < _HEADER.size:
        raise CorruptSnapshot("it is cut short")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"its version is {version}; only {_VERSION} is known")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshot("it does not hold as many producers as it says")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise CorruptSnapshot("its checksum is wrong")
    producers: dict[int, Producer] = {}
    for entry in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = entry
        producer = Producer(epoch, coordinator_epoch, timestamp, max(first_offset, -1))
        if last_offset >= 0:
            first_sequence = first_sequence_of(last_sequence, delta)
            producer.batches.append(AppendedBatch(first_sequence, last_sequence, last_offset, delta, timestamp))
        producers[producer_id] = producer
    return producers


def state_from_snapshot(data: bytes, now_ms: int) -> ProducerState:
    """Leaves out the producers that have expired meanwhile."""
    state = ProducerState()
    for producer_id, producer in decode_snapshot(data).items():
        if not producer.is_expired(now_ms, PRODUCER_EXPIRATION_MS):
            state.load(producer_id, producer)
    return state
