"""Passes of compaction for tests, and what a log holds as a reader sees it."""

from typing import NamedTuple

from penstock.base.ports import Disk
from penstock.log.compaction import Compaction, CompactionJob, Finished, Replacement
from penstock.log.compaction_plan import examine, make_job
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.protocol.batch import BatchHeader
from penstock.protocol.records import Record, build_batch, iterate_records
from tests.unit.log.made import NOW_MS, append, batches_in, read_everything

COMPACTED = LogConfig(
    cleanup_policy=("compact",), segment_bytes=2000, index_interval_bytes=100, delete_retention_ms=1000
)
MEMORY_BYTES = 1 << 16


class Pass(NamedTuple):
    end_offset: int
    doomed: list[str]
    finished: Finished


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], codec: int = 0, now_ms: int = NOW_MS) -> int:
    """Appends one batch; returns its base offset."""
    return append(log, keyed(*pairs, codec=codec, now_ms=now_ms), now_ms=now_ms)


def keyed(*pairs: tuple[bytes | None, bytes | None], codec: int = 0, now_ms: int = NOW_MS) -> bytearray:
    return build_batch([Record(delta, now_ms + delta, *pair) for delta, pair in enumerate(pairs)], codec=codec)


def job_of(log: Log, checkpoint: int | None, now_ms: int = NOW_MS, memory_bytes: int = MEMORY_BYTES) -> CompactionJob:
    dirtiness = examine(log, checkpoint, log.log_end_offset, now_ms)
    return make_job(log, dirtiness, now_ms, memory_bytes, 0.9)


def compact(
    disk: Disk, log: Log, checkpoint: int | None = None, now_ms: int = NOW_MS, memory_bytes: int = MEMORY_BYTES
) -> Pass:
    """One whole pass, everything in place afterwards but the removal of what it replaced."""
    doomed: list[str] = []
    for step in Compaction(disk, job_of(log, checkpoint, now_ms, memory_bytes)).steps():
        if isinstance(step, Replacement):
            replaced = log.replace_segments(step.segments, now_ms)
            assert replaced is not None
            doomed += replaced
        elif isinstance(step, Finished):
            return Pass(step.end_offset, doomed, step)
    raise AssertionError("the pass has no end")


def headers_in(log: Log) -> list[BatchHeader]:
    return [header for _, header in batches_in(read_everything(log))]


def records_in(log: Log) -> list[Record]:
    """All records but markers."""
    data = read_everything(log)
    found: list[Record] = []
    for position, header in batches_in(data):
        if not header.is_control:
            found += iterate_records(data[position : position + header.size], header)
    return found


def pairs_in(log: Log) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {record.offset: (record.key, record.value) for record in records_in(log)}
