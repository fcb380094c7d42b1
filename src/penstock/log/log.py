"""One partition's log: segments in a row, appended at the end, read anywhere.

Used from one event loop; nothing here awaits. A log costs a few hundred bytes until it is first read or written: after
a clean shutdown the names in its directory tell where it ends, and no file of it is opened.

Duties of the caller
- `append` takes one batch whose size, CRC, counts and timestamps are checked, and which `check_producer` let through.
  For LogAppendTime the batch is stamped before, and `header` is the stamped one.
- Bytes are in the page cache when `append` returns. For more: `flush`, sync the files it names (off the loop), then
  `mark_flushed`. If a sync fails the log must not be used on: the kernel may have dropped what it could not write.
- Checkpoint `recovery_point` and `log_start_offset` now and then; the former also after a truncation, before appending.
- To stop cleanly: `close`, then Disk.sync_all, then the clean-shutdown marker.
- Paths that `advance_log_start`, `replace_segments`, the truncations and `delete` return are renamed already: remove
  them when no fetch can still be reading them (file.delete.delay.ms).
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError, Slice
from penstock.log.checkpoints import PARTITION_METADATA_FILE, format_partition_metadata
from penstock.log.config import LogConfig
from penstock.log.end_marker import read_end_marker
from penstock.log.producer_state import Duplicate, ProducerState
from penstock.log.scan import CorruptSegment, Place, is_plausible
from penstock.log.segment import RELATIVE_OFFSET_MAX, OffsetAndTimestamp, Segment
from penstock.log.storage import Flush, StoredLog
from penstock.log.transaction_index import AbortedTransaction
from penstock.protocol.batch import (
    CONTROL,
    HEADER_BYTES,
    BatchHeader,
    crc_is_valid,
    patch_placement,
    patch_placements,
    read_header,
)

__all__ = ["Flush", "Log", "Run"]


class Run(NamedTuple):
    """Batches that were checked, and none of which is a control batch."""

    batches: Sequence[memoryview]
    # Of all of them, in bytes.
    size: int
    # As their headers have it: of what follows the first two fields.
    lengths: Sequence[int]
    record_counts: Sequence[int]
    max_timestamps: Sequence[int]
    # Empty where no batch has a producer id.
    headers: Sequence[BatchHeader]


class Log(StoredLog):
    __slots__ = ()

    # Appending

    def check_producer(self, header: BatchHeader) -> Duplicate | ErrorCode | None:
        """Whether a client's batch may be appended, to be asked when it has a producer id: None if so."""
        if self._segments is None:
            self._load()
        return self._producers.check(header) if self._producers is not None else None

    def append(self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        """Places one batch at the end and returns its base offset. Raises DiskFull or DiskError, the log being as it
        was, and Refused(RECORD_LIST_TOO_LARGE) for a batch that no segment holds."""
        base_offset = self.log_end_offset
        patch_placement(batch, base_offset, leader_epoch)
        self._append_at(base_offset, batch, header, leader_epoch, now_ms)
        return base_offset

    def append_run(self, run: Run, leader_epoch: int, now_ms: int) -> list[int] | None:
        """Places all of its batches at the end, with one write, and returns their base offsets. None, nothing being
        done, where they have to be appended one by one. Raises DiskError, the log being as it was."""
        batches, size, lengths, record_counts, max_timestamps, headers = run
        segment = self._active
        if segment is None or not segment.has_index_room(len(batches)):
            return None
        base_offsets = [*accumulate(record_counts, initial=self.log_end_offset)]
        end_offset = base_offsets.pop()
        end = segment.size + size
        if (
            end > self._segment_bytes
            or max(max_timestamps) - segment.first_timestamp > self._roll_ms
            or end_offset > segment.offset_max
        ):
            return None
        patch_placements(batches, base_offsets, lengths, leader_epoch)
        segment.append_all(batches, size, [*base_offsets[1:], end_offset], max_timestamps)
        if headers:
            producers = self._producers
            if producers is None:
                producers = self._producers = ProducerState()
            for base_offset, header in zip(base_offsets, headers, strict=True):
                if header.producer_id >= 0:
                    producers.update(header, base_offset, None, now_ms)
        self.log_end_offset = end_offset
        last_size = len(batches[-1])
        self._tail = Place(end - last_size, last_size, base_offsets[-1], end_offset - 1)
        if leader_epoch != self._latest_epoch:
            self.assign_epoch(leader_epoch, base_offsets[0])
        return base_offsets

    def append_as_follower(self, data: bytes | memoryview, now_ms: int) -> None:
        """Takes over whole batches as the leader placed them; a batch cut short at the end is left out. Raises
        Refused(CORRUPT_MESSAGE) at the first one that is damaged or not beyond the end of this log."""
        view = memoryview(data)
        position = 0
        while position + HEADER_BYTES <= len(view):
            header = read_header(view, position)
            if not is_plausible(header, self.log_end_offset):
                raise Refused(
                    ErrorCode.corrupt_message,
                    f"{self.directory} ends at {self.log_end_offset}; a batch of magic {header.magic} with "
                    f"{header.size} bytes at offset {header.base_offset} cannot follow",
                )
            batch = view[position : position + header.size]
            if len(batch) < header.size:
                return
            if not crc_is_valid(batch, header):
                raise Refused(ErrorCode.corrupt_message, f"the batch at {header.base_offset} has a wrong checksum")
            self._append_at(header.base_offset, batch, header, header.leader_epoch, now_ms)
            position += header.size

    def _open_for_append(self) -> Segment:
        segments = self._segments or self._load()
        if self._is_new:
            self._disk.make_directory(self.directory)
            if self.topic_id is not None:
                self._write_beside(PARTITION_METADATA_FILE, format_partition_metadata(self.topic_id))
            self._is_new = False
        self._active = segments.active
        self._limit_active(self._active)
        return self._active

    def _limit_active(self, active: Segment) -> None:
        """Sets when the active segment is to be rolled. The jitter that spreads the rolls of many partitions comes from
        the segment's name, so that it is the same after a restart."""
        config = self.config
        jitter_max_ms = min(config.segment_jitter_ms, config.roll_ms)
        jitter_ms = crc32(f"{self.directory}/{active.base_offset}".encode()) % jitter_max_ms if jitter_max_ms else 0
        self._roll_ms = config.roll_ms - jitter_ms
        self._segment_bytes = config.segment_bytes

    def _append_at(
        self,
        base_offset: int,
        batch: bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        # Hot: every produced batch comes through here. Tests that are nearly always false stand in one line, the
        # producer's part costs nothing when there is none, and everything after the write cannot fail.
        segment = self._active
        if segment is None:
            segment = self._open_for_append()
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        size = len(batch)
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp - segment.first_timestamp > self._roll_ms
            or last_offset > segment.offset_max
            or segment.index_is_full
        ):
            segment = self._roll_if_due(segment, base_offset, last_offset, size, max_timestamp, now_ms)
        position = segment.size
        if header.producer_id >= 0:
            self._append_of_producer(segment, base_offset, batch, header, now_ms)
        else:
            segment.append(batch, last_offset, max_timestamp)
        self.log_end_offset = last_offset + 1
        self._tail = Place(position, size, base_offset, last_offset)
        if leader_epoch != self._latest_epoch:
            self.assign_epoch(leader_epoch, base_offset)

    def _append_of_producer(
        self, segment: Segment, base_offset: int, batch: bytearray | memoryview, header: BatchHeader, now_ms: int
    ) -> None:
        producers = self._producers
        if producers is None:
            producers = self._producers = ProducerState()
        marker = aborted = None
        if header.attributes & CONTROL:
            marker = read_end_marker(batch, header)
            aborted = producers.aborted_by(header, base_offset, marker) if marker is not None else None
        if aborted is not None:
            segment.transactions.append(aborted)
        try:
            segment.append(batch, base_offset + header.last_offset_delta, header.max_timestamp)
        except DiskError:
            if aborted is not None:
                segment.transactions.undo_append()
            raise
        producers.update(header, base_offset, marker, now_ms)

    def _roll_if_due(
        self, segment: Segment, base_offset: int, last_offset: int, size: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        if size > self.config.segment_bytes:
            raise Refused(
                ErrorCode.record_list_too_large,
                f"a batch of {size} bytes does not fit into a segment of {self.config.segment_bytes} (segment.bytes)",
            )
        if segment.first_timestamp >= 0:
            waited_ms = max_timestamp - segment.first_timestamp
        else:
            # The first batch carries no timestamp: the clock decides.
            waited_ms = now_ms - segment.created_ms
        if (
            segment.size + size > self._segment_bytes
            or (segment.size > 0 and waited_ms > self._roll_ms)
            or last_offset > segment.offset_max
            or segment.index_is_full
        ):
            # What a follower copies may begin beyond the end, where its leader's log was compacted. Segments join all
            # the same, so that a hole between them is known for damage, unless it is too wide for one segment.
            is_jump = last_offset - self.log_end_offset > RELATIVE_OFFSET_MAX
            self.roll(now_ms, base_offset if is_jump else self.log_end_offset)
            assert self._active is not None
            return self._active
        return segment

    def roll(self, now_ms: int, base_offset: int = 0) -> None:
        """Seals the active segment and begins one at the end of the log, or at `base_offset` beyond it."""
        active = self._active or self._open_for_append()
        assert self._segments is not None
        base_offset = max(base_offset, self.log_end_offset)
        if active.base_offset == base_offset:
            return
        if active.size == 0:
            # Offsets jump too far for a segment that nothing was written to; its file holds its place in the row.
            active.file.append(b"")
        # The state before a segment stands beside it, so that checking it need not look at those before.
        self._write_snapshot(base_offset)
        self._write_epochs()
        active.seal()
        self._active = Segment(self._disk, self.directory, base_offset, self.config, now_ms)
        self._active.start_empty()
        # One of that name may be left from a segment that a power cut took.
        self._active.transactions.clear()
        self._tail = None
        self._segments.append(self._active)
        self._limit_active(self._active)

    def roll_to_empty(self, now_ms: int) -> None:
        """The same, and makes the file, whose name tells where the log begins when the others go."""
        self.roll(now_ms)
        assert self._active is not None
        self._active.file.append(b"")

    def reconfigure(self, config: LogConfig) -> None:
        """The topic's settings have changed."""
        self.config = config
        self._segment_bytes = config.segment_bytes
        if self._segments is not None:
            self._segments.active.reconfigure(config)
            self._limit_active(self._segments.active)

    # Reading

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool = True) -> Slice | None:
        """Up to `max_bytes` from the batch that holds `offset`, of batches below `upper_offset` (the high watermark or
        the last stable offset), within one segment. None when there is nothing. `at_least_one` gives the first batch
        even if it is larger (KIP-74). Raises Refused(OFFSET_OUT_OF_RANGE), and CORRUPT_MESSAGE."""
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"{self.directory} holds offsets {self.log_start_offset} to {end_offset}, not {offset}",
            )
        if offset >= upper_offset or offset == end_offset:
            return None
        tail = self._tail
        if tail is not None and offset == tail.base_offset and self._active is not None:
            segment, place = self._active, tail
        else:
            found = (self._segments or self._load()).find(offset)
            if found is None:
                return None
            segment, place = found
        # The usual case, everything readable up to the end, needs no second lookup.
        upper = segment.find(upper_offset) if upper_offset < end_offset else None
        if upper is not None and upper.position == place.position:
            # What may be read ends where a batch does: this one's last offset has rotted.
            raise CorruptSegment(segment.file, place.position)
        end = segment.size if upper is None else upper.position
        length = min(end - place.position, max(max_bytes, place.size) if at_least_one else max_bytes)
        if length < place.size:
            return None
        return Slice(segment.file, place.position, length)

    def offset_position(self, offset: int) -> tuple[int, int]:
        """(base offset of the segment, position in it) of the batch that holds `offset`, or of the end of the log."""
        segments = self._segments or self._load()
        found = segments.find(offset)
        if found is None:
            return segments.active.base_offset, segments.active.size
        return found[0].base_offset, found[1].position

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record that is not older than `timestamp`. Raises Refused(CORRUPT_MESSAGE)."""
        return (self._segments or self._load()).find_timestamp(timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> OffsetAndTimestamp | None:
        """The first record that has the largest timestamp (KIP-734). Raises Refused(CORRUPT_MESSAGE)."""
        return (self._segments or self._load()).find_largest_timestamp()

    # Transactions

    @property
    def producers(self) -> ProducerState:
        if self._segments is None:
            self._load()
        if self._producers is None:
            self._producers = ProducerState()
        return self._producers

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets the producers that have not written for so long. A log that nobody has used yet keeps its own."""
        if self._producers is not None:
            self._producers.expire(now_ms, expiration_ms)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Not below the log's start, where DeleteRecords may have put it in the middle of an open transaction."""
        if self._segments is None:
            self._load()
        if self._producers is None:
            return high_watermark
        return max(self._producers.last_stable_offset(high_watermark), min(self.log_start_offset, high_watermark))

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int, records: Slice | None = None
    ) -> list[AbortedTransaction]:
        """Those that a read-committed consumer must skip in [fetch_offset, upper_offset), or in the part of it that was
        read, `records`."""
        return (self._segments or self._load()).aborted_transactions(fetch_offset, upper_offset, records)

    # Leader epochs

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Notes that a leader of that epoch writes from `start_offset` on. The file is written when the segment is
        sealed and on closing: recovery reads the epochs of the active segment from its batches."""
        if epoch >= 0:
            self.epochs.assign(epoch, start_offset)
        self._latest_epoch = self.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch not above `epoch`, where it ended), (-1, -1) when not known (KIP-101, KIP-279)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        return self.epochs.epoch_for_offset(offset)
