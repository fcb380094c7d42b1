"""Bringing a log up from its directory: trusting it after a clean shutdown, checking its end after any other.

After a crash the segments from the recovery point on are read in full: whatever follows the last valid batch is cut,
indexes, producer state and leader epochs are made anew from what is left. Kafka throws the cut bytes away. Here, bytes
that may hold acknowledged batches (valid ones follow the damage, or there is more than a torn write can leave) are
kept beside the log in a `.corrupt` file, and the notes say so: a log with one replica has no peer to fetch them from.
"""

from bisect import bisect_left
from typing import NamedTuple

from penstock.base.ports import Disk, MissingFile
from penstock.log.checkpoints import BadCheckpoint
from penstock.log.config import LogConfig
from penstock.log.end_marker import read_end_marker
from penstock.log.epochs import FILE_NAME as EPOCHS_FILE
from penstock.log.epochs import EpochCache
from penstock.log.producer_snapshot import CorruptSnapshot, encode_snapshot, state_from_snapshot
from penstock.log.producer_state import ProducerState
from penstock.log.scan import CorruptSegment, holds_valid_batch, scan_headers, valid_batches
from penstock.log.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    offset_name,
)
from penstock.protocol.batch import CONTROL, NO_PRODUCER_ID, BatchHeader, crc_is_valid

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
CORRUPT_SUFFIX = ".corrupt"

# One append writes one batch; what it can leave torn is no longer than that. Larger than any sensible
# max.message.bytes, small enough to search in memory.
_TORN_BYTES_MAX = 16 << 20


class Listing(NamedTuple):
    """What the names in a log's directory tell."""

    base_offsets: list[int]
    snapshot_offsets: list[int]
    names: frozenset[str]


class Loaded(NamedTuple):
    segments: list[Segment]
    end_offset: int
    producers: ProducerState | None
    epochs: EpochCache
    notes: list[str]


def list_directory(disk: Disk, directory: str) -> Listing:
    """Reads the names, having finished or dropped what a crash interrupted."""
    names = disk.list(directory)
    if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        _finish_interrupted_work(disk, directory, names)
        names = disk.list(directory)
    base_offsets = [int(name[:20]) for name in names if name.endswith(LOG_SUFFIX) and name[:20].isdigit()]
    snapshots = [int(name[:20]) for name in names if name.endswith(SNAPSHOT_SUFFIX) and name[:20].isdigit()]
    # Snapshots belong to segments, but for the one that the last clean shutdown left at the end.
    strays = sorted(set(snapshots).difference(base_offsets))
    for offset in strays:
        if offset != strays[-1] or (base_offsets and offset < base_offsets[-1]):
            disk.remove(f"{directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}")
            snapshots.remove(offset)
    return Listing(base_offsets, snapshots, frozenset(names))


def _finish_interrupted_work(disk: Disk, directory: str, names: list[str]) -> None:
    """`.deleted` was on its way out, `.cleaned` was not finished. `.swap` is a finished replacement of the segments
    whose offsets it spans: those may be gone already, so it takes their place."""
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    for name in names:
        if name.endswith(DELETED_SUFFIX):
            disk.remove(f"{directory}/{name}")
    first_cleaned = min((int(name[:20]) for name in cleaned), default=None)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    for name in [*swaps, *cleaned]:
        # One operation makes all its .cleaned files before the first .swap: both together mean it was not finished.
        if name in cleaned or (first_cleaned is not None and int(name[:20]) >= first_cleaned):
            disk.remove(f"{directory}/{name}")
    swaps = [name for name in swaps if first_cleaned is None or int(name[:20]) < first_cleaned]
    spans = []
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            file = disk.open(f"{directory}/{name}")
            headers = [header for _, header in scan_headers(file, 0, file.size())]
            spans.append((int(name[:20]), headers[-1].last_offset + 1 if headers else int(name[:20])))
            file.close()
    if spans:
        first, end = min(start for start, _ in spans), max(end for _, end in spans)
        for name in names:
            if name.endswith(SEGMENT_SUFFIXES) and name[:20].isdigit() and first <= int(name[:20]) < end:
                disk.remove(f"{directory}/{name}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")


