"""The hand-written Fetch codec against kio, byte for byte, in every version."""

import contextlib
import io
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from penstock.base.ports import File, Slice
from penstock.protocol.fetch import (
    TOPIC_IDS_FROM,
    PartitionAnswer,
    _read_request,
    _read_usual,
    _Reader,
    decode_fetch_request,
    encode_fetch_response,
)
from penstock.protocol.messages import Malformed, Struct, encode, encode_response, request_entity
from tests.conformance.wire import fetch_of
from tests.unit.protocol.kio_strategies import messages

VERSIONS = range(4, 19)
quiet = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


def topic_key(version: int, topic: Any) -> bytes:
    if version < TOPIC_IDS_FROM:
        return str(topic.topic).encode()
    return bytes(16) if topic.topic_id is None else bytes(topic.topic_id.bytes)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_kio_reads_them(version: int) -> None:
    entity: Any = request_entity(1, version)

    @quiet
    @given(messages(entity))
    def same(message: Any) -> None:
        out = io.BytesIO()
        entity_writer(entity)(out, message)
        request = decode_fetch_request(version, memoryview(out.getvalue()), 0)
        if version >= 15:
            assert request.replica_id == message.replica_state.replica_id
        else:
            assert request.replica_id == message.replica_id
        assert request.wait_ms_max == round(message.max_wait.total_seconds() * 1000)
        assert (request.bytes_min, request.bytes_max) == (message.min_bytes, message.max_bytes)
        assert request.read_committed == (message.isolation_level == 1)
        assert request.session_id == getattr(message, "session_id", 0)
        assert request.session_epoch == getattr(message, "session_epoch", -1)
        assert request.rack_id == getattr(message, "rack_id", "")
        assert request.topics == [
            (
                topic_key(version, topic),
                [
                    (
                        one.partition,
                        getattr(one, "current_leader_epoch", -1),
                        one.fetch_offset,
                        getattr(one, "last_fetched_epoch", -1),
                        getattr(one, "log_start_offset", -1),
                        one.partition_max_bytes,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        assert request.forgotten == [
            (topic_key(version, topic), list(topic.partitions))
            for topic in getattr(message, "forgotten_topics_data", ())
        ]

    same()


class MemoryFile:
    """As much of a File as a Slice needs here."""

    path = "memory"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, position: int, length: int) -> bytes:
        return self.data[position : position + length]


def slice_of(data: bytes) -> Slice:
    file: Any = MemoryFile(b"before" + data + b"after")
    typed: File = file
    return Slice(typed, 6, len(data))


offsets = st.integers(-1, 2**62)
answers = st.builds(
    PartitionAnswer,
    st.integers(0, 9),
    st.sampled_from([0, 1, 100]),
    offsets,
    offsets,
    offsets,
    st.none() | st.lists(st.tuples(offsets, offsets), max_size=3),
    st.integers(-1, 5),
    st.none() | st.binary(min_size=1, max_size=300).map(slice_of),
    st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
)


def joined(parts: Any) -> bytes:
    return b"".join(part.file.read(part.position, part.length) if isinstance(part, Slice) else part for part in parts)


def usual_request(version: int, topics: list[list[int]]) -> bytearray:
    """As consumers send it: no tags, nothing forgotten, no rack."""
    body = Struct(
        max_wait=500,
        min_bytes=1,
        max_bytes=50_000_000,
        isolation_level=1,
        session_id=7,
        session_epoch=8,
        topics=[
            Struct(
                topic_id=uuid.UUID(int=number + 1),
                partitions=[
                    Struct(partition=index, fetch_offset=index * 1000, partition_max_bytes=1 << 20) for index in indexes
                ],
            )
            for number, indexes in enumerate(topics)
        ],
    )
    return bytearray(encode(request_entity(1, version), body))


@given(
    st.sampled_from(range(15, 19)),
    st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=3), max_size=3),
    st.data(),
)
def test_the_short_way_reads_what_the_long_way_does(version: int, topics: list[list[int]], data: st.DataObject) -> None:
    frame = usual_request(version, topics)
    # A byte changed anywhere makes it another request or none, for both.
    if data.draw(st.booleans()):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    view = memoryview(frame)[: data.draw(st.one_of(st.just(len(frame)), st.integers(0, len(frame))))]
    short = _read_usual(view, 0)
    if short is not None:
        assert short == _read_request(version, _Reader(view, 0, flexible=True))


@pytest.mark.parametrize("version", range(15, 19))
@pytest.mark.parametrize("topics", [[], [[]], [[3]], [[1, 2], [0]], [list(range(126))]])
def test_the_short_way_is_taken(version: int, topics: list[list[int]]) -> None:
    short = _read_usual(memoryview(usual_request(version, topics)), 0)
    assert short is not None
    assert [[one.partition for one in partitions] for _, partitions in short.topics] == topics


@pytest.mark.parametrize("version", range(15, 19))
def test_counts_of_more_than_one_byte_go_the_long_way(version: int) -> None:
    many = usual_request(version, [list(range(200))])
    assert _read_usual(memoryview(many), 0) is None
    assert len(decode_fetch_request(version, memoryview(many), 0).topics[0][1]) == 200


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_the_seam_writes_them(version: int) -> None:
    @quiet
    @given(
        st.integers(0, 2**31 - 1),
        st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.lists(answers, max_size=3)), max_size=3),
    )
    def same(session_id: int, topics: list[tuple[bytes, list[PartitionAnswer]]]) -> None:
        by_id = version >= TOPIC_IDS_FROM
        named = topics if by_id else [(topic.hex().encode(), parts) for topic, parts in topics]
        expected = Struct(
            session_id=session_id,
            responses=[
                Struct(
                    topic=None if by_id else topic.decode(),
                    topic_id=uuid.UUID(bytes=topic) if by_id else None,
                    partitions=[expected_partition(one) for one in parts],
                )
                for topic, parts in named
            ],
        )
        got = joined(encode_fetch_response(version, 5, 0, session_id, named))
        assert got == bytes(encode_response(1, version, 5, expected))

    same()


