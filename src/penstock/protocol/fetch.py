"""Fetch (key 1), versions 4-18, by hand.

The answer is a list of parts: bytes, and slices of segment files that the connection sends with `sendfile`. So records
never pass through Python. Topics are kept as the bytes on the wire: the name up to version 12, the id from 13 on.
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from penstock.base.ports import Bytes, Slice
from penstock.protocol.messages import Malformed
from penstock.protocol.primitives import made_text, read_uvarint, skip_tagged_fields, uvarint

VERSION_MIN = 4
VERSION_MAX = 18
SESSIONS_FROM = 7
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
_REPLICA_STATE_FROM = 15
_REPLICA_STATE_TAG = 1

CONSUMER_REPLICA_ID = -1

_COUNT = Struct(">i")
_LENGTH = Struct(">h")
_REPLICA_STATE = Struct(">iq")
_LIMITS = Struct(">iiib")  # wait, minimum, maximum, isolation
_SESSION = Struct(">ii")
# By version: partition, [leader epoch 9+], offset, [last epoch 12+], [log start 5+], maximum bytes.
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_FRAME = Struct(">ii")


class FetchPartition(NamedTuple):
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    bytes_max: int


class FetchRequest(NamedTuple):
    replica_id: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, list[FetchPartition]]]
    forgotten: list[tuple[bytes, list[int]]]
    rack_id: str
    # Of the replica, as the broker that it is on; -1 from a consumer and from before version 15.
    replica_epoch: int = -1


class PartitionAnswer(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    # (producer id, first offset); None to a reader of uncommitted data.
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: Slice | None = None
    # (epoch, end offset) where the follower's log parted from ours, KIP-595.
    diverging_epoch: tuple[int, int] | None = None


Part = Bytes | Slice


# Limits, session, one more than the number of topics; id of a topic, one more than that of its partitions; a partition
# with the number of its tags; nothing forgotten, no rack, no tags.
_OPENING = Struct(">iiibiiB")
_TOPIC = Struct(">16sB")
_TAGGED_PARTITION = Struct(">iiqiqiB")
_NOTHING_MORE = b"\1\1\0"
_new_tuple = tuple.__new__


class _Reader:
    """A cursor over one request. Fetch requests are small and few beside the bytes they cause: this may be slower."""

    __slots__ = ("data", "flexible", "position")

    def __init__(self, data: memoryview, position: int, flexible: bool) -> None:
        self.data = data
        self.position = position
        self.flexible = flexible

    def fixed(self, packer: Struct) -> tuple[int, ...]:
        values = packer.unpack_from(self.data, self.position)
        self.position += packer.size
        return values

    def count(self) -> int:
        """The length of an array; null counts as empty, and what the bytes cannot hold is refused."""
        if self.flexible:
            count, self.position = read_uvarint(self.data, self.position)
            count -= 1
        else:
            (count,) = self.fixed(_COUNT)
        if count > len(self.data) - self.position:
            raise Malformed(f"Fetch: a list of {count} does not fit into the frame")
        return count

    def raw_string(self) -> bytes:
        if self.flexible:
            length, self.position = read_uvarint(self.data, self.position)
            length -= 1
        else:
            (length,) = self.fixed(_LENGTH)
        name = self.take(length)
        return name if name.isascii() else made_text(name)

    def take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise Malformed("Fetch: a string or id is longer than the frame")
        data = bytes(self.data[self.position : end])
        self.position = end
        return data

    def skip_tags(self) -> None:
        if self.flexible:
            self.position = skip_tagged_fields(self.data, self.position)


def decode_fetch_request(version: int, frame: memoryview, position: int) -> FetchRequest:
    """Raises Malformed. Bytes behind the request are ignored, as Kafka does."""
    if version >= _REPLICA_STATE_FROM and (usual := _read_usual(frame, position)) is not None:
        return usual
    reader = _Reader(frame, position, version >= FLEXIBLE_FROM)
    try:
        return _read_request(version, reader)
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise Malformed(f"Fetch: the request is cut short or not text: {problem}") from problem


def _read_usual(frame: memoryview, position: int) -> FetchRequest | None:
    """Hot: what consumers send most, without tags, forgotten topics or a rack. None for any other, and for what will be
    found to be malformed."""
    try:
        wait_ms_max, bytes_min, bytes_max, isolation, session_id, session_epoch, topic_count = _OPENING.unpack_from(
            frame, position
        )
        position += _OPENING.size
        topics = []
        for _ in range(topic_count - 1):
            topic, partition_count = _TOPIC.unpack_from(frame, position)
            position += _TOPIC.size
            partitions = []
            for _ in range(partition_count - 1):
                *fields, tags = _TAGGED_PARTITION.unpack_from(frame, position)
                if tags:
                    return None
                partitions.append(_new_tuple(FetchPartition, fields))
                position += _TAGGED_PARTITION.size
            # Counts of more than one byte, and null.
            if not 0 < partition_count < 0x80 or frame[position]:
                return None
            topics.append((topic, partitions))
            position += 1
    except (error, IndexError):
        return None
    if not 0 < topic_count < 0x80 or frame[position : position + 3] != _NOTHING_MORE:
        return None
    return _new_tuple(
        FetchRequest,
        (
            CONSUMER_REPLICA_ID,
            wait_ms_max,
            bytes_min,
            bytes_max,
            isolation == 1,
            session_id,
            session_epoch,
            topics,
            [],
            "",
            -1,
        ),
    )


def _read_request(version: int, reader: _Reader) -> FetchRequest:
    replica_id, replica_epoch = CONSUMER_REPLICA_ID, -1
    if version < _REPLICA_STATE_FROM:
        (replica_id,) = reader.fixed(_COUNT)
    wait_ms_max, bytes_min, bytes_max, isolation = reader.fixed(_LIMITS)
    session_id, session_epoch = reader.fixed(_SESSION) if version >= SESSIONS_FROM else (0, -1)
    topics = []
    for _ in range(reader.count()):
        topic = reader.take(16) if version >= TOPIC_IDS_FROM else reader.raw_string()
        partitions = [_read_partition(version, reader) for _ in range(reader.count())]
        reader.skip_tags()
        topics.append((topic, partitions))
    forgotten = []
    if version >= SESSIONS_FROM:
        for _ in range(reader.count()):
            topic = reader.take(16) if version >= TOPIC_IDS_FROM else reader.raw_string()
            forgotten.append((topic, [reader.fixed(_COUNT)[0] for _ in range(reader.count())]))
            reader.skip_tags()
    rack_id = str(reader.raw_string(), "utf-8") if version >= 11 else ""
    if version >= _REPLICA_STATE_FROM:
        replica_id, replica_epoch = _read_replica_state(reader)
    else:
        reader.skip_tags()
    return FetchRequest(
        replica_id,
        wait_ms_max,
        bytes_min,
        bytes_max,
        isolation == 1,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        replica_epoch,
    )


def _read_partition(version: int, reader: _Reader) -> FetchPartition:
    if version >= 12:
        partition = FetchPartition._make(reader.fixed(_PARTITION_12))
    elif version >= 9:
        index, epoch, offset, log_start, bytes_max = reader.fixed(_PARTITION_9)
        partition = FetchPartition(index, epoch, offset, -1, log_start, bytes_max)
    elif version >= 5:
        index, offset, log_start, bytes_max = reader.fixed(_PARTITION_5)
        partition = FetchPartition(index, -1, offset, -1, log_start, bytes_max)
    else:
        index, offset, bytes_max = reader.fixed(_PARTITION_4)
        partition = FetchPartition(index, -1, offset, -1, -1, bytes_max)
    reader.skip_tags()
    return partition


def _read_replica_state(reader: _Reader) -> tuple[int, int]:
    """The replica's id and epoch, in a tagged field from version 15 on; the other tags do not matter here."""
    start = reader.position
    reader.skip_tags()
    replica_id, replica_epoch = CONSUMER_REPLICA_ID, -1
    count, position = read_uvarint(reader.data, start)
    for _ in range(count):
        tag, position = read_uvarint(reader.data, position)
        size, position = read_uvarint(reader.data, position)
        if tag == _REPLICA_STATE_TAG:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(reader.data, position)
        position += size
    return replica_id, replica_epoch


