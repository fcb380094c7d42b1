"""Produce (key 0), versions 3-13, by hand: one pass, no object per record, the batches left in place.

A request is read into positions in the frame, not into copies: `records` of a partition is a memoryview of the
receive buffer, valid only until the handler returns.

Topics go by name up to version 12 and by id from 13 on; both are kept as the bytes on the wire, which is what the
broker's tables are keyed by.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import NamedTuple, final

from penstock.protocol.messages import Malformed
from penstock.protocol.primitives import made_text, read_uvarint, skip_tagged_fields, uvarint

VERSION_MIN = 3
VERSION_MAX = 13
FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13

_ACKS_AND_TIMEOUT = Struct(">hi")
_COUNT = Struct(">i")
# No transactional id, acks, timeout, one more than the number of topics; one more than that of partitions, the first.
_OPENING = Struct(">BhiB")
_COUNT_AND_INDEX = Struct(">Bi")
# The index of a partition, and the first two bytes of its records' size: behind one of a single byte comes another one.
_INDEX_AND_UVARINT = Struct(">iBB")
# Shorter ones have no whole batch for one partition, and no business on the fast path.
_SINGLE_REQUEST_BYTES_MIN = 64
_LENGTH = Struct(">h")
_INDEX_AND_SIZE = Struct(">ii")
_FRAME = Struct(">ii")
# What is taken together is small: of large requests there is little to save.
_MORE_MAX = 64
_MORE_BYTES_MAX = 64 * 1024
_new_tuple = tuple.__new__


# Partition and its records, None where the client sent null.
PartitionData = tuple[int, memoryview | None]
# Name in UTF-8, or the 16 bytes of its id.
TopicData = tuple[bytes, list[PartitionData]]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicData]


class SingleBatch(NamedTuple):
    """A request with one batch, for one partition."""

    acks: int
    timeout_ms: int
    topic: bytes
    partition: int
    records: memoryview
    # Where the size of the records stands: what comes before it is the same in all requests for this partition.
    size_position: int


class RecordError(NamedTuple):
    batch_index: int
    message: str | None


class PartitionAnswer(NamedTuple):
    partition: int
    error_code: int
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None


@final
class Placed:
    """Batches that went one after the other into the log of one partition, all of them as they are: what producers are
    answered most, without an object for each."""

    __slots__ = ("base_offsets", "log_start_offset", "partition")

    def __init__(self, partition: int, log_start_offset: int, base_offsets: Sequence[int]) -> None:
        self.partition = partition
        self.log_start_offset = log_start_offset
        self.base_offsets = base_offsets


# To batches of one partition.
PartitionAnswers = Placed | Sequence[PartitionAnswer]


def share_of(answers: PartitionAnswers, start: int, end: int) -> PartitionAnswers:
    """Hot: those to the batches from `start` to `end`."""
    if not isinstance(answers, Placed):
        return answers[start:end]
    partition, log_start_offset, base_offsets = answers.partition, answers.log_start_offset, answers.base_offsets
    if end - start > 1:
        return Placed(partition, log_start_offset, base_offsets[start:end])
    return (_new_tuple(PartitionAnswer, (partition, 0, base_offsets[start], -1, log_start_offset, (), None)),)


def spelt_out(answers: PartitionAnswers) -> Sequence[PartitionAnswer]:
    if not isinstance(answers, Placed):
        return answers
    partition, log_start_offset = answers.partition, answers.log_start_offset
    return [PartitionAnswer(partition, 0, base_offset, -1, log_start_offset) for base_offset in answers.base_offsets]


TopicAnswer = tuple[bytes, Sequence[PartitionAnswer]]


def decode_produce_request(version: int, frame: memoryview, position: int) -> ProduceRequest:
    """Raises Malformed. Bytes behind the request are ignored, as Kafka does."""
    try:
        if version >= FLEXIBLE_FROM:
            request, position = _read_flexible(version, frame, position)
        else:
            request, position = _read_plain(version, frame, position)
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise Malformed(f"Produce: the request is cut short or not text: {problem}") from problem
    if position > len(frame):
        raise Malformed("Produce: a string is longer than the frame")
    return request


def _read_plain(version: int, frame: memoryview, position: int) -> tuple[ProduceRequest, int]:
    end = len(frame)
    (length,) = _LENGTH.unpack_from(frame, position)
    position += 2
    transactional_id = None
    if length >= 0:
        transactional_id = str(frame[position : position + length], "utf-8")
        position += length
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    (topic_count,) = _COUNT.unpack_from(frame, position + 6)
    position += 10
    topics: list[TopicData] = []
    for _ in range(_checked_count(topic_count, end - position)):
        (length,) = _LENGTH.unpack_from(frame, position)
        position += 2
        if length < 0:
            raise Malformed("Produce: a topic has no name")
        name = bytes(frame[position : position + length])
        if not name.isascii():
            name = made_text(name)
        position += length
        (partition_count,) = _COUNT.unpack_from(frame, position)
        position += 4
        partitions: list[PartitionData] = []
        for _ in range(_checked_count(partition_count, end - position)):
            index, size = _INDEX_AND_SIZE.unpack_from(frame, position)
            position += 8
            if size < 0:
                partitions.append((index, None))
                continue
            if position + size > end:
                raise Malformed("Produce: records are longer than the frame")
            partitions.append((index, frame[position : position + size]))
            position += size
        topics.append((name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def read_single(version: int, frame: memoryview, position: int) -> SingleBatch | None:
    """Hot: the request that producers send most, for one partition and with no transaction and no tags. None for any
    other, and for what `decode_produce_request` will find to be malformed."""
    if version < FLEXIBLE_FROM or len(frame) - position < _SINGLE_REQUEST_BYTES_MIN:
        return None
    transaction, acks, timeout_ms, topic_count = _OPENING.unpack_from(frame, position)
    if transaction or topic_count != 2:
        return None
    position += 8
    if version >= TOPIC_IDS_FROM:
        topic_end = position + 16
    else:
        length = frame[position]
        position += 1
        topic_end = position + length - 1
        if not 0 < length < 0x80 or topic_end + 10 > len(frame):
            return None
    partition_count, partition = _COUNT_AND_INDEX.unpack_from(frame, topic_end)
    records = read_single_records(frame, topic_end + 5) if partition_count == 2 else None
    if records is None:
        return None
    topic = bytes(frame[position:topic_end])
    if version < TOPIC_IDS_FROM and not topic.isascii():
        return None
    return _new_tuple(SingleBatch, (acks, timeout_ms, topic, partition, records, topic_end + 5))


def read_single_records(frame: memoryview, size_position: int) -> memoryview | None:
    """Hot: the records of a request that is like one which `read_single` knew, up to their size. None if the rest is
    not, or cut short."""
    try:
        size, start = frame[size_position], size_position + 1
        if size > 0x7F:
            high, start = frame[start], start + 1
            # Two bytes are the rule.
            size, start = (size & 0x7F | high << 7, start) if high < 0x80 else read_uvarint(frame, size_position)
    except (IndexError, Malformed):
        return None
    end = start + size - 1
    if not size or bytes(frame[end : end + 3]) != b"\0\0\0":
        return None
    return frame[start:end]


class Shape(NamedTuple):
    """What requests with one batch for a partition have in common: all but their size, correlation id and records."""

    version: int
    acks: int
    timeout_ms: int
    topic: bytes
    partition: int
    # Frame size, API and version, correlation id, what comes before the size of the records, the two bytes that this
    # size is in most.
    layout: Struct
    api: bytes
    rest: bytes


def shape_of(version: int, frame: memoryview, single: SingleBatch) -> Shape:
    """Of a frame that `read_single` knew."""
    rest = bytes(frame[8 : single.size_position])
    return Shape(version, *single[:4], _single_layout(len(rest)), bytes(frame[:4]), rest)


@lru_cache(256)
def _single_layout(rest_bytes: int) -> Struct:
    return Struct(f">i4si{rest_bytes}sBB")


def read_singles(
    buffer: bytearray, start: int, end: int, shape: Shape, ids: list[int], batches: list[memoryview]
) -> int:
    """Hot: whole requests of this shape that stand in a receive buffer from `start` on. Adds the correlation id and the
    records of each, and returns where the first other one begins."""
    _, _, _, _, _, layout, api, rest = shape
    unpack, head_bytes = layout.unpack_from, layout.size
    view, starts_with = memoryview(buffer), buffer.startswith
    end = min(end, start + _MORE_BYTES_MAX)
    for _ in range(_MORE_MAX):
        if end - start < head_bytes:
            break
        frame_bytes, its_api, correlation_id, its_rest, length, high = unpack(buffer, start)
        frame_end = start + 4 + frame_bytes
        if its_rest != rest or its_api != api or frame_end > end:
            break
        # The records' size is by one too large. Those that need more than two bytes for it have no business here.
        at = start + head_bytes
        if length > 0x7F:
            length += (high << 7) - 0x80
        else:
            at -= 1
            high = 0
        records_end = at + length - 1
        if records_end + 3 != frame_end or high > 0x7F or not starts_with(b"\0\0\0", records_end):
            break
        ids.append(correlation_id)
        batches.append(view[at:records_end])
        start = frame_end
    return start


def _read_flexible(version: int, frame: memoryview, position: int) -> tuple[ProduceRequest, int]:
    # Warm. Short lengths and empty tag sections are one byte each and are read in place; that is most of them.
    end = len(frame)
    transactional_id = None
    length = frame[position]
    position += 1
    if length:
        length, position = read_uvarint(frame, position - 1)
        transactional_id = str(frame[position : position + length - 1], "utf-8")
        position += length - 1
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    topic_count = frame[position + 6]
    position += 7
    if topic_count > 0x7F:
        topic_count, position = read_uvarint(frame, position - 1)
    topics: list[TopicData] = []
    for _ in range(_checked_count(topic_count - 1, end - position)):
        if version >= TOPIC_IDS_FROM:
            topic_end = position + 16
        else:
            length, position = read_uvarint(frame, position)
            if not length:
                raise Malformed("Produce: a topic has no name")
            topic_end = position + length - 1
        topic = bytes(frame[position:topic_end])
        if version < TOPIC_IDS_FROM and not topic.isascii():
            topic = made_text(topic)
        partition_count = frame[topic_end]
        position = topic_end + 1
        if partition_count > 0x7F:
            partition_count, position = read_uvarint(frame, topic_end)
        partitions: list[PartitionData] = []
        for _ in range(_checked_count(partition_count - 1, end - position)):
            index, size, high = _INDEX_AND_UVARINT.unpack_from(frame, position)
            if size > 0x7F and high < 0x80:
                # Two bytes are the rule: 127 B to 16 KB.
                size += (high << 7) - 0x80
                position += 6
            else:
                size, position = read_uvarint(frame, position + 4)
            records = None
            if size:
                records_end = position + size - 1
                if records_end > end:
                    raise Malformed("Produce: records are longer than the frame")
                records = frame[position:records_end]
                position = records_end
            partitions.append((index, records))
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
        topics.append((topic, partitions))
        position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _checked_count(count: int, bytes_left: int) -> int:
    """A collection's length, refused before anything is made of it if the bytes cannot hold as many items."""
    if count < 0 or count > bytes_left:
        raise Malformed(f"Produce: a list of {count} does not fit into {bytes_left} bytes")
    return count


