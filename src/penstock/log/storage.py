"""A log as it stands on the disk: how it comes up, how it is kept, how it is made shorter. log.py appends and reads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self
from uuid import UUID
from zlib import crc32

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Disk, DiskError, File
from penstock.log import swapping
from penstock.log.checkpoints import PARTITION_METADATA_FILE, parse_partition_metadata
from penstock.log.config import LogConfig
from penstock.log.epochs import FILE_NAME as EPOCHS_FILE
from penstock.log.epochs import EpochCache
from penstock.log.loading import Loaded, Loader, list_directory, load_producers
from penstock.log.producer_snapshot import encode_snapshot
from penstock.log.producer_state import ProducerState
from penstock.log.scan import CorruptSegment, Place
from penstock.log.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, Segment, offset_name
from penstock.log.segments import Segments
from penstock.protocol.records import CorruptRecords

_DELETED_DIRECTORY_SUFFIX = "-delete"
_FILE_NAME_MAX = 255
_NO_OFFSET = -1


class Flush(NamedTuple):
    """What to sync for everything below `end_offset` to survive a power cut."""

    files: list[File]
    end_offset: int


class StoredLog:
    __slots__ = (
        "_active",
        "_closed_end_offset",
        "_disk",
        "_epochs",
        "_is_new",
        "_latest_epoch",
        "_opened_ms",
        "_producers",
        "_roll_ms",
        "_segment_bytes",
        "_segments",
        "_size_before_use",
        "_tail",
        "_unsynced_paths",
        "config",
        "directory",
        "log_end_offset",
        "log_start_offset",
        "may_lack_beginning",
        "recovery_notes",
        "recovery_point",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        topic_id: UUID | None,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.config = config
        self.topic_id = topic_id
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        # Everything below is on the disk, and need not be checked after a crash.
        self.recovery_point = recovery_point
        # After a crash: whether segments may be gone that nobody dropped.
        self.may_lack_beginning = False
        # What the start found wrong and did about it, in sentences for the operator.
        self.recovery_notes: tuple[str, ...] = ()
        self._opened_ms = now_ms
        # No segment has ever been written; there may be no directory.
        self._is_new = False
        # None until the first read or write.
        self._segments: Segments | None = None
        # None until somebody asks; until the first read or write it cannot change.
        self._size_before_use: int | None = None
        # The last segment, None until the first write.
        self._active: Segment | None = None
        self._producers: ProducerState | None = None
        self._epochs: EpochCache | None = None
        self._latest_epoch = -1
        # Where the last batch stands: what consumers at the end ask for next.
        self._tail: Place | None = None
        # The end when the files beside the .log were last written.
        self._closed_end_offset = log_end_offset
        self._unsynced_paths: tuple[str, ...] = ()
        self._segment_bytes = config.segment_bytes
        self._roll_ms = config.roll_ms

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        topic_id: UUID | None,
        recovery_point: int,
        clean: bool,
        log_start_offset: int,
        now_ms: int,
    ) -> Self:
        """The log in `directory`, which is made by the first append. `clean` says that the last close was. Raises
        Refused(INCONSISTENT_TOPIC_ID) when the directory belongs to another topic of that name."""
        listing = list_directory(disk, directory)
        if topic_id is not None and PARTITION_METADATA_FILE in listing.names:
            _check_topic_id(disk, directory, topic_id)
        if not listing.base_offsets:
            for name in sorted(listing.names):
                if name.endswith(SEGMENT_SUFFIXES):
                    # A power cut took the segment, and not what stands beside it: that is of another log now.
                    disk.remove(f"{directory}/{name}")
            log = cls(disk, directory, config, topic_id, log_start_offset, log_start_offset, log_start_offset, now_ms)
            log._is_new = True
            return log
        # Names below the recovery point were synced. A power cut may take others, and leave those of later segments.
        may_lack_beginning = not clean and listing.base_offsets[0] > max(log_start_offset, recovery_point)
        log_start_offset = max(log_start_offset, listing.base_offsets[0])
        # A clean close leaves a producer snapshot at the end of the log.
        end_offset = listing.snapshot_offsets[-1] if listing.snapshot_offsets else _NO_OFFSET
        if clean and end_offset >= max(listing.base_offsets[-1], log_start_offset):
            return cls(disk, directory, config, topic_id, log_start_offset, end_offset, end_offset, now_ms)
        loader = Loader(disk, directory, config, listing, now_ms)
        with _damage_ends_use():
            loaded = loader.load_clean() if clean else loader.recover(recovery_point)
        log = cls(disk, directory, config, topic_id, log_start_offset, loaded.end_offset, recovery_point, now_ms)
        log._install(loaded)
        log.may_lack_beginning = may_lack_beginning
        log.recovery_point = loaded.end_offset if clean else min(recovery_point, loaded.end_offset)
        if not clean:
            log._closed_end_offset = _NO_OFFSET
        if loaded.end_offset < log_start_offset:
            log._restart_at(log_start_offset)
        return log

    def _restart_at(self, offset: int) -> None:
        note = (
            f"{self.directory} ended at offset {self.log_end_offset}, before its start {offset}: it begins anew there"
        )
        self.recovery_notes += (note,)
        for path in self.truncate_fully_and_start_at(offset, self._opened_ms):
            self._disk.remove(path)

    def _load(self) -> Segments:
        """Brings the log up for its first use after a clean shutdown, or as a new one."""
        if self._is_new:
            segment = Segment(self._disk, self.directory, self.log_end_offset, self.config, self._opened_ms)
            segment.start_empty()
            self._install(Loaded([segment], self.log_end_offset, None, EpochCache(), []))
        else:
            end_offset = self.log_end_offset
            listing = list_directory(self._disk, self.directory)
            with _damage_ends_use():
                loaded = Loader(self._disk, self.directory, self.config, listing, self._opened_ms).load_clean()
            self._install(loaded)
            if self.log_end_offset != end_offset:
                self.recovery_notes += (
                    f"{self.directory} ends at {self.log_end_offset}, not at {end_offset} as its last snapshot says",
                )
        assert self._segments is not None
        return self._segments

    def _install(self, loaded: Loaded) -> None:
        self._segments = Segments(loaded.segments)
        self._active = None
        self._producers = loaded.producers
        self._epochs = loaded.epochs
        loaded.epochs.truncate_from_start(self.log_start_offset)
        self._latest_epoch = loaded.epochs.latest
        self.log_end_offset = loaded.end_offset
        self.recovery_notes += tuple(loaded.notes)

    @property
    def is_loaded(self) -> bool:
        """Whether it was used since the start; if not, it costs next to nothing, and that is worth keeping."""
        return self._segments is not None

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers that were silent for so long."""
        if self._producers is not None:
            self._producers.expire(now_ms, expiration_ms)

    @property
    def segments(self) -> Segments:
        """The row of them, for those who judge what may go or be compacted; only this log changes it."""
        return self._segments or self._load()

    @property
    def size(self) -> int:
        """Bytes in .log files."""
        if self._segments is not None:
            return self._segments.size
        if self._size_before_use is None:
            names = () if self._is_new else self._disk.list(self.directory)
            files = (self._disk.open(f"{self.directory}/{name}") for name in names if name.endswith(LOG_SUFFIX))
            self._size_before_use = sum(file.size() for file in files)
        return self._size_before_use

    # Keeping

    @property
    def epochs(self) -> EpochCache:
        if self._epochs is None:
            self._load()
            assert self._epochs is not None
        return self._epochs

    def _write_epochs(self) -> None:
        if self.epochs.has_changed:
            self._write_beside(EPOCHS_FILE, self.epochs.format())
            self.epochs.has_changed = False

    def _write_snapshot(self, offset: int) -> None:
        self._write_beside(f"{offset_name(offset)}{SNAPSHOT_SUFFIX}", encode_snapshot(self._producers))

    def _write_beside(self, name: str, data: bytes) -> None:
        """A small file that the next flush makes durable."""
        path = f"{self.directory}/{name}"
        self._disk.write_file(path, data, durable=False)
        if path not in self._unsynced_paths:
            self._unsynced_paths += (path,)

    def flush(self) -> Flush:
        """What to sync now. Cheap when only the active segment has grown."""
        segments = self._segments
        if segments is None or self.recovery_point >= self.log_end_offset:
            return Flush([], self.log_end_offset)
        files = [self._disk.open(path) for path in self._unsynced_paths if self._disk.exists(path)]
        return Flush(files + segments.files_from(self.recovery_point), self.log_end_offset)

    def mark_flushed(self, flush: Flush) -> None:
        """The files of `flush` are synced."""
        self.recovery_point = max(self.recovery_point, min(flush.end_offset, self.log_end_offset))
        if self._unsynced_paths:
            synced = {file.path for file in flush.files}
            self._unsynced_paths = tuple(
                path for path in self._unsynced_paths if path not in synced and self._disk.exists(path)
            )

    def close(self, clean: bool = True) -> None:
        """Gives the descriptors back. A clean close writes what makes the next start quick."""
        segments = self._segments
        if segments is None:
            return
        if clean and not self._is_bare(segments):
            if self.log_end_offset != self._closed_end_offset:
                segments.active.write_indexes()
                self._write_snapshot(self.log_end_offset)
                self._closed_end_offset = self.log_end_offset
            self._write_epochs()
        segments.close()

    def _is_bare(self, segments: Segments) -> bool:
        """Whether the log is so small that reading it is as quick as reading files beside it, and has none yet. Then it
        gets none: making files is what stopping a node with thousands of hardly used partitions would spend its time
        on."""
        return self._is_new or (
            segments.first is segments.active
            and segments.active.is_small
            and not segments.active.has_files_beside()
            and not self._disk.exists(f"{self.directory}/{EPOCHS_FILE}")
        )

    def delete(self) -> str:
        """Takes the log out of the way for good and returns the path of what is left of it, to be removed."""
        if self._segments is not None:
            self.close(clean=False)
        topic = self.topic_id.hex if self.topic_id is not None else "0" * 32
        # Two partitions of a topic with a long name may differ only in what is cut off.
        suffix = f".{topic[:24]}{crc32(self.directory.encode()):08x}{_DELETED_DIRECTORY_SUFFIX}"
        path = self.directory[: _FILE_NAME_MAX - len(suffix)] + suffix
        if self._disk.exists(self.directory):
            self._disk.rename(self.directory, path)
        return path

    # Shortening

    def advance_log_start(self, offset: int) -> list[str]:
        """Records below `offset` are gone (DeleteRecords, retention): whole segments of them are dropped. Raises
        Refused(OFFSET_OUT_OF_RANGE) beyond the end."""
        if offset > self.log_end_offset:
            raise Refused(
                ErrorCode.offset_out_of_range, f"{self.directory} ends at {self.log_end_offset}, before {offset}"
            )
        if offset <= self.log_start_offset:
            return []
        segments = self._segments or self._load()
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return segments.drop(self._disk, segments.wholly_below(offset))

    def drop_below_start(self) -> list[str]:
        """Drops the segments that hold nothing any more."""
        doomed = self.segments.wholly_below(self.log_start_offset)
        if doomed and self.segments.active.size == 0:
            # Its name tells where the log begins when the others are gone.
            self.segments.active.file.append(b"")
        return self.segments.drop(self._disk, doomed)

    def replace_segments(self, replaced: Sequence[tuple[int, int]], now_ms: int) -> list[str] | None:
        """Puts the `.cleaned` segment that compaction made of these, (base offset, size), into their place, and returns
        the paths to remove later. None, the log being as it was, when they are not there any more. Raises DiskError."""
        segments = self.segments
        base_offsets = [base_offset for base_offset, _ in replaced]
        old = segments.neighbours(replaced)
        if old is None:
            swapping.discard(self._disk, self.directory, base_offsets[0])
            return None
        paths = swapping.swap_files(self._disk, self.directory, base_offsets)
        segments.replace(old, Segment(self._disk, self.directory, base_offsets[0], self.config, now_ms))
        return paths

    def truncate_to(self, offset: int, now_ms: int) -> list[str]:
        """Drops everything from `offset` on."""
        segments = self._segments or self._load()
        self.epochs.truncate_from_end(min(offset, self.log_end_offset))
        self._latest_epoch = self.epochs.latest
        if offset >= self.log_end_offset:
            return []
        if offset < segments.first.base_offset:
            return self.truncate_fully_and_start_at(offset, now_ms)
        dropped = segments.drop(self._disk, segments.wholly_beyond(offset))
        with _damage_ends_use():
            segments.active.truncate_to(offset, now_ms)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self._forget_end(offset)
        snapshot_offsets = self._drop_snapshots_beyond(offset)
        notes: list[str] = []
        with _damage_ends_use():
            self._producers = load_producers(
                self._disk, self.directory, snapshot_offsets, list(segments), offset, now_ms, notes
            )
        self.recovery_notes += tuple(notes)
        return dropped

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> list[str]:
        """Drops everything; the next batch will stand at `offset`."""
        segments = self._segments or self._load()
        dropped = segments.drop(self._disk, list(segments))
        self._drop_snapshots_beyond(_NO_OFFSET)
        self._disk.make_directory(self.directory)
        segment = Segment(self._disk, self.directory, offset, self.config, now_ms)
        segment.start_empty()
        # The name of the empty file is all that tells where the log begins.
        segment.file.append(b"")
        self.log_start_offset = offset
        self._install(Loaded([segment], offset, None, EpochCache(), []))
        self.epochs.has_changed = True
        self._forget_end(offset)
        return dropped

    def _drop_snapshots_beyond(self, offset: int) -> list[int]:
        """Returns the offsets of those that stay."""
        kept = []
        for name in self._disk.list(self.directory):
            if name.endswith(SNAPSHOT_SUFFIX):
                if int(name[:20]) > offset:
                    self._disk.remove(f"{self.directory}/{name}")
                else:
                    kept.append(int(name[:20]))
        return kept

    def _forget_end(self, offset: int) -> None:
        self._active = None
        self._tail = None
        self._closed_end_offset = _NO_OFFSET
        self.recovery_point = min(self.recovery_point, offset)


@contextmanager
def _damage_ends_use() -> Iterator[None]:
    """Where what was trusted is damaged, this log cannot be used, whoever wants it and for whatever: DiskError."""
    try:
        yield
    except (CorruptSegment, CorruptRecords) as problem:
        raise DiskError(str(problem)) from problem


def _check_topic_id(disk: Disk, directory: str, topic_id: UUID) -> None:
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    found = parse_partition_metadata(disk.read_file(path), path)
    if found != topic_id:
        raise Refused(
            ErrorCode.inconsistent_topic_id,
            f"{directory} holds the data of an earlier topic of that name (id {found}, not {topic_id})",
        )
