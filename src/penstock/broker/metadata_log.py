"""The metadata log, `__cluster_metadata-0`: Kafka's metadata records and batches, on the same log code as topics.

The node is its own quorum of one: what is synced here is committed.
"""

from collections.abc import Iterator, Sequence

from penstock.base.ports import Clock, Disk
from penstock.broker.log_reader import read_batches
from penstock.cluster.metadata.records import MetadataRecord, decode_record, encode_record
from penstock.log.config import LogConfig
from penstock.log.log import Flush, Log
from penstock.protocol.batch import read_header
from penstock.protocol.records import Record, build_batch, iterate_records

DIRECTORY = "__cluster_metadata-0"
TOPIC = "__cluster_metadata"
_LEADER_EPOCH = 1


class MetadataLog:
    def __init__(self, disk: Disk, clock: Clock, *, clean: bool) -> None:
        self._clock = clock
        self._log = Log.open(
            disk,
            DIRECTORY,
            LogConfig(),
            topic_id=None,
            recovery_point=0,
            clean=clean,
            log_start_offset=0,
            now_ms=clock.now_ms(),
        )

    @property
    def notes(self) -> Sequence[str]:
        return self._log.recovery_notes

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    def flush(self) -> Flush:
        return self._log.flush()

    def mark_flushed(self, flush: Flush) -> None:
        self._log.mark_flushed(flush)

    @property
    def is_synced(self) -> bool:
        return self._log.recovery_point >= self._log.log_end_offset

    def records(self) -> Iterator[MetadataRecord]:
        """All of them, from the start."""
        for header, batch in read_batches(self._log):
            if not header.is_control:
                for record in iterate_records(batch, header):
                    assert record.value is not None
                    yield decode_record(record.value)

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """One batch, so that a decision is kept whole or not at all. Raises DiskError."""
        now_ms = self._clock.now_ms()
        batch = build_batch(
            [Record(delta, now_ms, None, encode_record(record)) for delta, record in enumerate(records)]
        )
        self._log.append(batch, read_header(batch), _LEADER_EPOCH, now_ms)

    def close(self) -> None:
        self._log.close()