# index, error code, base offset, append time, then log start offset from version 5 on.
_ANSWER = Struct(">ihqq")
_ANSWER_5 = Struct(">ihqqq")
# The same, no record errors, no message, no tags.
_GOOD_ANSWER = Struct(">ihqqqBBB")


def encode_produce_response(version: int, correlation_id: int, topics: Sequence[TopicAnswer]) -> bytes | bytearray:
    """A whole frame. Leader hints (tagged, 10+) are left out: clients then ask for metadata."""
    if version >= FLEXIBLE_FROM:
        if len(topics) == 1 and len(topics[0][1]) == 1 and not topics[0][1][0].error_code:
            return write_singles(version, [correlation_id], *topics[0])
        return _write_flexible(version, correlation_id, topics)
    out = bytearray(8)
    out += _COUNT.pack(len(topics))
    for topic, partitions in topics:
        out += _LENGTH.pack(len(topic))
        out += topic
        out += _COUNT.pack(len(partitions))
        for answer in partitions:
            if version < 5:
                out += _ANSWER.pack(answer.partition, answer.error_code, answer.base_offset, answer.append_time_ms)
                continue
            out += _ANSWER_5.pack(*answer[:5])
            if version >= 8:
                out += _COUNT.pack(len(answer.record_errors))
                for record_error in answer.record_errors:
                    out += _COUNT.pack(record_error.batch_index)
                    out += _nullable_string(record_error.message)
                out += _nullable_string(answer.error_message)
    out += b"\0\0\0\0"
    _FRAME.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


