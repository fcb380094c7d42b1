"""One pass of compaction over one log: the last record of each key stays, where it is.

    map      The records from the first dirty offset on are read, and the last offset of each key noted, until the
             memory for that is full or the end of what may be compacted is reached.
    rewrite  All segments up to there are read, and written anew without the records that a later one of the same key
             has overtaken. Small neighbours become one segment.

As in Kafka: aborted records go, markers after them (compaction_transactions.py). A batch in which a tombstone or a
spent marker is first seen gets a delete horizon, `delete.retention.ms` from now, after which they go too (KIP-534). The
last batch of a producer stays, if need be without records, for its sequence number and epoch; and so, here, does the
last one of a segment, so that segments join without a hole whatever becomes of the topic's settings.

Nothing here waits or knows the time: `Compaction.steps` gives a step after every chunk, between which the caller may
throttle, report or stop. The log itself is not touched: what is written waits as `.cleaned` for `Log.replace_segments`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.ports import Disk, File
from penstock.log.compaction_map import OffsetMap
from penstock.log.compaction_output import CleanedSegment
from penstock.log.compaction_records import emptied, rebuild, unpack, with_horizon
from penstock.log.compaction_transactions import PassedTransactions
from penstock.log.config import LogConfig
from penstock.log.scan import CorruptSegment, is_plausible
from penstock.log.segment import LOG_SUFFIX, RELATIVE_OFFSET_MAX, offset_name
from penstock.log.transaction_index import AbortedTransaction
from penstock.protocol.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from penstock.protocol.compression import CorruptCompression
from penstock.protocol.records import CorruptRecords

_CHUNK_BYTES = 1 << 20


class SourceSegment(NamedTuple):
    base_offset: int
    size: int
    # Of the larger one of its indexes.
    index_bytes: int


class LastOfProducer(NamedTuple):
    """What a batch must have to be the one that a producer is remembered by."""

    # -1: it has written no records that are remembered, but a marker of `epoch`.
    last_offset: int
    epoch: int


class CompactionJob(NamedTuple):
    """All there is to know for one pass. Plain values: it travels to another process."""

    directory: str
    # In a row from the first one of the log on; none at or beyond `upper_offset`.
    segments: list[SourceSegment]
    first_dirty_offset: int
    upper_offset: int
    aborted: list[AbortedTransaction]
    last_of_producers: dict[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    memory_bytes: int
    load_factor: float


class Step(NamedTuple):
    """So many bytes were read and written since the last one."""

    bytes_read: int
    bytes_written: int


class Replacement(NamedTuple):
    """These segments, (base offset, size), have their replacement."""

    segments: list[tuple[int, int]]


class Finished(NamedTuple):
    """Everything below `end_offset` is compacted."""

    end_offset: int
    bytes_before: int
    bytes_after: int
    keys: int
    map_utilization: float


class Compaction:
    def __init__(self, disk: Disk, job: CompactionJob) -> None:
        self._disk = disk
        self._job = job
        self._map = OffsetMap(job.first_dirty_offset, job.upper_offset, job.memory_bytes, job.load_factor)

    def steps(self) -> Iterator[Step | Replacement | Finished]:
        """Raises DiskError, and CorruptSegment where a batch is not what it should be: then nothing was replaced that
        was not told of."""
        yield from self._build_map()
        end_offset = self._map.end_offset
        transactions = PassedTransactions(self._job.aborted)
        sources = [segment for segment in self._job.segments if segment.base_offset < end_offset]
        bytes_before = bytes_after = 0
        for group in grouped(sources, self._job):
            cleaned = CleanedSegment(self._disk, self._job.directory, group[0].base_offset, self._config())
            for number, source in enumerate(group):
                yield from self._rewrite(source, cleaned, transactions, is_last=number == len(group) - 1)
            bytes_before += sum(source.size for source in group)
            bytes_after += cleaned.size
            aborted, transactions.still_aborted = transactions.still_aborted, []
            if not cleaned.is_same:
                cleaned.finish(aborted)
                yield Replacement([(source.base_offset, source.size) for source in group])
        yield Finished(end_offset, bytes_before, bytes_after, self._map.keys, self._map.utilization)

    def _config(self) -> LogConfig:
        return LogConfig(
            index_interval_bytes=self._job.index_interval_bytes, segment_index_bytes=self._job.segment_index_bytes
        )

    # Mapping

    def _build_map(self) -> Iterator[Step]:
        transactions = PassedTransactions(self._job.aborted)
        start_offset = self._job.first_dirty_offset
        for number, source in enumerate(self._job.segments):
            is_last = number == len(self._job.segments) - 1
            next_offset = self._job.upper_offset if is_last else self._job.segments[number + 1].base_offset
            if next_offset <= start_offset:
                continue
            file = self._open(source)
            for chunk, batches in read_chunks(file, source):
                for position, header in batches:
                    if not self._map_batch(file, chunk, position, header, transactions):
                        return
                yield Step(len(chunk), 0)
            # Where offsets are missing at the end of a segment, there is nothing to map.
            self._map.end_offset = max(self._map.end_offset, next_offset)

    def _map_batch(
        self, file: File, chunk: bytes, position: int, header: BatchHeader, transactions: PassedTransactions
    ) -> bool:
        """False when the map is full."""
        if header.last_offset < self._map.start_offset and header.producer_id < 0:
            return True
        batch = memoryview(chunk)[position : position + header.size]
        if not crc_is_valid(batch, header):
            raise CorruptSegment(file, position)
        try:
            if header.attributes & CONTROL:
                transactions.is_spent(header, batch)
            elif (
                not transactions.is_aborted(header)
                and header.last_offset >= self._map.start_offset
                and not self._map.add(unpack(batch, header), header.record_count, header.base_offset)
            ):
                return False
        except (CorruptRecords, CorruptCompression) as error:
            raise CorruptSegment(file, position) from error
        self._map.end_offset = max(self._map.end_offset, header.last_offset + 1)
        return True

    # Rewriting

    def _rewrite(
        self, source: SourceSegment, cleaned: CleanedSegment, transactions: PassedTransactions, *, is_last: bool
    ) -> Iterator[Step]:
        file = self._open(source)
        cleaned.begin_source(file)
        done_bytes = 0
        for chunk, batches in read_chunks(file, source):
            written_bytes = cleaned.size
            for position, header in batches:
                done_bytes += header.size
                batch = memoryview(chunk)[position : position + header.size]
                try:
                    kept = self._keep(batch, header, transactions, is_end=is_last and done_bytes == source.size)
                except (CorruptRecords, CorruptCompression) as error:
                    raise CorruptSegment(file, position) from error
                if isinstance(kept, memoryview):
                    cleaned.keep(kept, header)
                else:
                    cleaned.change(kept)
            cleaned.write()
            yield Step(len(chunk), cleaned.size - written_bytes)

    def _keep(
        self, batch: memoryview, header: BatchHeader, transactions: PassedTransactions, *, is_end: bool
    ) -> memoryview | bytearray | None:
        """The batch itself, what is left of it, or None."""
        must_stay = is_end or self._is_last_of_producer(header)
        horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        is_past_horizon = horizon_ms is not None and horizon_ms <= self._job.now_ms
        if header.attributes & CONTROL:
            is_spent = transactions.is_spent(header, batch)
            if is_spent and (is_past_horizon or header.record_count == 0):
                return self._without_records(batch, header) if must_stay else None
            if is_spent and horizon_ms is None:
                _check(batch, header)
                return with_horizon(header, unpack(batch, header), self._new_horizon_ms)
            return batch
        if transactions.is_aborted(header) or header.record_count == 0:
            return self._without_records(batch, header) if must_stay else None
        if header.base_offset >= self._map.end_offset:
            return batch
        return self._keep_records(batch, header, horizon_ms, is_past_horizon, must_stay)

    def _keep_records(
        self, batch: memoryview, header: BatchHeader, horizon_ms: int | None, is_past_horizon: bool, must_stay: bool
    ) -> memoryview | bytearray | None:
        if self._map.holds(header):
            # Most batches stay, or go, as a whole: then they need not be opened.
            values, tombstones = self._map.counts(header.base_offset, header.last_offset)
            left = values if is_past_horizon else values + tombstones
            if left == 0:
                return emptied(header) if must_stay else None
            if left == header.record_count and (tombstones == 0 or horizon_ms is not None):
                return batch
        data = unpack(batch, header)
        kept = self._map.keep(data, header, tombstones_go=is_past_horizon)
        if not kept.records:
            return emptied(header) if must_stay else None
        needs_horizon = kept.has_tombstones and horizon_ms is None
        if kept.records == header.record_count and not needs_horizon:
            return batch
        _check(batch, header)
        return rebuild(header, data, kept, self._new_horizon_ms if needs_horizon else None)

    @property
    def _new_horizon_ms(self) -> int:
        return self._job.now_ms + self._job.delete_retention_ms

    def _without_records(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray:
        return batch if header.record_count == 0 else emptied(header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        last = self._job.last_of_producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.attributes & CONTROL != 0 and header.producer_epoch == last.epoch

    def _open(self, source: SourceSegment) -> File:
        return self._disk.open(f"{self._job.directory}/{offset_name(source.base_offset)}{LOG_SUFFIX}")


def grouped(segments: list[SourceSegment], job: CompactionJob) -> list[list[SourceSegment]]:
    """Neighbours that become one segment, within the bounds of size, indexes and relative offsets."""
    groups: list[list[SourceSegment]] = []
    size = index_bytes = 0
    for number, segment in enumerate(segments):
        end_offset = segments[number + 1].base_offset if number + 1 < len(segments) else job.upper_offset
        if (
            groups
            and size + segment.size <= job.segment_bytes
            and index_bytes + segment.index_bytes <= job.segment_index_bytes
            and (segment.size == 0 or end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = index_bytes = 0
        size += segment.size
        index_bytes += segment.index_bytes
    return groups


def read_chunks(file: File, source: SourceSegment) -> Iterator[tuple[bytes, list[tuple[int, BatchHeader]]]]:
    """Runs of whole batches, from the start of a segment's file on: the bytes, and (position in them, header) of each.
    Raises CorruptSegment."""
    start, end = 0, source.size
    next_offset, offset_max = source.base_offset, source.base_offset + RELATIVE_OFFSET_MAX
    wanted = _CHUNK_BYTES
    while start < end:
        chunk = file.read(start, min(wanted, end - start))
        batches = []
        position = 0
        wanted = _CHUNK_BYTES
        while position + HEADER_BYTES <= len(chunk):
            header = read_header(chunk, position)
            if not is_plausible(header, next_offset, offset_max) or start + position + header.size > end:
                raise CorruptSegment(file, start + position)
            if position + header.size > len(chunk):
                wanted = max(wanted, header.size)
                break
            batches.append((position, header))
            next_offset = header.last_offset + 1
            position += header.size
        if (not batches and wanted <= len(chunk)) or len(chunk) < HEADER_BYTES:
            raise CorruptSegment(file, start)
        if batches:
            yield chunk[:position], batches
        start += position


def _check(batch: memoryview, header: BatchHeader) -> None:
    """Before a batch gets a new checksum: a damaged one must not pass for a good one."""
    if not crc_is_valid(batch, header):
        raise CorruptRecords("the batch has a wrong checksum")
