"""A segment: a run of batches in one .log file, with its indexes. It knows its bytes and nothing of the log around it.

The last segment of a log is active: its indexes are in memory. The others are sealed: theirs are in their files.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.base.ports import Bytes, Disk, File, MissingFile
from penstock.log.config import LogConfig
from penstock.log.index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    ActiveIndexes,
    last_time_entry,
    offset_index_is_sound,
    search_offset_index,
    search_offset_index_by_position,
    search_time_index,
    time_index_is_sound,
)
from penstock.log.scan import CorruptSegment, Place, end_of_batches, find_batch, scan_headers
from penstock.log.transaction_index import TransactionIndex
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, crc_is_valid, read_header
from penstock.protocol.compression import CorruptCompression
from penstock.protocol.records import CorruptRecords, iterate_records

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"

# What makes up a segment; its producer snapshot is the state before its first offset.
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)

RELATIVE_OFFSET_MAX = 2**31 - 1
# The first timestamp of a segment without batches: so large that no timestamp is later.
NEVER_MS = 1 << 62
# The first timestamp of a segment whose first batch has none: so small that the time to roll always seems to have come,
# and the clock is asked.
ALWAYS_MS = -NEVER_MS


def offset_name(offset: int) -> str:
    """The 20 digits that file names of a log begin with."""
    return f"{offset:020d}"


def rename_deleted(disk: Disk, path: str) -> str:
    """Takes a file out of its log and returns its new path. An earlier one of that name, which waits for its removal,
    is left alone: somebody may still be reading it."""
    deleted = path + DELETED_SUFFIX
    number = 0
    while disk.exists(deleted):
        number += 1
        deleted = f"{path}.{number}{DELETED_SUFFIX}"
    disk.rename(path, deleted)
    return deleted


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int


class Segment:
    __slots__ = (
        "_disk",
        "_file_suffix",
        "_indexed_position",
        "_interval_bytes",
        "_offset_entries_max",
        "_offset_file",
        "_stem",
        "_time_entries_max",
        "_time_file",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp",
        "index_is_full",
        "indexes",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_max",
        "size",
        "transactions",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, config: LogConfig, now_ms: int, *, file_suffix: str = ""
    ) -> None:
        """`file_suffix` comes after all names of a segment that is not part of its log yet."""
        self._disk = disk
        self._stem = f"{directory}/{offset_name(base_offset)}"
        self._file_suffix = file_suffix
        self.base_offset = base_offset
        self.offset_max = base_offset + RELATIVE_OFFSET_MAX
        self.file: File = disk.open(self.path(LOG_SUFFIX))
        self.size = self.file.size()
        # For rolling by time: that of the first batch, or of the clock where batches carry none.
        self.first_timestamp = NEVER_MS
        self.created_ms = now_ms
        # The largest timestamp, and the last offset of the first batch that has it. Of a sealed segment: see
        # `largest_timestamp`.
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        # In memory while the segment is active.
        self.indexes: ActiveIndexes | None = None
        self.index_is_full = False
        self._indexed_position = 0
        self.transactions = TransactionIndex(disk, self.path(TRANSACTION_INDEX_SUFFIX))
        self._offset_file: File | None = None
        self._time_file: File | None = None
        self.reconfigure(config)

    def path(self, suffix: str) -> str:
        """Of the file that holds this part of the segment."""
        return self._stem + suffix + self._file_suffix

    def reconfigure(self, config: LogConfig) -> None:
        self._interval_bytes = config.index_interval_bytes
        self._offset_entries_max = config.segment_index_bytes // OFFSET_ENTRY.size
        # One slot is kept for the entry that sealing adds.
        self._time_entries_max = config.segment_index_bytes // TIME_ENTRY.size - 1

    def start_empty(self) -> ActiveIndexes:
        """Active, with nothing indexed."""
        self.indexes = ActiveIndexes(self.base_offset)
        self.index_is_full = False
        self._indexed_position = 0
        self.first_timestamp = NEVER_MS
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        return self.indexes

    def activate(self) -> ActiveIndexes:
        """Takes the indexes into memory: from their files when these are sound, from the batches otherwise."""
        if self.indexes is not None:
            return self.indexes
        offset_data, time_data = self._read(OFFSET_INDEX_SUFFIX), self._read(TIME_INDEX_SUFFIX)
        if (
            offset_data is None
            or time_data is None
            or not offset_index_is_sound(offset_data, self.size)
            or not time_index_is_sound(time_data)
        ):
            return self.rebuild_indexes()
        self.indexes = ActiveIndexes(self.base_offset, offset_data, time_data)
        _, self._indexed_position = self.indexes.offsets.last_entry() or (0, 0)
        self.max_timestamp, self.max_timestamp_offset = self.indexes.times.last_entry()
        self._note_fullness(self.indexes)
        if self.size >= HEADER_BYTES:
            self._note_first_timestamp(read_header(self.file.read(0, HEADER_BYTES)).max_timestamp)
        return self.indexes

    def rebuild_indexes(self) -> ActiveIndexes:
        """Makes the indexes anew, in memory, from the batches' headers."""
        indexes = self.start_empty()
        for position, header in scan_headers(self.file, 0, self.size):
            if not self.base_offset <= header.last_offset <= self.offset_max:
                raise CorruptSegment(self.file, position)
            self.note_batch(position, header.last_offset, header.max_timestamp if header.record_count else NO_TIMESTAMP)
        return indexes

    def _read(self, suffix: str) -> bytes | None:
        try:
            return self._disk.read_file(self.path(suffix))
        except MissingFile:
            return None

    def append(self, data: Bytes, last_offset: int, max_timestamp: int) -> None:
        """One batch at the end. Leaves everything as it was when the disk refuses."""
        self.file.append(data)
        position = self.size
        self.size = position + len(data)
        self.note_batch(position, last_offset, max_timestamp)

    def append_all(
        self, batches: Sequence[Bytes], size: int, end_offsets: Sequence[int], max_timestamps: Sequence[int]
    ) -> None:
        """As `append` of one after the other, in one write, all or none. `size` is that of all; an end offset is one
        more than the last."""
        self.file.append_all(batches)
        position = self.size
        self.size = position + size
        if position and self.size - self._indexed_position <= self._interval_bytes:
            # Hot: none of them needs an entry.
            largest = max(max_timestamps)
            if largest > self.max_timestamp:
                self.max_timestamp = largest
                self.max_timestamp_offset = end_offsets[max_timestamps.index(largest)] - 1
            return
        if not position:
            self._note_first_timestamp(max_timestamps[0])
        indexes = self.indexes
        assert indexes is not None
        indexed_position, interval_bytes = self._indexed_position, self._interval_bytes
        for batch, end_offset, max_timestamp in zip(batches, end_offsets, max_timestamps, strict=True):
            # As note_batch does; of 16 KB each, every one gets an entry.
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
                self.max_timestamp_offset = end_offset - 1
            if position - indexed_position > interval_bytes:
                indexes.offsets.append(end_offset - 1, position)
                indexes.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
                indexed_position = position
            position += len(batch)
        self._indexed_position = indexed_position
        self._note_fullness(indexes)

    def has_index_room(self, batches: int) -> bool:
        """Whether the indexes cannot get full by so many."""
        indexes = self.indexes
        return indexes is not None and (
            len(indexes.offsets) + batches <= self._offset_entries_max
            and len(indexes.times) + batches <= self._time_entries_max
        )

    def note_batch(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Takes a batch that stands at `position` into the indexes."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position - self._indexed_position > self._interval_bytes:
            indexes = self.indexes
            assert indexes is not None
            indexes.offsets.append(last_offset, position)
            indexes.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._indexed_position = position
            self._note_fullness(indexes)
        elif position == 0:
            self._note_first_timestamp(max_timestamp)

    def _note_first_timestamp(self, timestamp: int) -> None:
        self.first_timestamp = timestamp if timestamp >= 0 else ALWAYS_MS

    def _note_fullness(self, indexes: ActiveIndexes) -> None:
        self.index_is_full = (
            len(indexes.offsets) >= self._offset_entries_max or len(indexes.times) >= self._time_entries_max
        )

    def write_indexes(self) -> None:
        """Writes the indexes from memory, with the largest timestamp as the time index's last entry."""
        indexes = self.indexes
        assert indexes is not None
        indexes.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self._disk.write_file(self.path(OFFSET_INDEX_SUFFIX), indexes.offsets.to_bytes(), durable=False)
        self._disk.write_file(self.path(TIME_INDEX_SUFFIX), indexes.times.to_bytes(), durable=False)

    def seal(self) -> None:
        """No more batches come: the indexes leave the memory once they are written, and the file what it had for more
        to come."""
        self.write_indexes()
        self.indexes = None
        self.file.close()

    @property
    def is_small(self) -> bool:
        """No larger than the distance between two index entries."""
        return self.size <= self._interval_bytes

    def has_files_beside(self) -> bool:
        """Whether an index or a producer snapshot was ever written."""
        return any(self._disk.exists(self.path(suffix)) for suffix in (TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX))

    def find(self, offset: int) -> Place | None:
        """The batch that holds `offset`, or the first one beyond it in this segment."""
        return find_batch(self.file, self._lookup(offset), self.size, offset)

    def next_offset(self) -> int:
        """The offset after the last batch."""
        found = end_of_batches(self.file, self._lookup(self.offset_max), self.size)
        return self.base_offset if found is None else found

    def _lookup(self, offset: int) -> int:
        if self.indexes is not None:
            return self.indexes.offsets.lookup(offset)
        return search_offset_index(self._open_offset_file(), self.base_offset, offset)

    def offset_from(self, position: int) -> int | None:
        """An offset that stands at or beyond `position`, not far from it; None for the end of the segment."""
        if self.indexes is not None:
            return self.indexes.offsets.offset_from(position)
        return search_offset_index_by_position(self._open_offset_file(), self.base_offset, position)

    def _open_offset_file(self) -> File:
        if self._offset_file is None:
            self._offset_file = self._disk.open(self.path(OFFSET_INDEX_SUFFIX))
        return self._offset_file

    def largest_timestamp(self) -> tuple[int, int]:
        """(timestamp, last offset of the first batch that has it); (-1, base offset) when there is none."""
        if self.indexes is None and self.max_timestamp == NO_TIMESTAMP:
            self.max_timestamp, self.max_timestamp_offset = last_time_entry(self._open_time_file(), self.base_offset)
        return self.max_timestamp, self.max_timestamp_offset

    def age_timestamp(self) -> int:
        """What retention counts a segment's age from: its largest timestamp, or, where its records carry none, when
        it was last written to."""
        timestamp, _ = self.largest_timestamp()
        return timestamp if timestamp >= 0 else self.file.modified_ms()

    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 when there is none."""
        return read_header(self.file.read(0, HEADER_BYTES)).max_timestamp if self.size >= HEADER_BYTES else NO_TIMESTAMP

    def _open_time_file(self) -> File:
        if self._time_file is None:
            self._time_file = self._disk.open(self.path(TIME_INDEX_SUFFIX))
        return self._time_file

    def find_timestamp(self, timestamp: int, from_offset: int) -> OffsetAndTimestamp | None:
        """The first record at or beyond `from_offset` that is not older than `timestamp`."""
        if self.indexes is not None:
            _, offset = self.indexes.times.lookup(timestamp)
        else:
            _, offset = search_time_index(self._open_time_file(), self.base_offset, timestamp)
        for position, header in scan_headers(self.file, self._lookup(max(offset, from_offset)), self.size):
            if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
                found = self._first_record(position, header, timestamp, from_offset)
                if found is not None:
                    return found
        return None

    def find_largest_timestamp(self) -> OffsetAndTimestamp | None:
        """The first record that has the segment's largest timestamp (KIP-734)."""
        timestamp, offset = self.largest_timestamp()
        for position, header in scan_headers(self.file, self._lookup(offset), self.size):
            if header.max_timestamp == timestamp:
                return self._first_record(position, header, timestamp, header.base_offset)
        return None

    def _first_record(
        self, position: int, header: BatchHeader, timestamp: int, from_offset: int
    ) -> OffsetAndTimestamp | None:
        try:
            for record in iterate_records(self.file.read(position, header.size), header):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return OffsetAndTimestamp(record.offset, record.timestamp)
        except (CorruptRecords, CorruptCompression) as error:
            raise CorruptSegment(self.file, position) from error
        return None

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drops the batch that holds `offset` and all after it. The segment is the active one afterwards."""
        indexes = self.activate()
        place = self.find(offset)
        if place is None:
            return
        if place.base_offset < offset:
            # Cuts are rarely within a batch: if its last offset has rotted, what stands between them must not go.
            batch = self.file.read(place.position, place.size)
            if not crc_is_valid(batch, read_header(batch)):
                raise CorruptSegment(self.file, place.position)
        self.file.truncate(place.position)
        self.size = place.position
        self.transactions.truncate_to(offset)
        # An entry names the last offset of its batch, and that batch may hold `offset` without ending there.
        end_offset = min(offset, place.base_offset)
        indexes.offsets.truncate_to(end_offset)
        indexes.times.truncate_to(end_offset)
        self._note_fullness(indexes)
        _, self._indexed_position = indexes.offsets.last_entry() or (0, 0)
        self.max_timestamp, self.max_timestamp_offset = indexes.times.last_entry()
        for _, header in scan_headers(self.file, self._lookup(self.max_timestamp_offset), self.size):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if self.size == 0:
            self.first_timestamp = NEVER_MS
            self.created_ms = now_ms

    def index_bytes(self) -> int:
        """Of a sealed segment: how large the larger of its two indexes is."""
        suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        return max(self._disk.open(self.path(suffix)).size() for suffix in suffixes)

    def sealed_files(self) -> list[File]:
        """The files beside the .log that a sync of this segment is about."""
        suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        paths = [self.path(suffix) for suffix in suffixes]
        return [self._disk.open(path) for path in paths if self._disk.exists(path)]

    def close(self) -> None:
        """Gives the descriptors back."""
        for file in (self.file, self._offset_file, self._time_file):
            if file is not None:
                file.close()
