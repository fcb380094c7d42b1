"""OffsetCommit (key 8), versions 8-10, by hand: groups commit all the time, and reading and writing by the schema took
longer than the commit itself. Older versions, which only old clients speak, go by the schema.

A member commits the same partition again and again. Where a request is for one partition, what was read of it, all but
the offset, is remembered by its bytes; and so are the bytes of the answer.

Topics go by name up to version 9 and by id from 10 on. What is read has the fields that the schema's request has.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Any, NamedTuple
from uuid import UUID

from penstock.protocol.primitives import Malformed, read_uvarint, skip_tagged_fields, uvarint

FLEXIBLE_FROM = 8
TOPIC_IDS_FROM = 10

_TEXT_BYTES_MAX = 0x7FFF
_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)
_INT32 = Struct(">i")
# Partition, offset and leader epoch, then one more than the length of the metadata.
_PARTITION = Struct(">iqiB")
# How a request for one partition ends behind the partition's index: offset and leader epoch; then no metadata, and no
# tags of the partition, the topic and the request.
_OFFSET_AND_EPOCH = Struct(">qi")
_PLAIN_END = b"\1\0\0\0"
_PLAIN_BYTES = _OFFSET_AND_EPOCH.size + len(_PLAIN_END)
# The same with what is before it: how many partitions, and the index of the one.
_ONE_PARTITION_BYTES = 1 + 4 + _PLAIN_BYTES
# Size, correlation id, no tags, no throttling.
_ANSWER_HEAD = Struct(">iiBi")
# Partition, error code, no tags.
_PARTITION_ANSWER = Struct(">ihB")
# How many, and of what size: strangers must not fill the memory.
_REMEMBERED_MAX = 1024
_REMEMBERED_BYTES_MAX = 512
_new_tuple = tuple.__new__


class PartitionCommit(NamedTuple):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class NamedTopicCommits(NamedTuple):
    name: str
    partitions: list[PartitionCommit]


class TopicCommits(NamedTuple):
    """By the topic's id; None for the id that is all zeros."""

    topic_id: UUID | None
    partitions: list[PartitionCommit]


class CommitRequest(NamedTuple):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[NamedTopicCommits | TopicCommits]


# By version and all bytes of the request but the last `_PLAIN_BYTES`: a request that began with them.
_remembered: dict[tuple[int, bytes], CommitRequest] = {}


def read_commit_request(version: int, frame: memoryview, position: int) -> CommitRequest:
    """Raises Malformed. Bytes behind the request are ignored, as Kafka does."""
    data = bytes(frame[position:])
    head = (version, data[:-_PLAIN_BYTES])
    like = _remembered.get(head)
    if like is not None and data.endswith(_PLAIN_END):
        return _with_offset(like, *_OFFSET_AND_EPOCH.unpack_from(data, len(data) - _PLAIN_BYTES))
    try:
        request, partitions_start = _read(version, data)
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise Malformed(f"OffsetCommit: the request is cut short or not text: {problem}") from problem
    # One partition in so few bytes leaves no room for metadata, tags, or anything behind the request.
    is_short = len(data) - partitions_start == _ONE_PARTITION_BYTES and len(data) <= _REMEMBERED_BYTES_MAX
    if is_short and data.endswith(_PLAIN_END) and [len(topic.partitions) for topic in request.topics] == [1]:
        if len(_remembered) >= _REMEMBERED_MAX:
            _remembered.clear()
        _remembered[head] = _with_offset(request, 0, 0)
    return request


def alike_bytes(version: int, frame: memoryview, position: int) -> int | None:
    """How much of a request's frame others for the same partition by the same member have in common with it, but for
    the correlation id; None where there may be more to it than one partition and its offset."""
    is_remembered = (version, bytes(frame[position:-_PLAIN_BYTES])) in _remembered
    return len(frame) - _PLAIN_BYTES if is_remembered and bytes(frame[-len(_PLAIN_END) :]) == _PLAIN_END else None


def add_alike(request: CommitRequest, frame: memoryview, frame_bytes: int) -> bool:
    """Takes what a frame asks for that has these bytes in common with that of `request` into the request, which is for
    one partition; False if it is not quite alike."""
    if len(frame) != frame_bytes or bytes(frame[-len(_PLAIN_END) :]) != _PLAIN_END:
        return False
    offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(frame, frame_bytes - _PLAIN_BYTES)
    partitions = request.topics[0].partitions
    partitions.append(_new_tuple(PartitionCommit, (partitions[0].partition_index, offset, leader_epoch, "")))
    return True


def _with_offset(like: CommitRequest, offset: int, leader_epoch: int) -> CommitRequest:
    topic = like.topics[0]
    commit = _new_tuple(PartitionCommit, (topic.partitions[0].partition_index, offset, leader_epoch, ""))
    topics = [_new_tuple(type(topic), (topic[0], [commit]))]
    return _new_tuple(CommitRequest, (*like[:4], topics))