def expected_partition(one: PartitionAnswer) -> Struct:
    fields = Struct(
        partition_index=one.partition,
        error_code=one.error_code,
        high_watermark=one.high_watermark,
        last_stable_offset=one.last_stable_offset,
        log_start_offset=one.log_start_offset,
        aborted_transactions=None
        if one.aborted is None
        else [Struct(producer_id=producer, first_offset=first) for producer, first in one.aborted],
        preferred_read_replica=one.preferred_read_replica,
        records=b"" if one.records is None else one.records.file.read(one.records.position, one.records.length),
    )
    if one.diverging_epoch is not None:
        fields.diverging_epoch = Struct(epoch=one.diverging_epoch[0], end_offset=one.diverging_epoch[1])
    return fields


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_malformed(version: int) -> None:
    one = Struct(partition=1, fetch_offset=5, partition_max_bytes=9)
    topic = Struct(topic="topic", topic_id=None, partitions=[one])
    fields = Struct(replica_id=-1, max_wait=5, min_bytes=1, max_bytes=9, topics=[topic], rack_id="r")
    whole = bytes(encode(request_entity(1, version), fields))
    decode_fetch_request(version, memoryview(whole), 0)
    for length in range(len(whole)):
        with pytest.raises(Malformed):
            decode_fetch_request(version, memoryview(whole[:length]), 0)


@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_any_bytes_are_a_request_or_malformed(version: int, data: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode_fetch_request(version, memoryview(data), 0)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version < 13])
def test_a_name_that_is_no_text_is_made_one_since_the_answer_repeats_it(version: int) -> None:
    frame = encode(request_entity(1, version), fetch_of("xxxx", [(0, 0)])).replace(b"xxxx", b"x\xc3\x28x")
    assert decode_fetch_request(version, memoryview(frame), 0).topics[0][0] == "x\ufffd(x".encode()
