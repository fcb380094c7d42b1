"""Record batches of every wrong kind: each gets its error code, never UNKNOWN_SERVER_ERROR, and none is served on."""

import gzip
import struct
import zlib
from typing import Any

import lz4.frame
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.batch import encode_batch
from penstock.protocol.records import write_varint
from tests.conformance.wire import (
    LIST_OFFSETS,
    PRODUCE,
    PRODUCE_BY_NAME,
    Wire,
    batch_of,
    fetch,
    list_offsets_of,
    produce,
    produce_of,
)
from tests.fuzz.conftest import TOPICS
from tests.fuzz.fuzzing import MEGABYTE, Target, steady
from tests.fuzz.test_frames import mutations

topics = st.sampled_from(sorted(TOPICS))
CODECS = st.integers(0, 4)


def resealed(batch: bytearray) -> bytearray:
    """A batch that was tampered with, its length and CRC made right again."""
    if len(batch) >= 61:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def send(target: Target, topic: str, batch: bytes | bytearray | None, acks: int = 1) -> str:
    """The name of the error code."""
    with Wire(target.node.port) as wire:
        answer = wire.ask(PRODUCE, PRODUCE_BY_NAME, produce_of(topic, [(1, batch)], acks=acks))
    name: str = answer.responses[0].partition_responses[0].error_code.name
    assert name != "unknown_server_error"
    target.check_log()
    return name


@steady(300)
@given(st.data(), topics, CODECS, st.booleans())
def test_batches_with_some_bytes_changed(
    target: Target, data: st.DataObject, topic: str, codec: int, is_resealed: bool
) -> None:
    good = batch_of([b"value " * 10, None], codec=codec, key=b"key")
    changed = bytearray(data.draw(mutations(bytes(good))))
    send(target, topic, resealed(changed) if is_resealed else changed)


