"""Which part of a log may be compacted, whether that is worth it, and what the pass has to know."""

from typing import NamedTuple

from penstock.log.compaction import CompactionJob, LastOfProducer, SourceSegment
from penstock.log.log import Log

_NO_LIMIT_MS = 2**63 - 1


class Dirtiness(NamedTuple):
    """[first dirty offset, upper offset) has not been compacted and may be; what is before it has been."""

    first_dirty_offset: int
    upper_offset: int
    clean_bytes: int
    dirty_bytes: int
    # A record has waited for longer than max.compaction.lag.ms.
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """Kafka's dirty ratio: how much of what a pass would read is new."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, ratio_min: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > ratio_min)


def examine(log: Log, checkpoint: int | None, high_watermark: int, now_ms: int) -> Dirtiness:
    """`checkpoint` is where the last pass ended. A log that was cut below it, or that begins beyond it, is dirty from
    its start."""
    first_dirty_offset = log.log_start_offset
    if checkpoint is not None and log.log_start_offset <= checkpoint <= log.log_end_offset:
        first_dirty_offset = checkpoint
    segments = log.segments
    # The segment that is written to stays as it is, and so do those with transactions whose fate is open.
    limit_offset = min(log.last_stable_offset(high_watermark), segments.active.base_offset)
    dirty = [segment for segment in segments.reaching(first_dirty_offset) if segment is not segments.active]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (segment.base_offset for segment in dirty if segment.age_timestamp() > now_ms - lag_ms)
        limit_offset = min(limit_offset, next(young, limit_offset))
    upper_offset = segments.reaching(limit_offset)[0].base_offset
    sealed = [segment for segment in segments.sealed if segment.base_offset < upper_offset]
    dirty_base = dirty[0].base_offset if dirty else upper_offset
    dirty_bytes = sum(segment.size for segment in sealed if segment.base_offset >= dirty_base)
    return Dirtiness(
        first_dirty_offset,
        upper_offset,
        sum(segment.size for segment in sealed) - dirty_bytes,
        dirty_bytes,
        _is_overdue([segment.first_batch_timestamp() for segment in dirty], log.config.max_compaction_lag_ms, now_ms)
        if log.config.max_compaction_lag_ms < _NO_LIMIT_MS
        else False,
    )


def _is_overdue(timestamps: list[int], lag_ms: int, now_ms: int) -> bool:
    return any(0 < timestamp < now_ms - lag_ms for timestamp in timestamps)


def make_job(log: Log, dirtiness: Dirtiness, now_ms: int, memory_bytes: int, load_factor: float) -> CompactionJob:
    config = log.config
    segments = [segment for segment in log.segments.sealed if segment.base_offset < dirtiness.upper_offset]
    last_of_producers = {
        producer_id: LastOfProducer(producer.batches[-1].last_offset if producer.batches else -1, producer.epoch)
        for producer_id, producer in log.producers.producers.items()
    }
    return CompactionJob(
        log.directory,
        [SourceSegment(segment.base_offset, segment.size, segment.index_bytes()) for segment in segments],
        dirtiness.first_dirty_offset,
        dirtiness.upper_offset,
        log.aborted_transactions(log.segments.first.base_offset, dirtiness.upper_offset),
        last_of_producers,
        now_ms,
        config.delete_retention_ms,
        config.segment_bytes,
        config.segment_index_bytes,
        config.index_interval_bytes,
        memory_bytes,
        load_factor,
    )
