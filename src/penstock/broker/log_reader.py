"""Reading a whole log from the start, batch by batch: how coordinators and the metadata come up."""

from collections.abc import Iterator

from penstock.log.log import Log
from penstock.log.scan import CorruptSegment, is_plausible
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, crc_is_valid, read_header

_READ_BYTES = 1 << 20


def read_batches(log: Log) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch there is now, with its header. A chunk is held in memory at a time. Raises DiskError, and
    Refused(CORRUPT_MESSAGE) at one that is damaged: what rests on this log must not believe it."""
    offset = log.log_start_offset
    end_offset = log.log_end_offset
    while offset < end_offset:
        found = log.read(offset, _READ_BYTES, end_offset, at_least_one=True)
        if found is None:
            return
        data = memoryview(found.file.read(found.position, found.length))
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = read_header(data, position)
            if position and position + header.size > len(data):
                break
            batch = data[position : position + header.size]
            if not is_plausible(header, 0) or len(batch) < header.size or not crc_is_valid(batch, header):
                raise CorruptSegment(found.file, found.position + position)
            yield header, batch
            offset = header.last_offset + 1
            position += header.size
