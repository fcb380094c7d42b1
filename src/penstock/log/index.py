"""The two sparse indexes of a segment, in Kafka's bytes.

`.index`      8 bytes an entry: int32 offset relative to the segment's base, int32 position in the .log file. The offset
              is the *last* one of the batch that stands at the position.
`.timeindex` 12 bytes an entry: int64 timestamp, int32 relative offset. No batch up to and including the one that ends
              at the offset has a larger timestamp. Timestamps rise from entry to entry.

The active segment's indexes live in memory and are written when it is sealed or closed: one system call less per batch,
and after a crash they are made anew from the batches anyway. Sealed ones are searched where they are, a page at the end
of a binary search, so that a thousand old segments cost no memory.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from penstock.base.ports import File

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
NO_TIMESTAMP = -1

_POSITION_MASK = 0xFFFFFFFF
_PAGE_ENTRIES = 256


class OffsetIndex:
    """The active segment's offset index."""

    __slots__ = ("_entries", "base_offset")

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self.base_offset = base_offset
        # An entry as one big-endian int64 is (relative offset << 32 | position), which sorts by offset.
        self._entries = array("q", data)
        if sys.byteorder == "little":
            self._entries.byteswap()

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, offset: int, position: int) -> None:
        self._entries.append((offset - self.base_offset) << 32 | position)

    def lookup(self, offset: int) -> int:
        """Where to start looking for `offset`: the position of the last indexed batch that ends at or before it."""
        slot = bisect_right(self._entries, (offset - self.base_offset) << 32 | _POSITION_MASK) - 1
        return self._entries[slot] & _POSITION_MASK if slot >= 0 else 0

    def offset_from(self, position: int) -> int | None:
        """The offset of the first entry at or beyond `position`; None if there is none."""
        slot = bisect_left(self._entries, position, key=_position_of)
        return self.base_offset + (self._entries[slot] >> 32) if slot < len(self._entries) else None

    def last_entry(self) -> tuple[int, int] | None:
        """(offset, position)."""
        if not self._entries:
            return None
        return self.base_offset + (self._entries[-1] >> 32), self._entries[-1] & _POSITION_MASK

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries below `offset`."""
        del self._entries[bisect_left(self._entries, (offset - self.base_offset) << 32) :]

    def to_bytes(self) -> bytes:
        entries = array("q", self._entries)
        if sys.byteorder == "little":
            entries.byteswap()
        return entries.tobytes()


def _position_of(entry: int) -> int:
    return entry & _POSITION_MASK


class TimeIndex:
    """The active segment's time index."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self.base_offset = base_offset
        entries = list(TIME_ENTRY.iter_unpack(data))
        self._timestamps = array("q", [timestamp for timestamp, _ in entries])
        self._offsets = array("q", [base_offset + relative for _, relative in entries])

    def __len__(self) -> int:
        return len(self._timestamps)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if its timestamp is larger than the last one's."""
        if timestamp > (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            self._timestamps.append(timestamp)
            self._offsets.append(offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry at or before `timestamp`; (-1, base offset) when there is none."""
        return self._entry(bisect_right(self._timestamps, timestamp) - 1)

    def last_entry(self) -> tuple[int, int]:
        return self._entry(len(self._timestamps) - 1)

    def _entry(self, slot: int) -> tuple[int, int]:
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        return self._timestamps[slot], self._offsets[slot]

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries below `offset`."""
        count = bisect_left(self._offsets, offset)
        del self._timestamps[count:]
        del self._offsets[count:]

    def to_bytes(self) -> bytes:
        base_offset = self.base_offset
        return b"".join(
            TIME_ENTRY.pack(timestamp, offset - base_offset)
            for timestamp, offset in zip(self._timestamps, self._offsets, strict=True)
        )


class ActiveIndexes:
    """Both indexes of the active segment."""

    __slots__ = ("offsets", "times")

    def __init__(self, base_offset: int, offset_data: bytes = b"", time_data: bytes = b"") -> None:
        self.offsets = OffsetIndex(base_offset, offset_data)
        self.times = TimeIndex(base_offset, time_data)


def offset_index_is_sound(data: bytes, segment_bytes: int) -> bool:
    """Whether these bytes may be the offset index of a segment of that size: what is checked before trusting a file."""
    if len(data) % OFFSET_ENTRY.size:
        return False
    if not data:
        return True
    first_offset, _ = OFFSET_ENTRY.unpack_from(data, 0)
    last_offset, last_position = OFFSET_ENTRY.unpack_from(data, len(data) - OFFSET_ENTRY.size)
    return bool(0 <= first_offset <= last_offset and 0 < last_position < segment_bytes)


def time_index_is_sound(data: bytes) -> bool:
    if len(data) % TIME_ENTRY.size:
        return False
    if not data:
        return True
    first_timestamp, first_offset = TIME_ENTRY.unpack_from(data, 0)
    last_timestamp, last_offset = TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY.size)
    return bool(first_timestamp <= last_timestamp and 0 <= first_offset <= last_offset)


def search_offset_index(file: File, base_offset: int, offset: int) -> int:
    """OffsetIndex.lookup on a sealed segment's file."""
    _, position = _last_entry_at_or_below(file, OFFSET_ENTRY, offset - base_offset) or (0, 0)
    return position


def search_offset_index_by_position(file: File, base_offset: int, position: int) -> int | None:
    """OffsetIndex.offset_from on a sealed segment's file."""
    low, high = 0, file.size() // OFFSET_ENTRY.size
    found = None
    while low < high:
        middle = (low + high) // 2
        relative_offset, found_position = OFFSET_ENTRY.unpack(file.read(middle * OFFSET_ENTRY.size, OFFSET_ENTRY.size))
        if found_position < position:
            low = middle + 1
        else:
            high, found = middle, base_offset + relative_offset
    return found


def search_time_index(file: File, base_offset: int, timestamp: int) -> tuple[int, int]:
    """TimeIndex.lookup on a sealed segment's file."""
    entry = _last_entry_at_or_below(file, TIME_ENTRY, timestamp)
    return (entry[0], base_offset + entry[1]) if entry else (NO_TIMESTAMP, base_offset)


def last_time_entry(file: File, base_offset: int) -> tuple[int, int]:
    """TimeIndex.last_entry on a sealed segment's file."""
    count = file.size() // TIME_ENTRY.size
    if count == 0:
        return NO_TIMESTAMP, base_offset
    timestamp, relative_offset = TIME_ENTRY.unpack(file.read((count - 1) * TIME_ENTRY.size, TIME_ENTRY.size))
    return timestamp, base_offset + relative_offset


def _last_entry_at_or_below(file: File, entry: Struct, key: int) -> tuple[int, int] | None:
    """Both kinds of entry open with the number they are sorted by."""
    low, high = 0, file.size() // entry.size
    if high == 0:
        return None
    while high - low > _PAGE_ENTRIES:
        middle = (low + high) // 2
        if entry.unpack(file.read(middle * entry.size, entry.size))[0] <= key:
            low = middle
        else:
            high = middle
    found: tuple[int, int] | None = None
    for first, second in entry.iter_unpack(file.read(low * entry.size, (high - low) * entry.size)):
        if first > key:
            break
        found = first, second
    return found
