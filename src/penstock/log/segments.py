"""The row of segments that makes up a log, in the order of their offsets; the last one is active."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from penstock.base.ports import Disk, File, Slice
from penstock.log.scan import Place
from penstock.log.segment import SEGMENT_SUFFIXES, OffsetAndTimestamp, Segment, rename_deleted
from penstock.log.transaction_index import AbortedTransaction


class Segments:
    """Never empty."""

    __slots__ = ("_base_offsets", "_row")

    def __init__(self, row: list[Segment]) -> None:
        self._row = row
        self._base_offsets = [segment.base_offset for segment in row]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._row)

    @property
    def first(self) -> Segment:
        return self._row[0]

    @property
    def active(self) -> Segment:
        return self._row[-1]

    @property
    def count(self) -> int:
        return len(self._row)

    @property
    def sealed(self) -> list[Segment]:
        """All but the active one."""
        return self._row[:-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._row)

    def append(self, segment: Segment) -> None:
        self._row.append(segment)
        self._base_offsets.append(segment.base_offset)

    def reaching(self, offset: int) -> list[Segment]:
        """The segment that `offset` belongs to, and all after it."""
        return self._row[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def wholly_below(self, offset: int) -> list[Segment]:
        """Segments that hold nothing at or beyond `offset`; never the active one."""
        return self._row[: max(0, bisect_right(self._base_offsets, offset) - 1)]

    def wholly_beyond(self, offset: int) -> list[Segment]:
        """Segments that hold nothing at or below `offset`."""
        return self._row[bisect_right(self._base_offsets, offset) :]

    def find(self, offset: int) -> tuple[Segment, Place] | None:
        """The batch that holds `offset`, or the next one where compaction or truncation left a gap."""
        for segment in self.reaching(offset):
            place = segment.find(offset)
            if place is not None:
                return segment, place
        return None

    def find_timestamp(self, timestamp: int, from_offset: int) -> OffsetAndTimestamp | None:
        """The first record at or beyond `from_offset` that is not older than `timestamp`."""
        for segment in self.reaching(from_offset):
            largest_timestamp, _ = segment.largest_timestamp()
            if largest_timestamp >= timestamp:
                found = segment.find_timestamp(timestamp, from_offset)
                if found is not None:
                    return found
        return None

    def find_largest_timestamp(self) -> OffsetAndTimestamp | None:
        """The first record that has the largest timestamp of all."""
        segment = max(self._row, key=lambda segment: segment.largest_timestamp()[0])
        return segment.find_largest_timestamp()

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int, records: Slice | None = None
    ) -> list[AbortedTransaction]:
        """Those that touch [fetch_offset, upper_offset), or the part of it that was read, `records`."""
        found: list[AbortedTransaction] = []
        row = self.reaching(fetch_offset)
        if records is not None:
            upper_offset = min(upper_offset, _offset_beyond(row, records, upper_offset))
        for segment in row:
            aborted, is_complete = segment.transactions.touching(fetch_offset, upper_offset)
            found += aborted
            if is_complete:
                break
        return found

    def files_from(self, offset: int) -> list[File]:
        """Files that a sync of everything from `offset` on is about. Not those beside the active .log: after a crash
        they are made anew. So a segment that ends just there is among it: it was the active one when it was synced."""
        *sealed, active = self.reaching(offset - 1)
        files = [active.file] if active.size else []
        for segment in sealed:
            files += [segment.file, *segment.sealed_files()]
        return files

    def drop(self, disk: Disk, doomed: list[Segment]) -> list[str]:
        """Renames the files of segments out of the log and returns their new paths. Fetches that still read them have
        their file objects, which the disk keeps valid."""
        paths = []
        for segment in doomed:
            for suffix in SEGMENT_SUFFIXES:
                if disk.exists(segment.path(suffix)):
                    paths.append(rename_deleted(disk, segment.path(suffix)))
            slot = self._row.index(segment)
            del self._row[slot], self._base_offsets[slot]
        return paths

    def neighbours(self, wanted: Sequence[tuple[int, int]]) -> list[Segment] | None:
        """The sealed segments with these base offsets and sizes, if they still stand side by side."""
        slot = bisect_left(self._base_offsets, wanted[0][0])
        found = self._row[slot : slot + len(wanted)]
        if [(segment.base_offset, segment.size) for segment in found] != list(wanted) or found[-1] is self.active:
            return None
        return found

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Puts a segment in the place of neighbours."""
        slot = self._row.index(old[0])
        self._row[slot : slot + len(old)] = [new]
        self._base_offsets[slot : slot + len(old)] = [new.base_offset]

    def close(self) -> None:
        for segment in self._row:
            segment.close()


def _offset_beyond(row: list[Segment], records: Slice, end_offset: int) -> int:
    """An offset behind all of `records`, not far from them; `end_offset` where they reach to the end of the row."""
    for slot, segment in enumerate(row):
        if segment.file is records.file:
            offset = segment.offset_from(records.position + records.length)
            if offset is not None:
                return offset
            return row[slot + 1].base_offset if slot + 1 < len(row) else end_offset
    return end_offset
