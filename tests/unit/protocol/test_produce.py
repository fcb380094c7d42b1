"""The hand-written Produce codec against kio, byte for byte, in every version."""

import contextlib
import io
import uuid
from struct import pack, unpack_from
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from penstock.protocol.messages import Malformed, Struct, encode, encode_response, request_entity
from penstock.protocol.produce import (
    TOPIC_IDS_FROM,
    PartitionAnswer,
    Placed,
    RecordError,
    decode_produce_request,
    encode_produce_response,
    read_single,
    read_singles,
    shape_of,
    share_of,
    spelt_out,
    write_singles,
)
from tests.unit.protocol.kio_strategies import messages

VERSIONS = range(3, 14)
quiet = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


def written(entity: Any, message: Any) -> memoryview:
    out = io.BytesIO()
    entity_writer(entity)(out, message)
    return memoryview(bytearray(out.getvalue()))


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_kio_reads_them(version: int) -> None:
    @quiet
    @given(messages(request_entity(0, version)))
    def same(message: Any) -> None:
        request = decode_produce_request(version, written(request_entity(0, version), message), 0)
        assert request.transactional_id == message.transactional_id
        assert request.acks == message.acks
        assert request.timeout_ms == round(message.timeout.total_seconds() * 1000)
        expected = []
        for topic in message.topic_data:
            if version >= TOPIC_IDS_FROM:
                key = bytes(16) if topic.topic_id is None else topic.topic_id.bytes
            else:
                key = topic.name.encode()
            expected.append((key, [(one.index, one.records) for one in topic.partition_data]))
        got = [
            (topic, [(index, None if records is None else bytes(records)) for index, records in partitions])
            for topic, partitions in request.topics
        ]
        assert got == expected

    same()


answers = st.builds(
    PartitionAnswer,
    st.integers(0, 9),
    st.sampled_from([0, 2, 87]),
    st.integers(-1, 2**62),
    st.integers(-1, 2**40),
    st.integers(-1, 2**62),
    st.just(()),
    st.none(),
)
failures = st.builds(
    PartitionAnswer,
    st.integers(0, 9),
    st.just(87),
    base_offset=st.just(-1),
    append_time_ms=st.just(-1),
    log_start_offset=st.just(-1),
    record_errors=st.lists(st.builds(RecordError, st.integers(0, 9), st.none() | st.text(max_size=9)), max_size=3),
    error_message=st.none() | st.text(max_size=200),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_the_seam_writes_them(version: int) -> None:
    @quiet
    @given(
        st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.lists(answers | failures, max_size=3)), max_size=3)
    )
    def same(topics: list[tuple[bytes, list[PartitionAnswer]]]) -> None:
        named = topics if version >= TOPIC_IDS_FROM else [(topic.hex().encode(), parts) for topic, parts in topics]
        expected = Struct(
            responses=[
                Struct(
                    name=None if version >= TOPIC_IDS_FROM else topic.decode(),
                    topic_id=uuid.UUID(bytes=topic) if version >= TOPIC_IDS_FROM else None,
                    partition_responses=[
                        Struct(
                            index=one.partition,
                            error_code=one.error_code,
                            base_offset=one.base_offset,
                            log_append_time=one.append_time_ms,
                            log_start_offset=one.log_start_offset,
                            record_errors=[
                                Struct(batch_index=each.batch_index, batch_index_error_message=each.message)
                                for each in one.record_errors
                            ],
                            error_message=one.error_message,
                        )
                        for one in parts
                    ],
                )
                for topic, parts in named
            ]
        )
        got = bytes(encode_produce_response(version, 77, named))
        assert got == bytes(encode_response(0, version, 77, expected))

    same()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_malformed(version: int) -> None:
    entity = request_entity(0, version)
    one = Struct(index=1, records=b"x" * 30)
    topic = Struct(name="topic", topic_id=None, partition_data=[one])
    whole = bytes(encode(entity, Struct(transactional_id="t", acks=1, timeout=5, topic_data=[topic])))
    decode_produce_request(version, memoryview(whole), 0)
    for length in range(len(whole)):
        with pytest.raises(Malformed):
            decode_produce_request(version, memoryview(whole[:length]), 0)
    assert decode_produce_request(version, memoryview(whole + b"\0"), 0).acks == 1


