"""Walking the batches of a .log file: quickly by their headers, or checking every byte."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import File
from penstock.protocol.batch import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, crc_is_valid, read_header

# Base offset, batch length and last offset delta: all that finding a batch needs.
_PLACE = Struct(">qi11xi")
_LOOKUP_CHUNK_BYTES = 4096 + HEADER_BYTES
_SCAN_CHUNK_BYTES = 1 << 20
BATCH_BYTES_MIN = HEADER_BYTES


class Place(NamedTuple):
    """Where a batch stands."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class CorruptSegment(Refused):
    """A segment holds something else than batches where one must begin."""

    def __init__(self, file: File, position: int) -> None:
        super().__init__(
            ErrorCode.corrupt_message,
            f"{file.path} holds no valid batch at byte {position}; a restart after a crash would cut it there",
        )


def find_batch(file: File, position: int, end: int, offset: int) -> Place | None:
    """The first batch from `position` on that reaches `offset`; None when the batches before `end` all stop short."""
    chunk, chunk_start = b"", position
    last_offset = -1
    while position + HEADER_BYTES <= end:
        index = position - chunk_start
        if index + HEADER_BYTES > len(chunk):
            chunk, chunk_start, index = file.read(position, _LOOKUP_CHUNK_BYTES), position, 0
            if len(chunk) < HEADER_BYTES:
                return None
        base_offset, batch_length, last_offset_delta = _PLACE.unpack_from(chunk, index)
        size = batch_length + PREFIX_BYTES
        if size < BATCH_BYTES_MIN or position + size > end or last_offset_delta < 0 or base_offset <= last_offset:
            # Where a length has rotted, what comes after it in this file must not be leapt over; nor the batch itself
            # where its offsets have: a follower that asks for it would be given the next one, and leave it out.
            raise CorruptSegment(file, position)
        last_offset = base_offset + last_offset_delta
        if last_offset >= offset:
            return Place(position, size, base_offset, last_offset)
        position += size
    return None


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch from `position` on, trusting what was checked before."""
    chunk, chunk_start = b"", position
    while position + HEADER_BYTES <= end:
        index = position - chunk_start
        if index + HEADER_BYTES > len(chunk):
            chunk, chunk_start, index = file.read(position, _LOOKUP_CHUNK_BYTES), position, 0
            if len(chunk) < HEADER_BYTES:
                # A damaged index told where to look.
                raise CorruptSegment(file, position)
        header = read_header(chunk, index)
        if header.size < BATCH_BYTES_MIN or header.last_offset_delta < 0:
            raise CorruptSegment(file, position)
        yield position, header
        position += header.size


def end_of_batches(file: File, position: int, end: int) -> int | None:
    """The offset after the last batch between `position`, where one begins, and `end`. Raises CorruptSegment where
    something else stands there: what would be written behind it could not be found again."""
    next_offset = None
    for start, header in scan_headers(file, position, end):
        position = start + header.size
        if position > end:
            raise CorruptSegment(file, start)
        next_offset = header.last_offset + 1
    if position != end:
        raise CorruptSegment(file, position)
    return next_offset


def valid_batches(file: File, next_offset: int, offset_max: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of batch after batch from the start of the file. Ends before the first one that is cut
    short, damaged, or out of order: offsets must rise from `next_offset` on and stay within `offset_max`."""
    position, end = 0, file.size()
    chunk, chunk_start = memoryview(b""), 0
    while position + HEADER_BYTES <= end:
        index = position - chunk_start
        if index + HEADER_BYTES > len(chunk):
            chunk, chunk_start, index = memoryview(file.read(position, _SCAN_CHUNK_BYTES)), position, 0
            if len(chunk) < HEADER_BYTES:
                return
        header = read_header(chunk, index)
        if not is_plausible(header, next_offset, offset_max) or position + header.size > end:
            return
        if index + header.size > len(chunk):
            wanted = max(header.size, _SCAN_CHUNK_BYTES)
            chunk, chunk_start, index = memoryview(file.read(position, wanted)), position, 0
        batch = chunk[index : index + header.size]
        if len(batch) < header.size or not crc_is_valid(batch, header):
            return
        yield position, header, batch
        next_offset = header.last_offset + 1
        position += header.size


def is_plausible(header: BatchHeader, next_offset: int, offset_max: int = 2**63 - 1) -> bool:
    """Whether a header may be that of a batch at `next_offset` or beyond. Looks at what the checksum does not cover."""
    return (
        header.magic == MAGIC
        and header.size >= BATCH_BYTES_MIN
        and header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and header.last_offset <= offset_max
    )


def holds_valid_batch(data: bytes, next_offset: int, offset_max: int) -> bool:
    """Whether a whole, undamaged batch stands anywhere in `data`: then what came before it was no torn end."""
    magic = bytes((MAGIC,))
    found = data.find(magic, 16)
    while found >= 0:
        start = found - 16
        if start + HEADER_BYTES <= len(data):
            header = read_header(data, start)
            if (
                is_plausible(header, next_offset, offset_max)
                and start + header.size <= len(data)
                and crc_is_valid(data, header, start)
            ):
                return True
        found = data.find(magic, found + 1)
    return False