class Loader:
    """One log being brought up."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, listing: Listing, now_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._listing = listing
        self._now_ms = now_ms
        self._notes: list[str] = []
        self._segments = [Segment(disk, directory, base, config, now_ms) for base in listing.base_offsets]

    def load_clean(self) -> Loaded:
        """After a clean shutdown. There is at least one segment."""
        self._rebuild_missing_indexes(len(self._segments) - 1)
        active = self._segments[-1]
        active.activate()
        end_offset = active.next_offset()
        producers = self._replay_producers(end_offset)
        return Loaded(self._segments, end_offset, producers, self._read_epochs(len(self._segments)), self._notes)

    def recover(self, recovery_point: int) -> Loaded:
        """After a crash. There is at least one segment."""
        # Of a segment that ends just there, the files beside the .log may not have been synced when it was sealed.
        first = max(0, bisect_left(self._listing.base_offsets, recovery_point) - 1)
        self._rebuild_missing_indexes(first)
        producers = self._replay_producers(self._segments[first].base_offset) or ProducerState()
        epochs = self._read_epochs(first)
        # The file may be from before a truncation: what is read anew says which epochs are there.
        epochs.truncate_from_end(self._segments[first].base_offset)
        end_offset = self._segments[first].base_offset
        for slot in range(first, len(self._segments)):
            segment = self._segments[slot]
            end_offset = max(end_offset, segment.base_offset)
            end_offset, valid_bytes = self._recover_segment(segment, end_offset, producers, epochs)
            is_last = slot == len(self._segments) - 1
            if valid_bytes < segment.size or is_last or self._has_hole_after(slot, end_offset, recovery_point):
                self._cut(segment, valid_bytes, end_offset)
                self._set_aside_from(slot + 1, end_offset)
                break
            segment.seal()
            self._write_snapshot(self._segments[slot + 1].base_offset, producers)
        self._drop_snapshots_beyond(end_offset)
        epochs.truncate_from_end(end_offset)
        return Loaded(self._segments, end_offset, producers, epochs, self._notes)

    def _has_hole_after(self, slot: int, end_offset: int, recovery_point: int) -> bool:
        """A power cut may take the end of a segment, at a batch's edge, and leave the next one. Compaction here lets
        segments join, so a hole is meant only where offsets had to jump too far for one segment. Kafka's leaves others;
        in a log that it wrote, they are below the recovery point."""
        next_offset = self._segments[slot + 1].base_offset
        if next_offset == end_offset:
            return False
        is_jump = next_offset > self._segments[slot].offset_max
        return not self._config.is_compacted or (next_offset > recovery_point and not is_jump)

    def _recover_segment(
        self, segment: Segment, next_offset: int, producers: ProducerState, epochs: EpochCache
    ) -> tuple[int, int]:
        """(offset after the last valid batch, bytes up to there)."""
        segment.start_empty()
        segment.transactions.clear()
        valid_bytes = 0
        for position, header, batch in valid_batches(segment.file, next_offset, segment.offset_max):
            segment.note_batch(position, header.last_offset, header.max_timestamp)
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                _replay_batch(producers, segment, header, batch, self._now_ms)
            next_offset = header.last_offset + 1
            valid_bytes = position + header.size
        return next_offset, valid_bytes

    def _cut(self, segment: Segment, valid_bytes: int, end_offset: int) -> None:
        lost_bytes = segment.size - valid_bytes
        if lost_bytes == 0:
            return
        path = segment.file.path
        searched = segment.file.read(valid_bytes, min(lost_bytes, _TORN_BYTES_MAX))
        if lost_bytes > _TORN_BYTES_MAX or holds_valid_batch(searched, end_offset, segment.offset_max):
            kept = f"{path}.{valid_bytes}{CORRUPT_SUFFIX}"
            self._keep(segment, valid_bytes, kept)
            self._notes.append(
                f"{path} is damaged at byte {valid_bytes} (offset {end_offset}), and valid batches may follow. The log "
                f"now ends there; the {lost_bytes} bytes after it are kept in {kept}. Look at the disk, and at that "
                f"file with `penstock log dump`."
            )
        else:
            self._notes.append(
                f"{path} ended in a torn write: {lost_bytes} bytes after offset {end_offset - 1} were cut"
            )
        segment.file.truncate(valid_bytes)
        segment.size = valid_bytes

    def _keep(self, segment: Segment, position: int, path: str) -> None:
        self._disk.remove(path)
        kept = self._disk.open(path)
        while position < segment.size:
            data = segment.file.read(position, _TORN_BYTES_MAX)
            kept.append(data)
            position += len(data)
        kept.sync()
        kept.close()

    def _set_aside_from(self, slot: int, end_offset: int) -> None:
        """Segments after a damaged one would leave a hole: they go, as in Kafka, but only aside."""
        for segment in self._segments[slot:]:
            segment.close()
            stem = segment.file.path.removesuffix(LOG_SUFFIX)
            self._disk.rename(stem + LOG_SUFFIX, stem + LOG_SUFFIX + CORRUPT_SUFFIX)
            for suffix in SEGMENT_SUFFIXES[1:]:
                self._disk.remove(stem + suffix)
            self._notes.append(
                f"{stem}{LOG_SUFFIX} comes after the damage and was set aside as {stem}{LOG_SUFFIX}{CORRUPT_SUFFIX}; "
                f"the log ends at offset {end_offset}"
            )
        del self._segments[slot:]

    def _rebuild_missing_indexes(self, count: int) -> None:
        """Of the first `count` segments, which nothing else looks at."""
        for segment in self._segments[:count]:
            stem = offset_name(segment.base_offset)
            if not {stem + OFFSET_INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX} <= self._listing.names:
                self._notes.append(f"{segment.file.path} had no index: it was made anew")
                segment.rebuild_indexes()
                segment.seal()

    def _replay_producers(self, end_offset: int) -> ProducerState | None:
        return load_producers(
            self._disk,
            self._directory,
            self._listing.snapshot_offsets,
            self._segments,
            end_offset,
            self._now_ms,
            self._notes,
        )

    def _write_snapshot(self, offset: int, producers: ProducerState) -> None:
        path = f"{self._directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"
        self._disk.write_file(path, encode_snapshot(producers), durable=False)

    def _drop_snapshots_beyond(self, end_offset: int) -> None:
        for offset in self._listing.snapshot_offsets:
            if offset > end_offset:
                self._disk.remove(f"{self._directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}")

    def _read_epochs(self, count: int) -> EpochCache:
        """The leader epochs from their file; when there is no good one, from the first `count` segments."""
        path = f"{self._directory}/{EPOCHS_FILE}"
        try:
            return EpochCache.parse(self._disk.read_file(path), path)
        except MissingFile:
            pass
        except BadCheckpoint as problem:
            self._notes.append(f"{problem} It was made anew from the batches.")
        epochs = EpochCache()
        for segment in self._segments[:count]:
            for _, header in scan_headers(segment.file, 0, segment.size):
                if header.leader_epoch > epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
        return epochs


def _replay_batch(state: ProducerState, segment: Segment, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
    """Takes a batch of a recovered segment into the producer state and the segment's transaction index."""
    marker = read_end_marker(batch, header) if header.attributes & CONTROL else None
    if marker is not None:
        aborted = state.aborted_by(header, header.base_offset, marker)
        if aborted is not None:
            segment.transactions.append(aborted)
    state.update(header, header.base_offset, marker, now_ms)


