"""What the quorum needs of the log below it, and the two questions of divergence it asks.

The log is written at once (into the page cache) and synced on demand: see `Sync` in effects.py. stored_log.py
implements it on the log that topics have.
"""

from typing import NamedTuple, Protocol

from penstock.base.ports import Bytes
from penstock.cluster.raft.rpc import OffsetAndEpoch

# Content of a bootstrap snapshot comes from formatting the node; it is never replicated.
BOOTSTRAP_SNAPSHOT_ID = OffsetAndEpoch(0, 0)


class RaftLog(Protocol):
    """Every method may raise DiskError, which ends this node's part in the quorum until it is restarted."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Of the last entry, or of the snapshot when there is none after it; 0 when there is nothing at all."""

    @property
    def synced_offset(self) -> int:
        """Everything below was on the disk when the log was opened."""

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch not above `epoch` and where it ended; the log's own end when nothing is known."""

    def epoch_for_offset(self, offset: int) -> int: ...

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from `offset` on, at least one if there is any."""

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> int:
        """Places one batch at the end; returns its base offset."""

    def append_as_follower(self, data: Bytes, now_ms: int) -> None:
        """Takes over the leader's batches as they are. Raises Refused for those that do not follow or are damaged."""

    def truncate(self, end_offset: int, now_ms: int) -> None: ...

    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """None when there is no such snapshot."""

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, length: int) -> bytes: ...

    def receive_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: Bytes) -> None:
        """Bytes of a snapshot on its way, in order; position 0 begins it anew."""

    def received_snapshot(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """All that was received of it."""

    def install_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """The snapshot received takes the place of the whole log, which now begins and ends at its end."""


class Validity(NamedTuple):
    """What a leader says to a follower's end of log: go on (both None), truncate, or take a snapshot."""

    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None


def validate_fetch(log: RaftLog, offset: int, epoch: int) -> Validity:
    latest = log.latest_snapshot()
    if latest is not None and latest != BOOTSTRAP_SNAPSHOT_ID and offset == 0:
        # An empty log is filled faster from a snapshot.
        return Validity(snapshot_id=latest)
    if offset == 0 and epoch == 0 and log.start_offset == 0:
        return Validity()
    earliest = log.earliest_snapshot()
    if (
        earliest is not None
        and latest is not None
        and (
            offset < log.start_offset
            or (offset == log.start_offset and epoch != earliest.epoch)
            or epoch < earliest.epoch
        )
    ):
        return Validity(snapshot_id=latest)
    known = log.end_offset_for_epoch(epoch)
    if known.epoch != epoch or known.offset < offset:
        return Validity(diverging=known)
    return Validity()


def truncation_offset(log: RaftLog, diverging: OffsetAndEpoch) -> int:
    """Where a follower cuts its log when the leader's part ways with it there (KIP-595, as KIP-279 for partitions)."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    known = log.end_offset_for_epoch(diverging.epoch)
    if known.epoch == diverging.epoch:
        return min(known.offset, diverging.offset)
    return known.offset