# index, error, high watermark, last stable offset, then log start offset from version 5 on.
_ANSWER_4 = Struct(">ihqq")
_ANSWER_5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_HEAD = Struct(">ihi")  # throttle time, error, session
_DIVERGING = Struct(">iq")


def encode_fetch_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[bytes, Sequence[PartitionAnswer]]],
) -> list[Part]:
    """A whole frame, in parts. The caller sends them in order and reads file slices only when it sends them."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(9 if flexible else 8)
    out += _HEAD.pack(0, error_code, session_id) if version >= SESSIONS_FROM else b"\0\0\0\0"
    parts: list[Part] = [out]
    size = -4
    first = out
    out += uvarint(len(topics) + 1) if flexible else _COUNT.pack(len(topics))
    for topic, partitions in topics:
        if version < TOPIC_IDS_FROM:
            out += uvarint(len(topic) + 1) if flexible else _LENGTH.pack(len(topic))
        out += topic
        out += uvarint(len(partitions) + 1) if flexible else _COUNT.pack(len(partitions))
        for answer in partitions:
            _write_partition(version, out, answer)
            records = answer.records
            if records is not None:
                size += len(out) + records.length
                parts.append(records)
                out = bytearray()
                parts.append(out)
            if flexible:
                _write_partition_tags(out, answer)
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    size += len(out)
    _FRAME.pack_into(first, 0, size, correlation_id)
    return parts


def _write_partition(version: int, out: bytearray, answer: PartitionAnswer) -> None:
    """Everything up to the records, their length included."""
    if version >= 5:
        out += _ANSWER_5.pack(*answer[:5])
    else:
        out += _ANSWER_4.pack(*answer[:4])
    flexible = version >= FLEXIBLE_FROM
    aborted = answer.aborted
    if aborted is None:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        out += uvarint(len(aborted) + 1) if flexible else _COUNT.pack(len(aborted))
        for transaction in aborted:
            out += _ABORTED.pack(*transaction)
            if flexible:
                out += b"\0"
    if version >= 11:
        out += _COUNT.pack(answer.preferred_read_replica)
    # No records are written as an empty list, as Kafka does: several clients take null for a broken answer.
    length = 0 if answer.records is None else answer.records.length
    out += uvarint(length + 1) if flexible else _COUNT.pack(length)


def _write_partition_tags(out: bytearray, answer: PartitionAnswer) -> None:
    if answer.diverging_epoch is None:
        out += b"\0"
    else:
        out += b"\1\0"
        out += uvarint(_DIVERGING.size + 1)
        out += _DIVERGING.pack(*answer.diverging_epoch)
        out += b"\0"