def load_producers(
    disk: Disk,
    directory: str,
    snapshot_offsets: list[int],
    segments: list[Segment],
    end_offset: int,
    now_ms: int,
    notes: list[str],
) -> ProducerState | None:
    """The producer state at `end_offset`: from the newest good snapshot, and the batches after it. None if empty."""
    state, from_offset = ProducerState(), 0
    for offset in sorted(snapshot_offsets, reverse=True):
        if offset > end_offset:
            continue
        path = f"{directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"
        try:
            state, from_offset = state_from_snapshot(disk.read_file(path), now_ms), offset
            break
        except (CorruptSnapshot, MissingFile) as problem:
            notes.append(f"{path} is no producer snapshot ({problem}): an older one was used instead")
            disk.remove(path)
    for slot, segment in enumerate(segments):
        ends_before = slot + 1 < len(segments) and segments[slot + 1].base_offset <= from_offset
        if not ends_before and segment.base_offset < end_offset:
            _replay_segment(state, segment, from_offset, end_offset, now_ms)
    return state if state.producers else None


def _replay_segment(state: ProducerState, segment: Segment, from_offset: int, end_offset: int, now_ms: int) -> None:
    """Replays the batches of [from_offset, end_offset), whose transaction index is trusted. Raises CorruptSegment: who
    wrote what must not be learned from a batch that has rotted."""
    place = segment.find(max(from_offset, segment.base_offset))
    if place is None:
        return
    for position, header in scan_headers(segment.file, place.position, segment.size):
        if header.base_offset >= end_offset:
            break
        # Others, as all in the metadata log, tell nothing here; whoever reads them finds their damage.
        if header.producer_id != NO_PRODUCER_ID:
            batch = memoryview(segment.file.read(position, header.size))
            if len(batch) < header.size or not crc_is_valid(batch, header):
                raise CorruptSegment(segment.file, position)
            marker = read_end_marker(batch, header) if header.attributes & CONTROL else None
            state.update(header, header.base_offset, marker, now_ms)
