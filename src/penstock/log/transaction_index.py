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
        if self._is_empty:
            return []
        file = self.file()
        size = file.size() // ENTRY.size * ENTRY.size
        if size == 0:
            self._is_empty = True
            return []
        return [AbortedTransaction(*entry[1:]) for entry in ENTRY.iter_unpack(file.read(0, size))]

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


def collect_aborted(
    entries: list[AbortedTransaction], fetch_offset: int, upper_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Those that touch [fetch_offset, upper_offset), and whether later segments cannot add to them."""
    found = []
    for aborted in entries:
        if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_offset:
            found.append(aborted)
        if aborted.last_stable_offset >= upper_offset:
            return found, True
    return found, False