def _read(version: int, data: bytes) -> tuple[CommitRequest, int]:
    """(request, where the partitions of its last topic start)"""
    group_id, position = _read_text(data, 0)
    (generation,) = _INT32.unpack_from(data, position)
    member_id, position = _read_text(data, position + 4)
    instance_id = None
    if data[position]:
        instance_id, position = _read_text(data, position)
    else:
        position += 1
    topic_count, position = _read_count(data, position)
    topics: list[NamedTopicCommits | TopicCommits] = []
    partitions_start = position
    for _ in range(topic_count):
        if version < TOPIC_IDS_FROM:
            name, partitions_start = _read_text(data, position)
            partitions, position = _read_partitions(data, partitions_start)
            topics.append(NamedTopicCommits(name, partitions))
        else:
            raw_id = data[position : position + _ID_BYTES]
            partitions_start = position + _ID_BYTES
            partitions, position = _read_partitions(data, partitions_start)
            topics.append(TopicCommits(None if raw_id == _NO_ID else UUID(bytes=raw_id), partitions))
        position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
    if data[position]:
        skip_tagged_fields(data, position)
    return CommitRequest(group_id, generation, member_id, instance_id, topics), partitions_start


def _read_partitions(data: bytes, position: int) -> tuple[list[PartitionCommit], int]:
    # Hot: once for each offset. Short metadata and no tags are one byte each; that is nearly all of them.
    count, position = _read_count(data, position)
    unpack = _PARTITION.unpack_from
    partitions = []
    for _ in range(count):
        index, offset, leader_epoch, length = unpack(data, position)
        metadata: str | None = ""
        if length == 1:
            position += 17
        elif length:
            metadata, position = _read_text(data, position + 16)
        else:
            metadata = None
            position += 17
        partitions.append(_new_tuple(PartitionCommit, (index, offset, leader_epoch, metadata)))
        position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
    return partitions, position


def _read_count(data: bytes, position: int) -> tuple[int, int]:
    count, position = read_uvarint(data, position)
    # Every item takes a byte at least.
    if not 0 < count <= len(data) - position + 1:
        raise Malformed(f"OffsetCommit: a list of {count - 1} does not fit into {len(data) - position} bytes")
    return count - 1, position


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    length = data[position]
    position += 1
    if length > 0x7F:
        length, position = read_uvarint(data, position - 1)
    end = position + length - 1
    if not 0 < length <= _TEXT_BYTES_MAX + 1 or end > len(data):
        raise Malformed(f"OffsetCommit: a text of {length - 1} bytes where {len(data) - position} are left")
    return data[position:end].decode(), end


def write_commit_responses(version: int, correlation_ids: Sequence[int], topic: Any) -> bytes:
    """The frames that answer requests which were taken together, a partition of the topic's for each."""
    key = topic.name if version < TOPIC_IDS_FROM else topic.topic_id
    pairs = zip(correlation_ids, topic.partitions, strict=True)
    return b"".join([_response_for_one(correlation_id, key, answer) for correlation_id, answer in pairs])


def _response_for_one(correlation_id: int, topic: str | UUID | None, answer: Any) -> bytes:
    # Topics that are there have short names; of others there is no end.
    body_of = _body_for_one if answer.error_code == 0 else _body_for_one.__wrapped__
    body = body_of(topic, answer.partition_index, answer.error_code)
    return _ANSWER_HEAD.pack(len(body) + _ANSWER_HEAD.size - 4, correlation_id, 0, 0) + body


def write_commit_response(version: int, correlation_id: int, topics: Sequence[Any]) -> bytes:
    """A whole frame; of each topic name or id, and of each partition index and error code."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return write_commit_responses(version, [correlation_id], topics[0])
    parts = [uvarint(len(topics) + 1)]
    for topic in topics:
        parts.append(_topic_head(topic.name if version < TOPIC_IDS_FROM else topic.topic_id, len(topic.partitions)))
        parts += [_PARTITION_ANSWER.pack(answer.partition_index, answer.error_code, 0) for answer in topic.partitions]
        parts.append(b"\0")
    parts.append(b"\0")
    body = b"".join(parts)
    return _ANSWER_HEAD.pack(len(body) + _ANSWER_HEAD.size - 4, correlation_id, 0, 0) + body


@lru_cache(maxsize=_REMEMBERED_MAX)
def _body_for_one(topic: str | UUID | None, index: int, error_code: int) -> bytes:
    """From the list of topics on."""
    return b"".join((b"\2", _topic_head(topic, 1), _PARTITION_ANSWER.pack(index, error_code, 0), b"\0\0"))


def _topic_head(topic: str | UUID | None, partition_count: int) -> bytes:
    """Of a topic by its name, or by its id, which may be all zeros."""
    if isinstance(topic, str):
        name = topic.encode()
        head = uvarint(len(name) + 1) + name
    else:
        head = _NO_ID if topic is None else topic.bytes
    return head + uvarint(partition_count + 1)