@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_any_bytes_are_a_request_or_malformed(version: int, data: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode_produce_request(version, memoryview(data), 0)


def single_request(version: int, topic: str, index: int, records: bytes) -> bytearray:
    one = Struct(index=index, records=records)
    data = Struct(name=topic, topic_id=uuid.UUID(int=7), partition_data=[one])
    body = Struct(transactional_id=None, acks=1, timeout=5, topic_data=[data])
    return bytearray(encode(request_entity(0, version), body))


@given(st.sampled_from(range(9, 14)), st.text("abc", min_size=1, max_size=140), st.integers(0, 9), st.data())
def test_the_short_way_reads_what_the_long_way_does(version: int, topic: str, index: int, data: st.DataObject) -> None:
    frame = single_request(version, topic, index, data.draw(st.binary(min_size=61, max_size=300)))
    # A byte changed anywhere makes it another request or none, for both.
    if data.draw(st.booleans()):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.one_of(st.just(len(frame)), st.integers(0, len(frame))))]
    try:
        single = read_single(version, memoryview(frame), 0)
    except Malformed:
        single = None
    if single is not None:
        whole = decode_produce_request(version, memoryview(frame), 0)
        assert (None, single.acks, [(single.topic, [(single.partition, single.records)])]) == (
            whole.transactional_id,
            whole.acks,
            whole.topics,
        )


def test_the_short_way_is_taken() -> None:
    single = read_single(12, memoryview(single_request(12, "topic", 3, bytes(61))), 0)
    assert single is not None
    assert (single.acks, single.topic, single.partition, bytes(single.records)) == (1, b"topic", 3, bytes(61))


# Of a request: key, version, correlation id, no client id, no tags.
HEADER_BYTES = 11


def framed(version: int, correlation_id: int, body: bytearray) -> bytes:
    """With a header that has no client id and no tags."""
    frame = pack(">hhihB", 0, version, correlation_id, -1, 0) + body
    return pack(">i", len(frame)) + frame


