"""What of a log may go, by age (`retention.ms`) and by size (`retention.bytes`): whole segments, oldest first.

As in Kafka, the segment that is written to goes as well once all of it is too old: a new one is begun, so that the log
keeps its end. Nothing at or beyond the high watermark goes.
"""

from penstock.base.ports import Disk, MissingFile
from penstock.log.config import LogConfig
from penstock.log.index import last_time_entry
from penstock.log.loading import CLEANED_SUFFIX
from penstock.log.log import Log
from penstock.log.scan import scan_headers
from penstock.log.segment import DELETED_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from penstock.log.segments import Segments

NEVER_MS = 2**63 - 1


def drop_what_is_due(log: Log, high_watermark: int, now_ms: int) -> list[str]:
    """Drops what is due, and returns the paths to remove later. Raises DiskError."""
    offset = start_offset_due(log.segments, log.config, high_watermark, log.log_end_offset, now_ms)
    doomed = []
    if offset > log.segments.first.base_offset:
        if offset == log.log_end_offset:
            log.roll_to_empty(now_ms)
        doomed = log.advance_log_start(offset)
    # DeleteRecords may have moved the start into a segment that was active then.
    return doomed + log.drop_below_start()


def start_offset_due(
    segments: Segments, config: LogConfig, high_watermark: int, log_end_offset: int, now_ms: int
) -> int:
    """Where the log should begin: the base offset of the first segment that stays, or the end of the log."""
    start_offset = segments.first.base_offset
    if not config.is_deleted or (config.retention_ms < 0 and config.retention_bytes < 0):
        return start_offset
    surplus_bytes = segments.size - config.retention_bytes if config.retention_bytes >= 0 else -1
    row = list(segments)
    for slot, segment in enumerate(row):
        end_offset = row[slot + 1].base_offset if slot + 1 < len(row) else log_end_offset
        is_too_much = surplus_bytes >= segment.size
        if end_offset > high_watermark or (segment.size == 0 and slot + 1 == len(row)):
            break
        if not is_too_much and not 0 <= config.retention_ms < now_ms - segment.age_timestamp():
            break
        surplus_bytes -= segment.size
        start_offset = end_offset
    return start_offset


def due_ms(disk: Disk, directory: str, config: LogConfig) -> int:
    """When the first segment of a log will be due, told by its files alone: a log that nobody uses is not brought
    up only to find that nothing is due. Raises DiskError."""
    listed = disk.list(directory)
    if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)) for name in listed):
        # What the last run of the node had no time to remove: opening the log does.
        return 0
    names = [name for name in listed if name.endswith(LOG_SUFFIX)]
    files = [disk.open(f"{directory}/{name}") for name in names]
    if not config.is_deleted or not files or files[0].size() == 0:
        return NEVER_MS
    if 0 <= config.retention_bytes <= sum(file.size() for file in files[1:]):
        return 0
    if config.retention_ms < 0:
        return NEVER_MS
    first, file = names[0], files[0]
    times = disk.open(f"{directory}/{first.removesuffix(LOG_SUFFIX)}{TIME_INDEX_SUFFIX}")
    timestamp = -1
    try:
        timestamp, _ = last_time_entry(times, 0)
        if timestamp < 0:
            timestamp = max((header.max_timestamp for _, header in scan_headers(file, 0, file.size())), default=-1)
    except MissingFile:
        return NEVER_MS
    finally:
        file.close()
        times.close()
    return (timestamp if timestamp >= 0 else file.modified_ms()) + config.retention_ms + 1
