"""What a batch from a producer must be before it is appended, in the order and with the error codes of Apache Kafka.

Only the header and the CRC are looked at. The records inside are opened in the two cases that need them: a compacted
topic, whose records must have keys, and a timestamp bound that the header alone cannot decide.
"""

import struct
from collections.abc import Sequence
from struct import Struct
from typing import cast

from crc32c import crc32c

from penstock.base.errors import ErrorCode
from penstock.log.config import LogConfig
from penstock.log.log import Run
from penstock.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from penstock.protocol.compression import ZSTD, CorruptCompression, UnpacksTooLarge, decompress
from penstock.protocol.produce import RecordError
from penstock.protocol.records import CorruptRecords, Record, unpacked_records

_ZSTD_FROM_VERSION = 7
_UNBOUNDED_MS = 2**63 - 1
# The least that follows the length field of any batch there ever was.
_LEGACY_BATCH_LENGTH_MIN = 14
# How often as large as the topic's limit for packed batches a batch may unpack to, where it must be opened: against
# bombs. Text packs to a tenth.
_UNPACKED_RATIO_MAX = 16


class Rejected(Exception):
    """This batch is not appended. `record_errors` name the records that are to blame, by index in the batch."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors


class NotOneBatch(Rejected):
    """What came is not one batch; Kafka says so before it looks at the log."""


# Codecs that every Produce version may carry: all but zstd.
_PLAIN_CODEC_MAX = ZSTD - 1
# Of a header, what decides whether a batch may be appended where it has no producer id.
_read_fields = Struct(">qi4xbIhi8xqq6xi").unpack_from
_SPECIAL_ATTRIBUTES = LOG_APPEND_TIME | CONTROL | TRANSACTIONAL


def must_open(config: LogConfig) -> bool:
    """Whether the topic's rules are about single records, so that headers alone cannot settle them."""
    return config.is_compacted or config.timestamp_before_max_ms < _UNBOUNDED_MS


