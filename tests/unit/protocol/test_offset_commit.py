"""The hand-written OffsetCommit codec against the kio seam, in every version that it speaks."""

import io
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from penstock.protocol import offset_commit
from penstock.protocol.messages import Malformed, Struct, decode_request, encode, encode_response, request_entity
from penstock.protocol.offset_commit import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    add_alike,
    alike_bytes,
    read_commit_request,
    write_commit_response,
    write_commit_responses,
)
from tests.unit.protocol.kio_strategies import messages

KEY = 8
VERSIONS = range(FLEXIBLE_FROM, 11)
quiet = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def written(version: int, message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(request_entity(KEY, version))(out, message)
    return out.getvalue()


def plain(request: Any, version: int) -> Any:
    topic_key = "name" if version < TOPIC_IDS_FROM else "topic_id"
    return (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        [
            (
                getattr(topic, topic_key),
                [
                    (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.committed_metadata)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_the_seam_reads_them(version: int) -> None:
    @quiet
    @given(messages(request_entity(KEY, version)), st.binary(max_size=5), st.binary(max_size=5))
    def same(message: Any, before: bytes, behind: bytes) -> None:
        frame = before + written(version, message) + behind
        request = read_commit_request(version, memoryview(frame), len(before))
        assert plain(request, version) == plain(decode_request(KEY, version, frame, len(before)), version)
        assert [hasattr(topic, "name") for topic in request.topics] == [version < TOPIC_IDS_FROM] * len(request.topics)

    same()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_request_is_malformed_as_it_is_to_the_seam(version: int) -> None:
    @quiet
    @given(messages(request_entity(KEY, version)), st.data())
    def same(message: Any, data: st.DataObject) -> None:
        frame = bytearray(written(version, message))
        del frame[data.draw(st.integers(0, len(frame))) :]
        if frame and data.draw(st.booleans()):
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        try:
            request = plain(read_commit_request(version, memoryview(frame), 0), version)
        except Malformed:
            return
        assert request == plain(decode_request(KEY, version, bytes(frame), 0), version)

    same()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_request_that_is_cut_short_is_malformed(version: int) -> None:
    topic = {"name": "some-topic"} if version < TOPIC_IDS_FROM else {"topic_id": uuid.uuid4()}
    partition = Struct(partition_index=3, committed_offset=5, committed_leader_epoch=-1, committed_metadata="m" * 200)
    body = Struct(
        group_id="g" * 130,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id="i",
        topics=[Struct(**topic, partitions=[partition])],
    )
    frame = _encoded(version, body)
    assert read_commit_request(version, memoryview(frame), 0).group_id == "g" * 130
    for end in range(len(frame)):
        with pytest.raises(Malformed):
            read_commit_request(version, memoryview(frame)[:end], 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_tagged_fields_that_nobody_knows_are_passed_over(version: int) -> None:
    topic = b"\2t" if version < TOPIC_IDS_FROM else bytes(16)
    tags = b"\1\5\2xx"
    partition = (3).to_bytes(4) + (5).to_bytes(8) + b"\xff\xff\xff\xff" + b"\0" + tags
    frame = b"\2g" + b"\xff\xff\xff\xff" + b"\1" + b"\0" + b"\2" + topic + b"\2" + partition + tags + tags
    request = read_commit_request(version, memoryview(frame), 0)
    name = "t" if version < TOPIC_IDS_FROM else None
    assert plain(request, version) == ("g", -1, "", None, [(name, [(3, 5, -1, None)])])


# Few of each kind, so that requests begin alike: in the bytes of an offset and in a tag stand ends of other requests.
PLAIN_END = b"\1\0\0\0"
offsets = st.sampled_from([bytes(8), b"\xff" * 8, PLAIN_END * 2, b"\0\0\0\1" * 2])
epochs = st.sampled_from([bytes(4), b"\xff" * 4, PLAIN_END])
metadata = st.sampled_from([b"\0", b"\1", b"\2\1", b"\5" + PLAIN_END])
tags = st.sampled_from(
    [b"\0", b"\1\0\4" + PLAIN_END, b"\1\0\x10" + bytes(12) + PLAIN_END, b"\1\0\x10" + b"\xff" * 12 + PLAIN_END]
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_begins_as_an_earlier_one_is_read_as_the_seam_reads_it(version: int) -> None:
    topic = b"\2t" if version < TOPIC_IDS_FROM else b"\7" * 16
    head = b"\2g" + b"\xff\xff\xff\xff" + b"\1" + b"\0" + b"\2" + topic + b"\2" + (3).to_bytes(4)
    ends = st.tuples(offsets, epochs, metadata, tags, tags, tags, st.sampled_from([b"", b"\0", PLAIN_END]))

    @quiet
    @given(st.lists(ends, min_size=2, max_size=20))
    def same(all_ends: list[tuple[bytes, ...]]) -> None:
        for end in all_ends:
            frame = head + b"".join(end)
            request = read_commit_request(version, memoryview(frame), 0)
            assert plain(request, version) == plain(decode_request(KEY, version, frame, 0), version)

    same()


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_that_are_alike_become_one_and_are_answered_each(version: int) -> None:
    header = b"hdr:id..client"

    def frame_of(offset: int, **fields: Any) -> memoryview:
        partition = {"partition_index": 3, "committed_leader_epoch": 2, "committed_metadata": "", **fields}
        topic = Struct(
            name="orders", topic_id=uuid.UUID(int=9), partitions=[Struct(committed_offset=offset, **partition)]
        )
        body = Struct(
            group_id="g", generation_id_or_member_epoch=4, member_id="m", group_instance_id=None, topics=[topic]
        )
        return memoryview(header + encode(request_entity(KEY, version), body))

    first = frame_of(10)
    request = read_commit_request(version, first, len(header))
    common_bytes = alike_bytes(version, first, len(header))
    assert common_bytes is not None
    assert bytes(first[:common_bytes]) == bytes(frame_of(2**40)[:common_bytes])
    assert add_alike(request, frame_of(2**40), len(first))
    assert not add_alike(request, frame_of(12, committed_metadata="x"), len(first))
    assert not add_alike(request, memoryview(bytes(first)[:-1] + b"\1"), len(first))
    assert [one.committed_offset for one in request.topics[0].partitions] == [10, 2**40]
    # What is remembered is not what was added to.
    assert len(read_commit_request(version, first, len(header)).topics[0].partitions) == 1
    assert alike_bytes(version, frame_of(12, committed_metadata="x"), len(header)) is None

    outcomes = [Struct(partition_index=3, error_code=code) for code in (0, 25)]
    topic = Struct(name="orders", topic_id=uuid.UUID(int=9), partitions=outcomes)
    alone = [
        encode_response(
            KEY, version, number, Struct(topics=[Struct(name="orders", topic_id=topic.topic_id, partitions=[one])])
        )
        for number, one in enumerate(outcomes)
    ]
    assert write_commit_responses(version, [0, 1], topic) == b"".join(alone)


@pytest.mark.parametrize("version", VERSIONS)
def test_of_requests_that_begin_alike_only_so_many_are_remembered(version: int) -> None:
    topic = {"name": "t"} if version < TOPIC_IDS_FROM else {"topic_id": uuid.uuid4()}
    for number in range(3000):
        partition = Struct(
            partition_index=number, committed_offset=number, committed_leader_epoch=-1, committed_metadata=""
        )
        body = Struct(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[Struct(**topic, partitions=[partition])],
        )
        frame = _encoded(version, body)
        first, again = (read_commit_request(version, memoryview(frame), 0) for _ in range(2))
        assert first == again
        assert again.topics[0].partitions[0].committed_offset == number
    assert 0 < len(offset_commit._remembered) <= 1024


topics = st.lists(
    st.builds(
        Struct,
        name=st.text(max_size=200),
        topic_id=st.none() | st.uuids(),
        partitions=st.lists(
            st.builds(Struct, partition_index=st.integers(-(2**31), 2**31 - 1), error_code=st.sampled_from([0, 3, 22])),
            max_size=200,
        ),
    ),
    max_size=3,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_the_seam_writes_them(version: int) -> None:
    @quiet
    @given(st.integers(-(2**31), 2**31 - 1), topics)
    def same(correlation_id: int, answered: list[Struct]) -> None:
        expected = encode_response(KEY, version, correlation_id, Struct(topics=answered))
        assert write_commit_response(version, correlation_id, answered) == expected

    same()


def _encoded(version: int, body: Struct) -> bytes:
    return bytes(encode(request_entity(KEY, version), body))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("behind", [b"", bytes(16) + b"\1\0\0\0", bytes(17) + b"\1\0\0\0"])
def test_a_request_without_topics_is_read_whatever_is_behind_it(version: int, behind: bytes) -> None:
    body = Struct(group_id="g", generation_id_or_member_epoch=1, member_id="m", topics=[])
    frame = bytes(encode(request_entity(KEY, version), body)) + behind
    assert read_commit_request(version, memoryview(frame), 0).topics == []
