"""Keeps logs in shape while the node runs: what is too old or too much goes, compacted topics are compacted, producers
that were silent for long are forgotten.

Decisions are the log room's; here is when, in which order, and what becomes of the files.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from penstock.base.ports import Clock, Disk, DiskError
from penstock.base.settings import NodeSettings
from penstock.broker.cleaner import Cleaner, make_cleaner
from penstock.broker.cleaner_helper import Failed
from penstock.broker.hosting import Hosting, sync_files
from penstock.cluster.partition.partition import Partition
from penstock.log import retention
from penstock.log.checkpoints import CLEANER_OFFSETS_FILE
from penstock.log.compaction import Finished, Replacement, Step
from penstock.log.compaction_plan import Dirtiness, examine, make_job
from penstock.log.config import LogConfig
from penstock.log.segment import LOG_SUFFIX
from penstock.log.swapping import discard_all

log = logging.getLogger("penstock.keeper")

_FIRST_CHECK_SECONDS_MAX = 30.0
# As Kafka, which has no public setting for it.
_EXPIRATION_CHECK_MS = 600_000
# One turn of the loop looks at so many partitions.
_PARTITIONS_PER_TURN = 100
_REST_AFTER_DEFECT_SECONDS = 60


@dataclass(slots=True)
class Pass:
    """A pass of compaction under way."""

    partition: Partition
    started_ms: int
    # Mapping reads what is dirty, rewriting all.
    bytes_to_read: int
    bytes_read: int = 0
    bytes_written: int = 0
    is_cancelled: bool = False

    @property
    def progress(self) -> float:
        return min(1.0, self.bytes_read / self.bytes_to_read) if self.bytes_to_read else 1.0


@dataclass(slots=True)
class Totals:
    """Since the node was started."""

    segments_deleted: int = 0
    passes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_freed: int = 0
    last_pass_ms: int = 0
    map_utilization: float = 0.0
    # Partitions that cannot be compacted until somebody looks at them, with the reason.
    uncleanable: dict[str, str] = field(default_factory=dict)


class LogKeeper:
    def __init__(self, hosting: Hosting, disk: Disk, clock: Clock, settings: NodeSettings) -> None:
        self._hosting = hosting
        self._disk = disk
        self._clock = clock
        self._settings = settings
        self._cleaner: Cleaner = make_cleaner(disk)
        self._clean_offsets = hosting.read_offsets(CLEANER_OFFSETS_FILE)
        self._pass: Pass | None = None
        self._one_pass_at_a_time = asyncio.Lock()
        self.totals = Totals()
        self._tasks: list[asyncio.Task[None]] = []
        # Of logs that nobody uses: the settings they were looked at with, and when something will be due. Without
        # use and with the same settings, nothing changes.
        self._due: dict[str, tuple[LogConfig, int]] = {}
        self._one_segment: dict[str, LogConfig] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(
                self._repeat(lambda: self._settings["log.retention.check.interval.ms"], self.drop_what_is_due)
            ),
            asyncio.create_task(self._repeat(lambda: _EXPIRATION_CHECK_MS, self.expire_producers)),
        ]
        if self._settings["log.cleaner.enable"]:
            self._tasks.append(
                asyncio.create_task(self._repeat(lambda: self._settings["log.cleaner.backoff.ms"], self.compact_all))
            )

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._cleaner.stop()
        self._end_pass()

    async def _repeat(self, interval_ms: Callable[[], int], work: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(min(_FIRST_CHECK_SECONDS_MAX, interval_ms() / 1000))
        while True:
            try:
                await work()
            except DiskError as problem:
                log.error("logs could not be kept in shape, the next try is in a while: %s", problem)
            except Exception:
                log.exception("defect in the broker: logs could not be kept in shape")
                await asyncio.sleep(_REST_AFTER_DEFECT_SECONDS)
            # Asked anew each time: some of these can be altered while the node runs.
            await asyncio.sleep(interval_ms() / 1000)

    # Retention

    async def drop_what_is_due(self) -> None:
        for number, partition in enumerate(list(self._hosting)):
            if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            try:
                self._drop_what_is_due(partition)
            except DiskError as problem:
                log.error("%s: old segments could not be dropped: %s", partition.name, problem)

    def _drop_what_is_due(self, partition: Partition) -> None:
        if partition.has_failed or self._is_gone(partition):
            return
        if self._pass is not None and self._pass.partition is partition:
            return
        now_ms = self._clock.now_ms()
        opened = partition.loaded_log
        if (opened is None or not opened.is_loaded) and self._due_ms(partition) > now_ms:
            return
        partition_log = partition.log
        doomed = retention.drop_what_is_due(partition_log, partition.high_watermark, now_ms)
        if doomed:
            segments = sum(LOG_SUFFIX in path for path in doomed)
            self.totals.segments_deleted += segments
            log.info("%s begins at offset %d now", partition.name, partition_log.log_start_offset)
            self._hosting.remove_later(doomed, partition)
            partition.tell_replicas(0)

    def _due_ms(self, partition: Partition) -> int:
        config, due_ms = self._due.get(partition.name, (None, 0))
        if config is not partition.config:
            due_ms = retention.due_ms(self._disk, partition.name, partition.config)
            self._due[partition.name] = partition.config, due_ms
        return due_ms

    async def expire_producers(self) -> None:
        for number, partition in enumerate(list(self._hosting)):
            partition.expire_producers(self._clock.now_ms(), self._settings["producer.id.expiration.ms"])
            if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)

    # Compaction

    async def compact_all(self) -> None:
        """Passes, the dirtiest log first, until there is nothing that is worth one."""
        self._forget_gone()
        async with self._one_pass_at_a_time:
            while True:
                dirtiest = await self._dirtiest()
                if dirtiest is None or not await self._compact(*dirtiest):
                    return

    async def _dirtiest(self) -> tuple[Partition, Dirtiness] | None:
        best: tuple[Partition, Dirtiness] | None = None
        for number, partition in enumerate(list(self._hosting)):
            if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            try:
                dirtiness = self.dirtiness(partition)
            except DiskError as problem:
                log.error("%s cannot be looked at: %s", partition.name, problem)
                continue
            if dirtiness is None or not dirtiness.is_due(partition.config.min_cleanable_dirty_ratio):
                continue
            if best is None or dirtiness.ratio > best[1].ratio:
                best = partition, dirtiness
        return best

    def dirtiness(self, partition: Partition) -> Dirtiness | None:
        """None for a partition that is not compacted, or of which there is nothing to compact. Raises DiskError."""
        if (
            not partition.config.is_compacted
            or partition.has_failed
            or partition.name in self.totals.uncleanable
            or self._is_gone(partition)
        ):
            return None
        opened = partition.loaded_log
        if (opened is None or not opened.is_loaded) and self._has_one_segment(partition):
            return None
        checkpoint = self._clean_offsets.get((partition.topic, partition.index))
        return examine(partition.log, checkpoint, partition.high_watermark, self._clock.now_ms())

    def _has_one_segment(self, partition: Partition) -> bool:
        """Told by its files alone: a log that nobody uses is not brought up only to find that there is nothing to
        do."""
        if self._one_segment.get(partition.name) is not partition.config:
            names = self._disk.list(partition.name)
            if sum(name.endswith(LOG_SUFFIX) for name in names) > 1:
                return False
            self._one_segment[partition.name] = partition.config
        return True

    async def _compact(self, partition: Partition, dirtiness: Dirtiness) -> bool:
        """One pass. False when it came to nothing: better rest before the next."""
        if not await self._sync(partition, dirtiness.upper_offset):
            return False
        now_ms = self._clock.now_ms()
        job = make_job(
            partition.log,
            dirtiness,
            now_ms,
            self._settings["log.cleaner.dedupe.buffer.size"],
            self._settings["log.cleaner.io.buffer.load.factor"],
        )
        self._pass = Pass(partition, now_ms, dirtiness.clean_bytes + 2 * dirtiness.dirty_bytes)
        reports = self._cleaner.run(job, self._settings["log.cleaner.io.max.bytes.per.second"])
        try:
            async for report in reports:
                if self._is_gone(partition) or self._pass.is_cancelled:
                    return False
                match report:
                    case Step():
                        self._pass.bytes_read += report.bytes_read
                        self._pass.bytes_written += report.bytes_written
                    case Replacement():
                        if not self._replace(partition, report):
                            return False
                    case Failed():
                        self._note_failure(partition, report)
                        return False
                    case Finished():
                        await self._finish(partition, report)
        finally:
            # Ends the pass if it is not at its end.
            await reports.aclose()
            self._end_pass()
        return True

    def _end_pass(self) -> None:
        """What it has written and not put in place is of no use to anybody."""
        ended, self._pass = self._pass, None
        if ended is None or ended.partition.has_failed:
            return
        try:
            discard_all(self._disk, ended.partition.name)
        except DiskError as problem:
            log.error(
                "%s keeps files of a compaction that broke off until a restart: %s", ended.partition.name, problem
            )

    async def _sync(self, partition: Partition, offset: int) -> bool:
        """What takes the place of a record must be on the disk before that is removed from it."""
        partition_log = partition.log
        if partition_log.recovery_point >= offset:
            return True
        flush = partition_log.flush()
        try:
            await asyncio.to_thread(sync_files, flush)
        except DiskError as problem:
            partition.has_failed = True
            log.error("%s takes no more writes until a restart: %s", partition.name, problem)
            return False
        partition_log.mark_flushed(flush)
        return not self._is_gone(partition)

    def _replace(self, partition: Partition, replacement: Replacement) -> bool:
        try:
            doomed = partition.log.replace_segments(replacement.segments, self._clock.now_ms())
        except DiskError as problem:
            # Some files have their new names and some have not; the next start puts that right.
            partition.has_failed = True
            log.error("%s takes no more writes until a restart: compaction broke off: %s", partition.name, problem)
            return False
        if doomed is None:
            return False
        self._hosting.remove_later(doomed, partition)
        return True

    async def _finish(self, partition: Partition, finished: Finished) -> None:
        assert self._pass is not None
        totals = self.totals
        totals.passes += 1
        totals.bytes_read += self._pass.bytes_read
        totals.bytes_written += self._pass.bytes_written
        totals.bytes_freed += finished.bytes_before - finished.bytes_after
        totals.last_pass_ms = self._clock.now_ms() - self._pass.started_ms
        totals.map_utilization = finished.map_utilization
        self._clean_offsets[partition.topic, partition.index] = finished.end_offset
        log.info(
            "%s is compacted up to offset %d: %d keys, %d bytes instead of %d, in %d ms",
            partition.name,
            finished.end_offset,
            finished.keys,
            finished.bytes_after,
            finished.bytes_before,
            totals.last_pass_ms,
        )
        await self._hosting.write_offsets(CLEANER_OFFSETS_FILE, self._clean_offsets)

    def _note_failure(self, partition: Partition, failed: Failed) -> None:
        if failed.is_corrupt:
            self.totals.uncleanable[partition.name] = failed.reason
            log.error("%s is not compacted any more until a restart: %s", partition.name, failed.reason)
        else:
            log.error("%s could not be compacted, the next try is in a while: %s", partition.name, failed.reason)

    def note_truncation(self, partition: Partition, offset: int) -> None:
        """The log was cut to end at `offset`, as a follower's is: what comes after it is not compacted, and a pass that
        has read what was cut comes to nothing."""
        key = (partition.topic, partition.index)
        if self._clean_offsets.get(key, 0) > offset:
            self._clean_offsets[key] = offset
        if self._pass is not None and self._pass.partition is partition:
            self._pass.is_cancelled = True

    def _is_gone(self, partition: Partition) -> bool:
        """Whether the topic was deleted meanwhile; there may be another one of its name."""
        hosted = self._hosting.by_id.get(partition.topic_id.bytes, {})
        return hosted.get(partition.index) is not partition

    def _forget_gone(self) -> None:
        names = {partition.name for partition in self._hosting}
        keys = {(partition.topic, partition.index) for partition in self._hosting}
        self._clean_offsets = {key: offset for key, offset in self._clean_offsets.items() if key in keys}
        for known in (self._due, self._one_segment, self.totals.uncleanable):
            for name in known.keys() - names:
                del known[name]

    # What there is to see

    @property
    def current_pass(self) -> Pass | None:
        """Of compaction, while one runs."""
        return self._pass