@steady(300)
@given(
    topics,
    st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 0x08, 0x10, 0x20, 0x30, 0x40, 0x80, -1, 0x7FFF]),
    st.sampled_from([0, -1, 1, 2, 2**31 - 1, -(2**31)]),
    st.sampled_from([0, -1, 1, 2, 2**31 - 1, -(2**31)]),
    st.tuples(
        st.sampled_from([-1, 0, 5, 2**63 - 1, -(2**63)]),
        st.sampled_from([-1, 0, 32767, -32768]),
        st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31)]),
    ),
    st.sampled_from([-1, 0, 1, 2**63 - 1, -(2**63), 1_700_000_000_000, 10**15]),
)
def test_batch_headers_of_any_kind(
    target: Target,
    topic: str,
    attributes: int,
    last_offset_delta: int,
    record_count: int,
    producer: tuple[int, int, int],
    timestamp: int,
) -> None:
    records = bytes(batch_of([b"v"], key=b"k")[61:])
    batch = encode_batch(
        records,
        record_count=record_count,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    send(target, topic, batch)


@steady(150)
@given(topics, st.binary(max_size=80), CODECS, st.integers(1, 3))
def test_records_sections_of_any_bytes(target: Target, topic: str, records: bytes, codec: int, count: int) -> None:
    send(target, topic, encode_batch(records, record_count=count, attributes=codec, base_timestamp=1, max_timestamp=1))


@pytest.mark.parametrize("topic", sorted(TOPICS))
@pytest.mark.parametrize(
    "data",
    [None, b"", b"\x00", bytes(11), bytes(60), bytes(61), bytes(1000), b"\xff" * 100],
    ids=lambda data: "null" if data is None else f"{data[:1].hex()}x{len(data)}",
)
def test_what_is_no_batch_at_all(target: Target, topic: str, data: bytes | None) -> None:
    assert send(target, topic, data) in ("invalid_record", "corrupt_message")


def bomb(codec: int, unpacked_bytes: int) -> bytes:
    """One record with a value of zeros, packed as well as can be."""
    body = bytearray(1)
    for number in (0, 0):
        write_varint(body, number)
    write_varint(body, 1)
    body += b"k"
    write_varint(body, unpacked_bytes)
    ending = bytearray(unpacked_bytes)
    write_varint(ending, 0)
    section = bytearray()
    write_varint(section, len(body) + len(ending))
    section += body + ending
    match codec:
        case 1:
            return gzip.compress(bytes(section), 6)
        case 3:
            packed: bytes = lz4.frame.compress(bytes(section))
            return packed
        case _:
            return zstandard.ZstdCompressor(level=3).compress(bytes(section))


# More than a client that watches may be held up by chance.
_BOMBS = 5


@pytest.fixture(scope="session")
def bombs() -> dict[int, bytes]:
    """By codec. Made before anything is watched, because making them is hard work."""
    return {codec: bomb(codec, 200 * MEGABYTE) for codec in (1, 3, 4)}


@pytest.mark.parametrize("codec", [1, 3, 4])
@pytest.mark.parametrize("topic", ["plain", "compacted", "repacked", "bounded"])
def test_decompression_bombs_are_bounded(bombs: dict[int, bytes], target: Target, topic: str, codec: int) -> None:
    """A small batch that unpacks to a great deal, where the broker has to look inside. Memory is checked afterwards by
    the fixture, and so is the patience of other clients."""
    batch = encode_batch(bombs[codec], record_count=1, attributes=codec, base_timestamp=1, max_timestamp=1)
    assert len(batch) < MEGABYTE
    for _ in range(_BOMBS):
        send(target, topic, batch)


@pytest.fixture(scope="session")
def endless_bomb() -> bytes:
    """Two gigabytes that do not say so."""
    compressor = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    return b"".join(compressor.compress(bytes(MEGABYTE)) for _ in range(2000)) + compressor.flush()


def test_a_zstd_bomb_without_a_content_size_is_bounded(endless_bomb: bytes, target: Target) -> None:
    batch = encode_batch(endless_bomb, record_count=1, attributes=4, base_timestamp=1, max_timestamp=1)
    for topic in ("compacted", "repacked"):
        assert send(target, topic, batch) != "none"


def test_a_gzip_stream_of_many_members_is_bounded(target: Target) -> None:
    member = zlib.compressobj(9, wbits=31)
    packed = (member.compress(bytes(MEGABYTE)) + member.flush()) * 600
    batch = encode_batch(packed, record_count=1, attributes=1, base_timestamp=1, max_timestamp=1)
    assert len(batch) < MEGABYTE
    assert send(target, "compacted", batch) != "none"


@steady(60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([-1, 0, 1, 2, 32767]),
            st.sampled_from([0, 1, 2, 3, 10, 2**31 - 2, 2**31 - 1]),
            st.integers(1, 4),
        ),
        max_size=12,
    )
)
def test_sequences_with_gaps_wraps_and_foreign_ids_never_double_a_record(
    target: Target, sends: list[tuple[int, int, int, int]]
) -> None:
    """A batch that is acknowledged twice has one offset; no offset is given to two batches."""
    given_offsets: dict[int, tuple[int, int, int, int]] = {}
    with Wire(target.node.port) as wire:
        for producer, epoch, sequence, count in sends:
            producer_id = 1_000_000 + producer
            batch = batch_of([b"v"] * count, producer=(producer_id, epoch, sequence), key=b"k")
            answer: Any = produce(wire, "plain", batch, acks=1)
            assert answer.error_code.name != "unknown_server_error"
            if answer.error_code == 0:
                identity = (producer, epoch, sequence, count)
                assert given_offsets.setdefault(answer.base_offset, identity) == identity
    target.check_log()


def test_everything_that_was_accepted_can_be_read(target: Target) -> None:
    """After all of the above, or before it: what consumers are given is whole and has the right CRC."""
    with Wire(target.node.port) as wire:
        for topic in TOPICS:
            for partition in (0, 1):
                asked = list_offsets_of(topic, [(partition, -2)])
                offset = wire.ask(LIST_OFFSETS, 7, asked).topics[0].partitions[0].offset
                while True:
                    answer = fetch(wire, topic, offset, partition=partition)
                    assert answer.error_code == 0
                    if offset >= answer.high_watermark:
                        break
                    offset = _next_offset(answer.records)
    target.check_log()


def _next_offset(data: bytes) -> int:
    """After the last whole batch. Only stored as they came, batches of topics that need not look inside may hold
    anything; the framing and the CRC are right."""
    position = 0
    next_offset = -1
    while position + 61 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        if end > len(data):
            break
        (crc,) = struct.unpack_from(">I", data, position + 17)
        assert crc == crc32c(data[position + 21 : end])
        (delta,) = struct.unpack_from(">i", data, position + 23)
        next_offset = base_offset + delta + 1
        position = end
    assert next_offset > 0
    return next_offset
