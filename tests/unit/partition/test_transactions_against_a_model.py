"""Transactions in a partition against a list of what was written: last stable offset, aborted transactions, and what a
consumer of committed records sees, also after crashes (invariants 18 and 20)."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.broker.fetch.plan import read_partition
from penstock.cluster.partition.partition import Partition
from penstock.log.config import LogConfig
from penstock.log.end_marker import EndMarker, read_end_marker
from penstock.protocol.batch import HEADER_BYTES, TRANSACTIONAL, read_header
from penstock.protocol.fetch import CONSUMER_REPLICA_ID, FetchPartition, FetchRequest
from penstock.protocol.records import Record, build_batch, iterate_records
from penstock.testing.sim_disk import SimDisk
from tests.unit.partition.made import NOW_MS, make_partition

COMMITTED_ONLY = FetchRequest(CONSUMER_REPLICA_ID, 0, 0, 1 << 20, True, 0, -1, [], [], "")

PRODUCERS = 3
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)


@dataclass
class Written:
    """One batch, as the test remembers it. `is_commit` is that of a marker."""

    first_offset: int
    producer_id: int
    epoch: int
    values: list[bytes]
    is_transactional: bool
    is_commit: bool | None = None


@dataclass
class Subject:
    """A partition, and the list of all batches that must be in it."""

    disk: SimDisk = field(default_factory=SimDisk)
    written: list[Written] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.partition: Partition = make_partition(self.disk, CONFIG)

    def write(self, producer_id: int, size: int) -> None:
        """Producer 0 writes outside of transactions, the others within."""
        is_transactional = producer_id > 0
        values = [b"%d" % (self.count + delta) for delta in range(size)]
        epoch, sequence = self.epochs.get(producer_id, 0), self.sequences.get(producer_id, 0)
        batch = build_batch(
            [Record(delta, NOW_MS, b"k", value * 10) for delta, value in enumerate(values)],
            attributes=TRANSACTIONAL if is_transactional else 0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        verification = None
        if is_transactional:
            verification = self.partition.start_verification(producer_id, epoch, sequence, True, NOW_MS)
        answer = self.partition.append(memoryview(batch), -1, 12, NOW_MS, verification)
        assert answer.error_code == 0, answer
        self.written.append(Written(answer.base_offset, producer_id, epoch, values, is_transactional))
        self.sequences[producer_id] = sequence + size
        self.count += size

    def end(self, producer_id: int, is_commit: bool) -> None:
        epoch = self.epochs.get(producer_id, 0) + 1
        offset = self.partition.log.log_end_offset
        error = self.partition.append_marker(EndMarker(not is_commit, 0), producer_id, epoch, 2, NOW_MS)
        assert not error
        self.written.append(Written(offset, producer_id, epoch, [], True, is_commit))
        self.epochs[producer_id], self.sequences[producer_id] = epoch, 0

    def sync(self) -> None:
        flush = self.partition.log.flush()
        for file in flush.files:
            file.sync()
        self.partition.log.mark_flushed(flush)

    def restart(self, *, is_clean: bool, is_power_cut: bool = False) -> None:
        recovery_point = self.partition.log.recovery_point
        self.partition.log.close(clean=is_clean)
        if is_clean:
            self.disk.sync_all()
        if is_power_cut:
            self.disk.crash()
        self.partition = make_partition(self.disk, CONFIG, is_clean=is_clean, recovery_point=recovery_point)
        end_offset = self.partition.log.log_end_offset
        assert is_power_cut or end_offset == self.next_offset()
        assert end_offset >= recovery_point
        self.written = [one for one in self.written if one.first_offset < end_offset]
        for producer_id in range(PRODUCERS):
            # A producer whose last batches are lost goes on from what it knows to be there.
            mine = [one for one in self.written if one.producer_id == producer_id]
            self.epochs[producer_id] = mine[-1].epoch if mine else 0
            of_epoch = [one for one in mine if one.epoch == self.epochs[producer_id]]
            self.sequences[producer_id] = sum(len(one.values) for one in of_epoch)

    def next_offset(self) -> int:
        last = self.written[-1] if self.written else None
        return 0 if last is None else last.first_offset + max(1, len(last.values))

    def stable_offset(self) -> int:
        open_since: dict[int, int] = {}
        for one in self.written:
            if one.is_commit is not None:
                open_since.pop(one.producer_id, None)
            elif one.is_transactional:
                open_since.setdefault(one.producer_id, one.first_offset)
        return min(open_since.values(), default=self.next_offset())

    def committed(self) -> list[bytes]:
        """The values that may be seen: below the last stable offset, and not aborted."""
        stable_offset = self.stable_offset()
        fates: dict[int, bool] = {}
        visible: list[list[bytes]] = []
        for one in reversed(self.written):
            if one.is_commit is not None:
                fates[one.producer_id] = one.is_commit
            elif one.first_offset < stable_offset and (not one.is_transactional or fates.get(one.producer_id)):
                visible.append(one.values)
        return [value for values in reversed(visible) for value in values]


def consume_committed(partition: Partition, bytes_max: int) -> list[bytes]:
    """Reads as Kafka's consumers do: aborted producers are skipped from the first offset on that the answer names, up
    to their marker."""
    values: list[bytes] = []
    offset = partition.log.log_start_offset
    while True:
        asked = FetchPartition(0, -1, offset, -1, -1, bytes_max)
        answer = read_partition(partition, asked, COMMITTED_ONLY, bytes_max, at_least_one=True)
        assert answer.error_code == 0
        if answer.records is None:
            return values
        aborted = sorted(answer.aborted or (), key=lambda one: one[1])
        skipped: set[int] = set()
        data = memoryview(answer.records.file.read(answer.records.position, answer.records.length))
        while len(data) >= HEADER_BYTES and read_header(data).size <= len(data):
            header = read_header(data)
            assert header.last_offset < answer.last_stable_offset
            while aborted and aborted[0][1] <= header.last_offset:
                skipped.add(aborted.pop(0)[0])
            if header.is_control:
                marker = read_end_marker(data, header)
                assert marker is not None
                if marker.is_abort:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                values += [
                    (record.value or b"")[: len(record.value or b"") // 10] for record in iterate_records(data, header)
                ]
            offset = header.last_offset + 1
            data = data[header.size :]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, PRODUCERS - 1), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(1, PRODUCERS - 1), st.integers(0, 1)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 2), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(1, 2000))
def test_consumers_of_committed_records_see_all_or_nothing_of_a_transaction(
    steps: list[tuple[str, int, int]], bytes_max: int
) -> None:
    subject = Subject()
    for step, first, second in steps:
        match step:
            case "write":
                subject.write(first, second)
            case "end":
                subject.end(first, second == 1)
            case "sync":
                subject.sync()
            case "restart":
                subject.restart(is_clean=first == 0, is_power_cut=first == 2)
        assert subject.partition.last_stable_offset == subject.stable_offset()
    assert consume_committed(subject.partition, bytes_max) == subject.committed()


@settings(max_examples=50, deadline=None)
@given(STEPS, st.data())
def test_what_was_deleted_holds_nothing_back(steps: list[tuple[str, int, int]], data: st.DataObject) -> None:
    """DeleteRecords may go beyond the first record of an open transaction: the last stable offset follows, as in
    Kafka."""
    subject = Subject()
    for step, first, second in steps:
        if step == "write":
            subject.write(first, second)
        elif step == "end":
            subject.end(first, second == 1)
    log = subject.partition.log
    start_offset = data.draw(st.integers(0, log.log_end_offset))
    log.advance_log_start(start_offset)
    assert subject.partition.last_stable_offset == max(start_offset, subject.stable_offset())


def test_looking_for_the_last_stable_offset_does_not_take_longer_after_many_transactions() -> None:
    subject = Subject()
    for _ in range(2000):
        subject.write(1, 1)
        subject.end(1, True)
    subject.write(2, 1)
    producers = subject.partition.log.producers
    assert subject.partition.last_stable_offset == 4000
    kept = sum(len(getattr(producers, name)) for name in producers.__slots__)
    assert kept <= 8, "what is kept grows with the transactions that are over"


def test_a_fetch_is_told_of_the_aborted_transactions_in_what_it_gets_and_of_no_others() -> None:
    subject = Subject()
    for _ in range(300):
        subject.write(1, 1)
        subject.end(1, False)
    asked = FetchPartition(0, -1, 300, -1, -1, 100)
    answer = read_partition(subject.partition, asked, COMMITTED_ONLY, 100, at_least_one=True)
    assert answer.error_code == ErrorCode.none
    assert answer.aborted is not None
    assert len(answer.aborted) <= 10
    assert (1, 300) in answer.aborted
