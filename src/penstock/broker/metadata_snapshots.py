"""Snapshots of the metadata: with them a log that never ends need neither be kept nor replayed from its beginning.

One is begun when enough was applied since the last. Its records are gathered in one go, because they must tell of one
moment; they are encoded and written a few at a time, between other work, synced off the loop, and take their name last.
The log keeps what lies between the last two snapshots: a follower that is a little behind needs no snapshot.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.base.ports import Clock, DiskError
from penstock.broker.group_commit import GroupCommit
from penstock.cluster.metadata.records import MetadataRecord, decode_record, encode_record
from penstock.cluster.raft.control_records import snapshot_closing, snapshot_opening
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.stored_log import StoredRaftLog
from penstock.cluster.raft.voters import VoterSet
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, crc_is_valid, read_header
from penstock.protocol.records import Record, build_batch, iterate_records

log = logging.getLogger("penstock.quorum")

# So many take a few milliseconds.
_RECORDS_PER_BATCH = 500


@dataclass(frozen=True)
class SnapshotRules:
    """How much of the log may be applied, and how long, until a snapshot is due; 0 ms: time does not count."""

    bytes_between: int
    ms_between: int


class SnapshotWriter:
    def __init__(
        self,
        rules: SnapshotRules,
        stored_log: StoredRaftLog,
        group_commit: GroupCommit,
        clock: Clock,
        gather: Callable[[], Sequence[MetadataRecord] | None],
        voters_before: Callable[[int], tuple[VoterSet, int]],
    ) -> None:
        """`gather` gives everything that was applied as records, or None while that would not be whole."""
        self._rules = rules
        self._log = stored_log
        self._group_commit = group_commit
        self._clock = clock
        self._gather = gather
        self._voters_before = voters_before
        self._applied_bytes = 0
        self._last_applied: BatchHeader | None = None
        self._last_begun_ms = clock.monotonic_ms()
        self._task: asyncio.Task[None] | None = None

    def count(self, header: BatchHeader) -> None:
        """This batch was applied."""
        self._applied_bytes += header.size
        self._last_applied = header

    def restart(self) -> None:
        """A snapshot from elsewhere took the place of all that was applied."""
        self._applied_bytes = 0
        self._last_applied = None

    def begin_if_due(self) -> None:
        last = self._last_applied
        now_ms = self._clock.monotonic_ms()
        if last is None or self._task is not None or not self._is_due(now_ms):
            return
        records = self._gather()
        if records is None:
            return
        self._applied_bytes = 0
        self._last_begun_ms = now_ms
        self._task = asyncio.get_running_loop().create_task(self._write(last, records))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _is_due(self, now_ms: int) -> bool:
        is_late = 0 < self._rules.ms_between <= now_ms - self._last_begun_ms and self._applied_bytes > 0
        return is_late or self._applied_bytes >= self._rules.bytes_between

    async def _write(self, last: BatchHeader, records: Sequence[MetadataRecord]) -> None:
        snapshot_id = OffsetAndEpoch(last.last_offset + 1, last.leader_epoch)
        try:
            position = 0
            for batch in self._batches(snapshot_id, last.max_timestamp, records):
                self._log.receive_snapshot(snapshot_id, position, batch)
                position += len(batch)
                await asyncio.sleep(0)
            await self._group_commit.sync([self._log.received_file(snapshot_id)])
            self._log.keep_own_snapshot(snapshot_id)
        except DiskError as problem:
            # The log has it all: only the next start takes longer.
            log.error("no snapshot of the metadata could be written, it will be tried again: %s", problem)
        else:
            log.info("a snapshot of the metadata up to offset %d: %d records", snapshot_id.offset, len(records))
        finally:
            self._task = None

    def _batches(
        self, snapshot_id: OffsetAndEpoch, last_timestamp: int, records: Sequence[MetadataRecord]
    ) -> Iterator[bytearray]:
        now_ms = self._clock.now_ms()
        epoch = snapshot_id.epoch
        opening = snapshot_opening(last_timestamp, *self._voters_before(snapshot_id.offset), epoch, now_ms)
        yield opening
        offset = read_header(opening).last_offset + 1
        for start in range(0, len(records), _RECORDS_PER_BATCH):
            some = records[start : start + _RECORDS_PER_BATCH]
            yield build_batch(
                [Record(offset + index, now_ms, None, encode_record(record)) for index, record in enumerate(some)],
                leader_epoch=epoch,
            )
            offset += len(some)
        yield snapshot_closing(offset, epoch, now_ms)


def metadata_records(batch: memoryview, header: BatchHeader) -> Iterator[MetadataRecord]:
    """Raises DiskError where the batch is damaged: nobody may act on metadata that was never decided."""
    if not crc_is_valid(batch, header):
        raise DiskError(
            f"the metadata at offset {header.base_offset} is damaged. Restore the node's metadata directory"
        )
    for record in iterate_records(batch, header):
        assert record.value is not None
        yield decode_record(record.value)


def snapshot_records(data: memoryview) -> Iterator[list[MetadataRecord]]:
    """What a snapshot holds, batch by batch, without the quorum's own records."""
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        if not header.is_control:
            yield list(metadata_records(data[position : position + header.size], header))
        position += header.size