@given(
    st.sampled_from(range(9, 14)),
    st.lists(st.tuples(st.sampled_from([3, 3, 3, 4]), st.integers(61, 300)), min_size=1, max_size=6),
    st.data(),
)
def test_what_follows_is_read_as_it_would_be_alone(
    version: int, requests: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Up to the first that is for another partition, damaged, or not here in whole."""
    frames = [
        framed(version, number, single_request(version, "topic", index, bytes([number]) * size))
        for number, (index, size) in enumerate(requests)
    ]
    buffer = bytearray(b"".join(frames))
    if data.draw(st.booleans()):
        buffer[data.draw(st.integers(len(frames[0]), len(buffer)) | st.just(0)) - 1] = data.draw(st.integers(0, 255))
    end = data.draw(st.just(len(buffer)) | st.integers(len(frames[0]), len(buffer)))
    like = memoryview(buffer)[4 : len(frames[0])]
    first = read_single(version, like, HEADER_BYTES)
    if first is None:
        return
    ids: list[int] = []
    batches: list[memoryview] = []
    position = data.draw(st.sampled_from([0, len(frames[0])]))
    start = read_singles(buffer, position, end, shape_of(version, like, first), ids, batches)
    for number, batch in zip(ids, batches, strict=True):
        (size,) = unpack_from(">i", buffer, position)
        frame = memoryview(buffer)[position + 4 : position + 4 + size]
        alone = read_single(version, frame, HEADER_BYTES)
        assert alone is not None
        assert (alone[:4], bytes(alone.records)) == (first[:4], bytes(batch))
        assert unpack_from(">i", frame, 4) == (number,)
        position += 4 + size
    assert position == start <= end


def test_all_that_are_alike_are_taken() -> None:
    frames = [framed(12, n, single_request(12, "topic", 3, bytes(size))) for n, size in enumerate((61, 100, 2000, 61))]
    other = framed(12, 9, single_request(12, "topic", 4, bytes(61)))
    buffer = bytearray(b"".join([*frames, other]))
    like = memoryview(buffer)[4 : len(frames[0])]
    first = read_single(12, like, HEADER_BYTES)
    assert first is not None
    ids: list[int] = []
    batches: list[memoryview] = []
    start = read_singles(buffer, 0, len(buffer), shape_of(12, like, first), ids, batches)
    assert (start, ids) == (len(buffer) - len(other), [0, 1, 2, 3])
    assert [len(batch) for batch in batches] == [61, 100, 2000, 61]


@pytest.mark.parametrize("version", range(9, 14))
def test_answers_that_leave_together_are_those_that_leave_alone(version: int) -> None:
    topic = b"t" * 16
    good = [PartitionAnswer(3, 0, offset, -1, 2) for offset in (10, 11, 2**40)]
    stamped = [PartitionAnswer(3, 0, 12, 1_700_000_000_000, 2), PartitionAnswer(3, 0, 13, 1_700_000_000_001, 2)]
    bad = [PartitionAnswer(3, 2, error_message="no"), PartitionAnswer(3, 6, record_errors=[RecordError(0, "why")])]
    for answers in (good, good[:1], stamped, bad, [*good, *bad]):
        ids = list(range(7, 7 + len(answers)))
        alone = [
            encode_produce_response(version, each, [(topic, [one])]) for each, one in zip(ids, answers, strict=True)
        ]
        assert write_singles(version, ids, topic, answers) == b"".join(alone)


@pytest.mark.parametrize("size", [0, 1, 61, 126, 127, 128, 16_382, 16_383, 16_384, 70_000])
@pytest.mark.parametrize("version", [8, 9, 13])
def test_records_of_any_size_are_found_among_others(version: int, size: int) -> None:
    """Their size is one byte, two or three."""
    parts = [Struct(index=index, records=bytes([index]) * length) for index, length in enumerate((size, 5, size))]
    data = Struct(name="topic", topic_id=uuid.UUID(int=7), partition_data=[*parts, Struct(index=9, records=None)])
    body = Struct(transactional_id=None, acks=1, timeout=5, topic_data=[data])
    frame = memoryview(bytearray(encode(request_entity(0, version), body)))
    [(_, partitions)] = decode_produce_request(version, frame, 0).topics
    got = [(index, None if records is None else bytes(records)) for index, records in partitions]
    assert got == [*((one.index, one.records) for one in parts), (9, None)]


def test_a_list_longer_than_the_frame_is_refused_before_it_is_made() -> None:
    plain = b"\xff\xff" + b"\0\1" + b"\0\0\0\5" + b"\x7f\xff\xff\xff"
    with pytest.raises(Malformed, match="does not fit"):
        decode_produce_request(3, memoryview(plain), 0)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version < TOPIC_IDS_FROM])
@pytest.mark.parametrize("partitions", [[], [Struct(index=0, records=b"v")]])
def test_a_name_that_is_no_text_is_made_one_since_the_answer_repeats_it(version: int, partitions: list[Struct]) -> None:
    topic = Struct(name="xxxx", partition_data=partitions)
    body = Struct(transactional_id=None, acks=1, timeout=1, topic_data=[topic])
    frame = encode(request_entity(0, version), body).replace(b"xxxx", b"x\xc3\x28x")
    assert decode_produce_request(version, memoryview(frame), 0).topics[0][0] == "x\ufffd(x".encode()


@given(st.integers(1, 12), st.lists(st.integers(1, 12)))
def test_shares_of_placed_batches_are_answered_as_all_of_them(count: int, cuts: list[int]) -> None:
    placed = Placed(3, 7, [100 + 5 * number for number in range(count)])
    starts = sorted({0, *(cut for cut in cuts if cut < count)})
    shares = [share_of(placed, start, end) for start, end in zip(starts, [*starts[1:], count], strict=True)]
    assert [answer for share in shares for answer in spelt_out(share)] == [
        PartitionAnswer(3, 0, 100 + 5 * number, log_start_offset=7) for number in range(count)
    ]
