"""OffsetCommit (key 8), versions 8-10, by hand: groups commit all the time, and reading and writing by the schema took
longer than the commit itself. Older versions, which only old clients speak, go by the schema.

Topics go by name up to version 9 and by id from 10 on. What is read has the fields that the schema's request has.
"""

from collections.abc import Sequence
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
# Size, correlation id, no tags, no throttling.
_ANSWER_HEAD = Struct(">iiBi")
# Partition, error code, no tags.
_PARTITION_ANSWER = Struct(">ihB")
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


def read_commit_request(version: int, frame: memoryview, position: int) -> CommitRequest:
    """Raises Malformed. Bytes behind the request are ignored, as Kafka does."""
    try:
        return _read(version, bytes(frame), position)
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise Malformed(f"OffsetCommit: the request is cut short or not text: {problem}") from problem


def _read(version: int, data: bytes, position: int) -> CommitRequest:
    group_id, position = _read_text(data, position)
    (generation,) = _INT32.unpack_from(data, position)
    member_id, position = _read_text(data, position + 4)
    instance_id = None
    if data[position]:
        instance_id, position = _read_text(data, position)
    else:
        position += 1
    topic_count, position = _read_count(data, position)
    topics: list[NamedTopicCommits | TopicCommits] = []
    for _ in range(topic_count):
        if version < TOPIC_IDS_FROM:
            name, position = _read_text(data, position)
            partitions, position = _read_partitions(data, position)
            topics.append(NamedTopicCommits(name, partitions))
        else:
            raw_id = data[position : position + _ID_BYTES]
            partitions, position = _read_partitions(data, position + _ID_BYTES)
            topics.append(TopicCommits(None if raw_id == _NO_ID else UUID(bytes=raw_id), partitions))
        position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
    if data[position]:
        skip_tagged_fields(data, position)
    return CommitRequest(group_id, generation, member_id, instance_id, topics)


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


def write_commit_response(version: int, correlation_id: int, topics: Sequence[Any]) -> bytes:
    """A whole frame; of each topic name or id, and of each partition index and error code."""
    parts = [b"", uvarint(len(topics) + 1)]
    pack = _PARTITION_ANSWER.pack
    for topic in topics:
        if version < TOPIC_IDS_FROM:
            name = topic.name.encode()
            parts.append(uvarint(len(name) + 1))
            parts.append(name)
        else:
            parts.append(_NO_ID if topic.topic_id is None else topic.topic_id.bytes)
        parts.append(uvarint(len(topic.partitions) + 1))
        for answer in topic.partitions:
            parts.append(pack(answer.partition_index, answer.error_code, 0))
        parts.append(b"\0")
    parts.append(b"\0")
    parts[0] = _ANSWER_HEAD.pack(sum(map(len, parts)) + _ANSWER_HEAD.size - 4, correlation_id, 0, 0)
    return b"".join(parts)
