"""Random lives of a log on a simulated disk, against a list of batches that does the same."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskFull
from penstock.log.config import LogConfig
from penstock.log.segment import Segment
from penstock.protocol.batch import read_header
from penstock.protocol.records import iterate_records
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.made import (
    DIRECTORY,
    NOW_MS,
    append,
    batches_in,
    complaints_about_indexes,
    make_batch,
    open_log,
    read_everything,
)

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=150, segment_ms=1_000_000, segment_index_bytes=96)

timestamps = st.lists(
    st.one_of(st.integers(NOW_MS - 50, NOW_MS + 50), st.just(NOW_MS + 2_000_000)), min_size=1, max_size=4
)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.log = open_log(self.disk, CONFIG)
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_offset = 0

    @rule(timestamps=timestamps, value_bytes=st.integers(0, 300), codec=st.sampled_from([0, 0, 1, 3]))
    def append(self, timestamps: list[int], value_bytes: int, codec: int) -> None:
        batch = make_batch(timestamps, value_bytes, codec=codec)
        assert append(self.log, batch) == self.log_end_offset
        self.log_end_offset += len(timestamps)
        assert read_header(batch).base_offset + len(timestamps) == self.log_end_offset
        self.batches.append(bytes(batch))

    @rule(value_bytes=st.integers(0, 300), spare_bytes=st.integers(0, 60))
    def append_to_a_full_disk(self, value_bytes: int, spare_bytes: int) -> None:
        self.disk.capacity_bytes = self.disk.used_bytes() + spare_bytes
        with pytest.raises(DiskFull):
            append(self.log, make_batch([NOW_MS], value_bytes))
        self.disk.capacity_bytes = None

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = self._offset_at(fraction)
        for path in self.log.truncate_to(offset, NOW_MS):
            self.disk.remove(path)
        if offset < self.log_end_offset:
            self.batches = [batch for batch in self.batches if read_header(batch).last_offset < offset]
            self.log_end_offset = offset
            self.flushed_offset = min(self.flushed_offset, offset)

    def _offset_at(self, fraction: float) -> int:
        """An offset where a batch begins: leaders and followers part nowhere else."""
        starts = [read_header(batch).base_offset for batch in self.batches]
        starts = [start for start in starts if start >= self.log_start_offset]
        return [*starts, self.log_end_offset][int(fraction * len(starts))]

    @rule(fraction=st.floats(0, 1))
    def advance_log_start(self, fraction: float) -> None:
        offset = self.log_start_offset + int(fraction * (self.log_end_offset - self.log_start_offset))
        for path in self.log.advance_log_start(offset):
            self.disk.remove(path)
        self.log_start_offset = offset

    @rule()
    def flush(self) -> None:
        flush = self.log.flush()
        for file in flush.files:
            file.sync()
        self.log.mark_flushed(flush)
        self.flushed_offset = self.log_end_offset
        assert self.log.recovery_point == self.log_end_offset

    @rule()
    def stop_cleanly_and_start(self) -> None:
        self.log.close()
        self.disk.sync_all()
        self.flushed_offset = self.log_end_offset
        if self.disk.exists(DIRECTORY):
            assert complaints_about_indexes(self.disk) == []
        self.log = open_log(self.disk, CONFIG, log_start_offset=self.log_start_offset)
        assert self.log.recovery_notes == ()

    @rule(survives=st.floats(0, 1), torn=st.booleans())
    def lose_power_and_start(self, survives: float, torn: bool) -> None:
        recovery_point = self.log.recovery_point
        self.disk.crash(lambda path, unsynced: int(survives * unsynced), torn=torn)
        self.log = open_log(
            self.disk, CONFIG, clean=False, recovery_point=recovery_point, log_start_offset=self.log_start_offset
        )
        assert self.log.log_end_offset >= max(self.flushed_offset, self.log_start_offset)
        kept = [batch for batch in self.batches if read_header(batch).last_offset < self.log.log_end_offset]
        self.log_end_offset = max(self.log_start_offset, read_header(kept[-1]).last_offset + 1 if kept else 0)
        assert self.log.log_end_offset == self.log_end_offset
        self.batches = kept
        assert not any("may follow" in note for note in self.log.recovery_notes)

    @invariant()
    def holds_what_was_appended(self) -> None:
        assert self.log.log_end_offset == self.log_end_offset
        assert self.log.log_start_offset == self.log_start_offset
        expected = [batch for batch in self.batches if read_header(batch).last_offset >= self.log_start_offset]
        assert read_everything(self.log) == b"".join(expected)

    @precondition(lambda self: len(self.batches) < 12)
    @rule(max_bytes=st.integers(0, 1500), upper=st.floats(0, 1), at_least_one=st.booleans())
    def read_at_every_offset(self, max_bytes: int, upper: float, at_least_one: bool) -> None:
        upper_offset = self._offset_at(upper)
        for offset in range(self.log_start_offset, self.log_end_offset + 1):
            found = self.log.read(offset, max_bytes, upper_offset, at_least_one=at_least_one)
            holder = next((each for each in self.batches if read_header(each).last_offset >= offset), None)
            if (
                holder is None
                or read_header(holder).base_offset >= upper_offset
                or (len(holder) > max_bytes and not at_least_one)
            ):
                assert found is None
            else:
                assert found is not None
                assert found.length <= max(max_bytes, len(holder))
                data = found.file.read(found.position, found.length)
                assert data.startswith(holder)
                everything = b"".join(
                    each
                    for each in self.batches
                    if read_header(holder).base_offset <= read_header(each).base_offset < upper_offset
                )
                assert everything.startswith(data)

    @rule(timestamp=st.integers(NOW_MS - 60, NOW_MS + 60))
    def look_up_a_timestamp(self, timestamp: int) -> None:
        records = [
            (record.offset, record.timestamp)
            for batch in self.batches
            for record in iterate_records(batch, read_header(batch))
            if record.offset >= self.log_start_offset
        ]
        expected = next((record for record in records if record[1] >= timestamp), None)
        assert self.log.offset_for_timestamp(timestamp) == expected

    @rule()
    def offsets_outside_are_refused(self) -> None:
        for offset in (self.log_start_offset - 1, self.log_end_offset + 1):
            with pytest.raises(Refused) as refused:
                self.log.read(offset, 100, self.log_end_offset)
            assert refused.value.code == ErrorCode.offset_out_of_range

    @rule()
    def rebuilt_offset_indexes_equal_those_kept_while_appending(self) -> None:
        if self.log._segments is None:
            return
        for segment in self.log._segments:
            rebuilt = Segment(self.disk, DIRECTORY, segment.base_offset, CONFIG, NOW_MS)
            expected = rebuilt.rebuild_indexes().offsets.to_bytes()
            if segment.indexes is not None:
                assert segment.indexes.offsets.to_bytes() == expected
            else:
                assert self.disk.read_file(segment.file.path.removesuffix("log") + "index") == expected

    def teardown(self) -> None:
        for name in self.disk.list(DIRECTORY):
            if name.endswith(".log"):
                batches_in(self.disk.read_file(f"{DIRECTORY}/{name}"))


LogMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLog = LogMachine.TestCase
