"""A RaftLog in memory that knows what of it would survive a power cut."""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Bytes
from penstock.cluster.raft.control_records import batches_of
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.log.epochs import EpochCache
from penstock.protocol.batch import crc_is_valid, patch_placement, read_header


class Entry(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


class MemoryLog:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.durable_offset = 0
        self.truncations = 0
        self.snapshots: dict[OffsetAndEpoch, bytes] = {}
        self._part: tuple[OffsetAndEpoch, bytes] | None = None
        self._bases: list[int] = []
        self._epochs = EpochCache()
        self._start_offset = 0
        self._end_offset = 0

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def last_epoch(self) -> int:
        if self._epochs.latest >= 0:
            return self._epochs.latest
        latest = self.latest_snapshot()
        return latest.epoch if latest is not None else 0

    @property
    def synced_offset(self) -> int:
        return self.durable_offset

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        found_epoch, offset = self._epochs.end_offset_for(epoch, self._end_offset)
        if found_epoch < 0:
            return OffsetAndEpoch(self._end_offset, self.last_epoch)
        earliest = self.earliest_snapshot()
        if earliest is not None and offset == earliest.offset and found_epoch == epoch:
            return earliest
        return OffsetAndEpoch(offset, found_epoch)

    def epoch_for_offset(self, offset: int) -> int:
        return self._epochs.epoch_for_offset(offset)

    def entry_at(self, offset: int) -> Entry | None:
        """The entry that holds `offset`."""
        slot = bisect_right(self._bases, offset) - 1
        if slot < 0 or self.entries[slot].end_offset <= offset:
            return None
        return self.entries[slot]

    def entries_from(self, offset: int) -> list[Entry]:
        slot = bisect_right(self._bases, offset) - 1
        return self.entries[max(slot, 0) :]

    def read(self, offset: int, bytes_max: int) -> bytes:
        if offset < self._start_offset:
            raise Refused(ErrorCode.offset_out_of_range, "gone")
        out = b""
        for entry in self.entries_from(offset):
            if out and len(out) + len(entry.data) > bytes_max:
                break
            out += entry.data
        return out

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> int:
        base_offset = self._end_offset
        patch_placement(batch, base_offset, epoch)
        self._add(base_offset, base_offset + read_header(batch).last_offset_delta + 1, epoch, bytes(batch))
        return base_offset

    def append_as_follower(self, data: Bytes, now_ms: int) -> None:
        for header, batch in batches_of(data):
            if header.base_offset < self._end_offset or not crc_is_valid(batch, header):
                raise Refused(ErrorCode.corrupt_message, f"{header.base_offset} does not follow {self._end_offset}")
            self._add(header.base_offset, header.last_offset + 1, header.leader_epoch, bytes(batch))

    def _add(self, base_offset: int, end_offset: int, epoch: int, data: bytes) -> None:
        self.entries.append(Entry(base_offset, end_offset, epoch, data))
        self._bases.append(base_offset)
        self._epochs.assign(epoch, base_offset)
        self._end_offset = end_offset

    def truncate(self, end_offset: int, now_ms: int) -> None:
        self.truncations += 1
        while self.entries and self.entries[-1].end_offset > end_offset:
            self.entries.pop()
            self._bases.pop()
        self._end_offset = self.entries[-1].end_offset if self.entries else self._start_offset
        self._epochs.truncate_from_end(self._end_offset)
        self.durable_offset = min(self.durable_offset, self._end_offset)

    # Snapshots

    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        return len(self.snapshots[snapshot_id]) if snapshot_id in self.snapshots else None

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, length: int) -> bytes:
        return self.snapshots[snapshot_id][position : position + length]

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        self.snapshots[snapshot_id] = data

    def trim_to(self, snapshot_id: OffsetAndEpoch) -> None:
        kept = [entry for entry in self.entries if entry.base_offset >= snapshot_id.offset]
        self.entries, self._bases = kept, [entry.base_offset for entry in kept]
        self._start_offset = snapshot_id.offset
        self._epochs.truncate_from_start(snapshot_id.offset)
        self.snapshots = {known: data for known, data in self.snapshots.items() if known >= snapshot_id}

    def receive_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: Bytes) -> None:
        received = b"" if position == 0 or self._part is None else self._part[1]
        assert len(received) == position
        self._part = (snapshot_id, received + bytes(data))

    def received_snapshot(self, snapshot_id: OffsetAndEpoch) -> bytes:
        assert self._part is not None
        assert self._part[0] == snapshot_id
        return self._part[1]

    def install_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        data = self.received_snapshot(snapshot_id)
        self.truncations += 1
        self.entries, self._bases, self._epochs = [], [], EpochCache()
        self._start_offset = self._end_offset = self.durable_offset = snapshot_id.offset
        self.snapshots = {snapshot_id: data}

    # Mishaps

    def sync(self, end_offset: int) -> None:
        self.durable_offset = max(self.durable_offset, min(end_offset, self._end_offset))

    def crash(self, survivors: Callable[[int], int]) -> None:
        """Of the entries that were not synced, some of the first are there; what is there now is durable."""
        unsynced = [entry for entry in self.entries if entry.end_offset > self.durable_offset]
        lost = len(unsynced) - survivors(len(unsynced))
        if lost:
            self.truncate(self.entries[-lost].base_offset, 0)
        self._part = None
        self.durable_offset = self._end_offset