def is_plainly_good(data: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Hot: one expression that is true for nearly every batch of a topic that need not be opened. Where it is false,
    the checks below find out whether something is wrong, and what."""
    _, batch_length, _, magic, crc, attributes, last_offset_delta, _, max_timestamp, producer_id, _, _, count = header
    return (
        magic == MAGIC
        and batch_length + PREFIX_BYTES == len(data)
        and attributes & CODEC_MASK <= _PLAIN_CODEC_MAX
        and not attributes & _SPECIAL_ATTRIBUTES
        and header.base_offset == 0
        and count > 0
        and last_offset_delta == count - 1
        and (producer_id < 0 or (header.base_sequence >= 0 and header.producer_epoch >= 0))
        and batch_length < config.max_message_bytes - PREFIX_BYTES
        and batch_length < config.segment_bytes - PREFIX_BYTES
        and max_timestamp <= now_ms + config.timestamp_after_max_ms
        and crc32c(data[CRC_START:]) == crc
    )


def plain_run(sent: Sequence[memoryview | None], config: LogConfig, now_ms: int) -> Run | None:
    """Hot: what the log must know of these, if `is_plainly_good` holds for each."""
    batches = cast(Sequence[memoryview], sent)
    bytes_max = min(config.max_message_bytes, config.segment_bytes)
    timestamp_max = now_ms + config.timestamp_after_max_ms
    lengths: list[int] = []
    counts: list[int] = []
    timestamps: list[int] = []
    has_producer = False
    try:
        for batch in batches:
            offset, length, magic, crc, attributes, delta, timestamp, producer_id, count = _read_fields(batch)
            size = len(batch)
            if (
                offset
                or magic != MAGIC
                or not 0 <= attributes <= _PLAIN_CODEC_MAX
                or count <= 0
                or count - delta != 1
                or size - length != PREFIX_BYTES
                or size >= bytes_max
                or timestamp > timestamp_max
                or crc32c(batch[CRC_START:]) != crc
            ):
                return None
            if producer_id >= 0:
                has_producer = True
            lengths.append(length)
            counts.append(count)
            timestamps.append(timestamp)
    except (struct.error, TypeError):
        # One is too short, or null.
        return None
    size = sum(lengths) + PREFIX_BYTES * len(lengths)
    return Run(batches, size, lengths, counts, timestamps, [*map(read_header, batches)] if has_producer else ())


def firsts_of_producers(headers: Sequence[BatchHeader]) -> list[BatchHeader] | None:
    """The first batch of each producer, if all others continue the sequence of the one before; None if one does not."""
    firsts = []
    followed_by: dict[int, tuple[int, int]] = {}
    for header in headers:
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if producer_id < 0:
            continue
        expected = followed_by.get(producer_id)
        if expected is None:
            if epoch < 0 or sequence < 0:
                return None
            firsts.append(header)
        elif expected != (epoch, sequence):
            return None
        followed_by[producer_id] = epoch, sequence + header.record_count
    return firsts


def refuse_headless(data: memoryview | None) -> NotOneBatch:
    """Why bytes that are too few for a batch header are refused."""
    if (
        data is not None
        and len(data) >= PREFIX_BYTES
        and int.from_bytes(data[8:12], signed=True) < _LEGACY_BATCH_LENGTH_MIN
    ):
        return NotOneBatch(ErrorCode.corrupt_message, "the bytes are no record batch")
    return NotOneBatch(
        ErrorCode.invalid_record, "a Produce request must have exactly one record batch for each partition"
    )


def cut_to_one_batch(data: memoryview, header: BatchHeader, produce_version: int) -> memoryview:
    """The one whole batch of magic 2 that a partition must be sent. What follows it may be the beginning of another one
    that was cut off, which Kafka leaves out too, but nothing whole."""
    if header.magic != MAGIC:
        if 0 <= header.magic < MAGIC:
            raise NotOneBatch(ErrorCode.invalid_record, f"record batches must have magic 2, not {header.magic}")
        raise NotOneBatch(ErrorCode.corrupt_message, f"there is no magic {header.magic}")
    if header.batch_length < HEADER_BYTES - PREFIX_BYTES:
        raise NotOneBatch(ErrorCode.corrupt_message, f"a batch length of {header.batch_length} is too small")
    if header.size > len(data):
        raise NotOneBatch(ErrorCode.invalid_record, "the record batch is cut short")
    rest = data[header.size :]
    if len(rest) >= PREFIX_BYTES:
        rest_length = int.from_bytes(rest[8:12], signed=True)
        if rest_length < _LEGACY_BATCH_LENGTH_MIN or (len(rest) > 16 and rest[16] > MAGIC):
            raise NotOneBatch(ErrorCode.corrupt_message, "what follows the record batch is no batch")
        if rest_length + PREFIX_BYTES <= len(rest):
            raise NotOneBatch(
                ErrorCode.invalid_record, "a Produce request may have only one record batch for each partition"
            )
    if header.codec > ZSTD:
        raise NotOneBatch(ErrorCode.invalid_record, f"there is no compression codec {header.codec}")
    if header.codec == ZSTD and produce_version < _ZSTD_FROM_VERSION:
        raise NotOneBatch(
            ErrorCode.unsupported_compression_type, f"zstd needs Produce version {_ZSTD_FROM_VERSION} or later"
        )
    return data[: header.size]


def check_batch(data: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """A batch of its own against the topic's configuration."""
    size = header.size
    if size > config.max_message_bytes:
        raise Rejected(
            ErrorCode.message_too_large,
            f"the batch has {size} bytes; max.message.bytes of the topic is {config.max_message_bytes}",
        )
    if not crc_is_valid(data, header):
        raise Rejected(ErrorCode.corrupt_message, "the batch's CRC does not match its bytes")
    if header.base_offset != 0:
        raise Rejected(ErrorCode.invalid_record, f"the base offset must be 0, not {header.base_offset}")
    if size > config.segment_bytes:
        raise Rejected(ErrorCode.record_list_too_large, f"the batch is larger than a segment ({config.segment_bytes})")
    if header.attributes & CONTROL:
        raise Rejected(ErrorCode.invalid_record, "clients may not write control records")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise Rejected(
            ErrorCode.invalid_record,
            f"{header.record_count} records cannot have a last offset delta of {header.last_offset_delta}",
        )
    if header.producer_id >= 0:
        if header.producer_epoch < 0:
            raise Rejected(ErrorCode.invalid_producer_epoch, "a batch with a producer id needs an epoch")
        if header.base_sequence < 0:
            raise Rejected(ErrorCode.invalid_record, "a batch with a producer id needs a sequence number")
    elif header.attributes & TRANSACTIONAL:
        raise Rejected(ErrorCode.invalid_record, "a transactional batch needs a producer id")
    _check_timestamps(data, header, config, now_ms)
    if config.is_compacted:
        _check_keys(data, header, config)


def _check_timestamps(data: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.timestamp_type == "LogAppendTime":
        if header.attributes & LOG_APPEND_TIME:
            problem = "only the broker stamps records with the time at which they are appended"
            blamed = tuple(RecordError(position, problem) for position, _ in enumerate(_open(data, header, config)))
            raise Rejected(ErrorCode.invalid_timestamp, problem, blamed)
        return
    latest = now_ms + config.timestamp_after_max_ms
    earliest = now_ms - config.timestamp_before_max_ms
    # The header's base timestamp is the first record's, not the least: with a bound below, look at each one.
    if header.max_timestamp <= latest and config.timestamp_before_max_ms == _UNBOUNDED_MS:
        return
    outside = tuple(
        RecordError(position, f"timestamp {record.timestamp} is outside [{earliest}, {latest}]")
        for position, record in enumerate(_open(data, header, config))
        if record.timestamp != -1 and not earliest <= record.timestamp <= latest
    )
    if outside:
        raise Rejected(
            ErrorCode.invalid_timestamp,
            "record timestamps are too far from the broker's clock (message.timestamp.before.max.ms and after.max.ms)",
            outside,
        )


def _check_keys(data: memoryview, header: BatchHeader, config: LogConfig) -> None:
    keyless = tuple(
        RecordError(position, "a compacted topic cannot take a record without a key")
        for position, record in enumerate(_open(data, header, config))
        if record.key is None
    )
    if keyless:
        raise Rejected(ErrorCode.invalid_record, "one or more records have no key, in a compacted topic", keyless)


def unpacked(data: memoryview, header: BatchHeader, config: LogConfig) -> bytes:
    """The records section, unpacked. Raises Rejected."""
    try:
        return decompress(header.codec, data[HEADER_BYTES:], _UNPACKED_RATIO_MAX * config.max_message_bytes)
    except UnpacksTooLarge as problem:
        raise Rejected(ErrorCode.message_too_large, str(problem)) from problem
    except CorruptCompression as problem:
        raise Rejected(ErrorCode.corrupt_message, f"the batch cannot be unpacked: {problem}") from problem


def _open(data: memoryview, header: BatchHeader, config: LogConfig) -> list[Record]:
    try:
        return list(unpacked_records(unpacked(data, header, config), header))
    except CorruptRecords as problem:
        raise Rejected(ErrorCode.invalid_record, f"the records cannot be read: {problem}") from problem
