"""The quorum's log on the log that topics have, with Kafka's snapshot files beside it, and the quorum-state file.

A snapshot is `00000000000000000123-0000000005.checkpoint`, named by the offset behind what it holds and the epoch of
the last of that; one on its way ends in `.part`. All of it is in `__cluster_metadata-0`.

How the shell does what the quorum asks for
- `Persist`: `Disk.write_file(QUORUM_STATE_FILE, format_quorum_state(...))`, durable.
- `Sync`: `flush`, sync its files off the loop, `mark_flushed`, `Quorum.synced`.
- `StoreSnapshot`: sync `received_file` off the loop, then `Quorum.snapshot_stored`.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import NamedTuple
from uuid import UUID

from penstock.base.ports import Bytes, Disk, DiskError, File
from penstock.cluster.raft.control_records import batches_of
from penstock.cluster.raft.effects import NO_NODE, VoteState
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.log.config import LogConfig
from penstock.log.log import Flush, Log
from penstock.log.scan import CorruptSegment
from penstock.protocol.batch import crc_is_valid, read_header

DIRECTORY = "__cluster_metadata-0"
QUORUM_STATE_FILE = f"{DIRECTORY}/quorum-state"
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART_SUFFIX = ".part"
_DATA_VERSION = 1
_ZERO_UUID = UUID(int=0)


class RaftFlush(NamedTuple):
    flush: Flush
    truncations: int


class StoredRaftLog:
    """A `RaftLog` on a Disk."""

    def __init__(self, disk: Disk, *, clean: bool, now_ms: int, config: LogConfig | None = None) -> None:
        self._disk = disk
        self.log = Log.open(
            disk,
            DIRECTORY,
            config or LogConfig(),
            topic_id=None,
            recovery_point=0,
            clean=clean,
            log_start_offset=0,
            now_ms=now_ms,
        )
        self._truncations = 0
        names = disk.list(DIRECTORY)
        for name in names:
            if name.endswith(_PART_SUFFIX):
                disk.remove(f"{DIRECTORY}/{name}")
        self._snapshots = sorted(
            OffsetAndEpoch(int(found[1]), int(found[2]))
            for found in map(_SNAPSHOT_NAME.fullmatch, names)
            if found is not None
        )
        latest = self.latest_snapshot()
        if latest is not None and (
            latest.offset > self.log.log_end_offset or latest.epoch > max(self.log.latest_epoch, 0)
        ):
            # It was received, and the power went before the log had made place for it.
            self._restart_behind(latest, now_ms)
        if self.start_offset > (latest.offset if latest is not None else 0):
            raise DiskError(
                f"the metadata log begins at offset {self.start_offset}, and no snapshot says what was before: topics "
                f"would seem to be deleted. Restore the .checkpoint files of {DIRECTORY}"
            )

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        if self.log.latest_epoch >= 0:
            return self.log.latest_epoch
        latest = self.latest_snapshot()
        return latest.epoch if latest is not None else 0

    @property
    def synced_offset(self) -> int:
        return self.log.recovery_point

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        found_epoch, offset = self.log.end_offset_for_epoch(epoch)
        if found_epoch < 0:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        earliest = self.earliest_snapshot()
        if earliest is not None and offset == earliest.offset and found_epoch == epoch:
            # Below what the log knows: the snapshot knows which epoch ended there.
            return earliest
        return OffsetAndEpoch(offset, found_epoch)

    def epoch_for_offset(self, offset: int) -> int:
        return self.log.epoch_for_offset(offset)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches, the first of them with `offset`; none at the end. Raises DiskError where they are damaged:
        what comes behind must not seem to be the end."""
        try:
            found = self.log.read(offset, bytes_max, self.end_offset, at_least_one=True)
        except CorruptSegment as problem:
            raise _damaged(offset) from problem
        if found is None:
            return b""
        data = found.file.read(found.position, found.length)
        size, expected = 0, offset
        for header, batch in batches_of(data):
            if not header.base_offset <= expected <= header.last_offset or not crc_is_valid(batch, header):
                break
            size += header.size
            expected = header.last_offset + 1
        if not size:
            raise _damaged(offset)
        return data[:size]

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> int:
        return self.log.append(batch, read_header(batch), epoch, now_ms)

    def append_as_follower(self, data: Bytes, now_ms: int) -> None:
        self.log.append_as_follower(data if isinstance(data, bytes) else memoryview(data), now_ms)

    def truncate(self, end_offset: int, now_ms: int) -> None:
        self._truncations += 1
        for path in self.log.truncate_to(end_offset, now_ms):
            self._disk.remove(path)

    def flush(self) -> RaftFlush:
        return RaftFlush(self.log.flush(), self._truncations)

    def mark_flushed(self, flushed: RaftFlush) -> None:
        """A flush from before a truncation says nothing of what was written after it."""
        if flushed.truncations == self._truncations:
            self.log.mark_flushed(flushed.flush)

    # Snapshots

    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self._snapshots[-1] if self._snapshots else None

    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return self._snapshots[0] if self._snapshots else None

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        return self._disk.open(_path(snapshot_id)).size() if snapshot_id in self._snapshots else None

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, length: int) -> bytes:
        return self._disk.open(_path(snapshot_id)).read(position, length)

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """A snapshot of one's own, of what is committed; durable when this returns."""
        self._disk.write_file(_path(snapshot_id), data)
        self._snapshots = sorted({*self._snapshots, snapshot_id})

    def keep_own_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Gives its name to one that was written as one is received, of what is committed here, and synced. The one
        before is kept, with the log since: a follower may need just that. Those before go."""
        latest = self.latest_snapshot()
        if latest is not None and latest >= snapshot_id:
            # The leader's came meanwhile.
            self._disk.remove(_path(snapshot_id) + _PART_SUFFIX)
            return
        self._disk.rename(_path(snapshot_id) + _PART_SUFFIX, _path(snapshot_id))
        self._snapshots.append(snapshot_id)
        if latest is not None:
            self.trim_to(latest)

    def trim_to(self, snapshot_id: OffsetAndEpoch) -> None:
        """What that snapshot holds is no longer needed in the log, nor are the snapshots before it. Segments go as a
        whole: after a restart the log begins where the first that is left does."""
        assert snapshot_id in self._snapshots
        for path in self.log.advance_log_start(snapshot_id.offset):
            self._disk.remove(path)
        self._drop_snapshots_before(snapshot_id)

    def _drop_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        for old in [known for known in self._snapshots if known < snapshot_id]:
            self._disk.remove(_path(old))
            self._snapshots.remove(old)

    def receive_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: Bytes) -> None:
        if position == 0:
            self._disk.make_directory(DIRECTORY)
            self._disk.remove(_path(snapshot_id) + _PART_SUFFIX)
        file = self.received_file(snapshot_id)
        assert file.size() == position
        file.append(data)

    def received_file(self, snapshot_id: OffsetAndEpoch) -> File:
        return self._disk.open(_path(snapshot_id) + _PART_SUFFIX)

    def received_snapshot(self, snapshot_id: OffsetAndEpoch) -> bytes:
        return self._disk.read_file(_path(snapshot_id) + _PART_SUFFIX)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        # First its name, then the place: a start that finds it beyond the log's end goes on from here.
        self._disk.rename(_path(snapshot_id) + _PART_SUFFIX, _path(snapshot_id))
        self._snapshots = sorted({*self._snapshots, snapshot_id})
        self._restart_behind(snapshot_id, now_ms)

    def _restart_behind(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        self._truncations += 1
        for path in self.log.truncate_fully_and_start_at(snapshot_id.offset, now_ms):
            self._disk.remove(path)
        self._drop_snapshots_before(snapshot_id)

    def close(self) -> None:
        self.log.close()


def _damaged(offset: int) -> DiskError:
    return DiskError(f"the metadata at offset {offset} is damaged. Restore the node's metadata directory")


def _path(snapshot_id: OffsetAndEpoch) -> str:
    return f"{DIRECTORY}/{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


def format_quorum_state(state: VoteState) -> bytes:
    """Kafka's quorum-state, version 1."""
    directory_id = state.voted_directory_id or _ZERO_UUID
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": urlsafe_b64encode(directory_id.bytes).rstrip(b"=").decode(),
        "data_version": _DATA_VERSION,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_quorum_state(data: bytes) -> VoteState:
    """Versions 0 and 1. Raises DiskError: a vote that cannot be read must not be forgotten, so the node does not
    start."""
    try:
        fields = json.loads(data)
        directory_id = UUID(bytes=urlsafe_b64decode(fields.get("votedDirectoryId", "A" * 22) + "=="))
        return VoteState(
            int(fields["leaderEpoch"]),
            int(fields.get("leaderId", NO_NODE)),
            int(fields.get("votedId", NO_NODE)),
            None if directory_id == _ZERO_UUID else directory_id,
        )
    except (ValueError, KeyError, TypeError, AttributeError, NotBase64) as error:
        raise DiskError(f"{QUORUM_STATE_FILE} cannot be read: {error}. Restore it, or remove this voter") from error