_INDEX_AND_ERROR = Struct(">ih")
# Append time, log start offset, no record errors, no message, no tags twice, no throttling, no
# tags.
_ANSWER_TAIL = Struct(">qqBBBBiB")


@lru_cache(4096)
def _single_answer(version: int, topic: bytes, partition: int) -> tuple[Struct, bytes]:
    """Layout and head of the answers for a partition."""
    # No tags, one topic, one partition, no error: counts are by one too large.
    named = topic if version >= TOPIC_IDS_FROM else uvarint(len(topic) + 1) + topic
    head = b"\0\2%b\2%b" % (named, _INDEX_AND_ERROR.pack(partition, 0))
    return Struct(f">ii{len(head)}sq{_ANSWER_TAIL.size}s"), head


def write_singles(version: int, correlation_ids: Sequence[int], topic: bytes, answers: PartitionAnswers) -> bytes:
    """Hot: the answers to `read_single`'s requests for a partition, one after the other."""
    if isinstance(answers, Placed):
        partition, append_time_ms = answers.partition, -1
        log_start_offset, base_offsets = answers.log_start_offset, answers.base_offsets
    else:
        partition, _, _, append_time_ms, log_start_offset, _, _ = answers[0]
        if [answer for answer in answers if answer[1] or answer[3] != append_time_ms]:
            pairs = zip(correlation_ids, answers, strict=True)
            return b"".join([_write_flexible(version, each, [(topic, [answer])]) for each, answer in pairs])
        base_offsets = [answer[2] for answer in answers]
    layout, head = _single_answer(version, topic, partition)
    tail = _ANSWER_TAIL.pack(append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0)
    pack, size = layout.pack, layout.size - 4
    placed = zip(correlation_ids, base_offsets, strict=True)
    return b"".join([pack(size, each, head, base_offset, tail) for each, base_offset in placed])


def _write_flexible(version: int, correlation_id: int, topics: Sequence[TopicAnswer]) -> bytearray:
    out = bytearray(9)
    out += uvarint(len(topics) + 1)
    for topic, partitions in topics:
        if version < TOPIC_IDS_FROM:
            out += uvarint(len(topic) + 1)
        out += topic
        out += uvarint(len(partitions) + 1)
        for answer in partitions:
            index, error_code, base_offset, append_time_ms, log_start_offset, _, _ = answer
            if not error_code:
                out += _GOOD_ANSWER.pack(index, 0, base_offset, append_time_ms, log_start_offset, 1, 0, 0)
                continue
            out += _ANSWER_5.pack(*answer[:5])
            out += uvarint(len(answer.record_errors) + 1)
            for record_error in answer.record_errors:
                out += _COUNT.pack(record_error.batch_index)
                out += _compact_nullable_string(record_error.message)
                out += b"\0"
            out += _compact_nullable_string(answer.error_message)
            out += b"\0"
        out += b"\0"
    out += b"\0\0\0\0\0"  # throttle time, no tags
    _FRAME.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


def _nullable_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


def _compact_nullable_string(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    data = value.encode()
    return uvarint(len(data) + 1) + data
