"""The `.txnindex` of a segment: the aborted transactions whose markers stand in it, in Kafka's bytes.

34 bytes an entry, in the order of the markers: int16 version (0), int64 producer id, int64 first offset, int64 last
offset (the marker's), int64 last stable offset when the marker was written. Read-committed fetches are told of the
aborted transactions that touch what they return.
"""

from struct import Struct
from typing import NamedTuple

from penstock.base.ports import Disk, File

ENTRY = Struct(">hqqqq")
_VERSION = 0
_ENTRIES_PER_READ = 100


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """No entries in memory: aborts are rare, and so are reads of them. The file is there once an entry is."""

    __slots__ = ("_disk", "_is_empty", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        # Known to be, so that read-committed fetches need not ask the disk every time.
        self._is_empty = False

    def file(self) -> File:
        return self._disk.open(self._path)

    def append(self, aborted: AbortedTransaction) -> None:
        self._is_empty = False
        self.file().append(ENTRY.pack(_VERSION, *aborted))

    def entries(self) -> list[AbortedTransaction]:
        count = self._count()
        return self._read(0, count) if count else []

    def touching(self, fetch_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that touch [fetch_offset, upper_offset), and whether later segments cannot add to them. As much is read
        as there is to tell, however many aborted transactions there are before and after."""
        count = self._count()
        slot = self._first_ending_at(fetch_offset, count) if count else 0
        found: list[AbortedTransaction] = []
        while slot < count:
            chunk = self._read(slot, min(count - slot, _ENTRIES_PER_READ))
            for aborted in chunk:
                if aborted.first_offset < upper_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= upper_offset:
                    return found, True
            slot += len(chunk)
        return found, False

    def _first_ending_at(self, offset: int, count: int) -> int:
        """The first entry whose marker is at or beyond `offset`."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._read(middle, 1)[0].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _count(self) -> int:
        if self._is_empty:
            return 0
        count = self.file().size() // ENTRY.size
        self._is_empty = not count
        return count

    def _read(self, slot: int, count: int) -> list[AbortedTransaction]:
        data = self.file().read(slot * ENTRY.size, count * ENTRY.size)
        return [AbortedTransaction(*entry[1:]) for entry in ENTRY.iter_unpack(data)]

    def undo_append(self) -> None:
        file = self.file()
        file.truncate(file.size() - ENTRY.size)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries whose markers are at or beyond `offset`."""
        entries = self.entries()
        kept = sum(aborted.last_offset < offset for aborted in entries)
        if kept < len(entries):
            self.file().truncate(kept * ENTRY.size)

    def clear(self) -> None:
        if self.file().size():
            self.file().truncate(0)
