"""The checker of compacted logs complains when it should: a checker that cannot fail proves nothing."""

import pytest

from penstock.protocol.batch import TRANSACTIONAL
from penstock.protocol.records import Record, build_batch
from penstock.testing.compaction_checker import CompactionChecker
from tests.unit.log.made import NOW_MS, make_marker


def at(offset: int, key: bytes, value: bytes | None, **options: int) -> bytes:
    return bytes(build_batch([Record(offset, NOW_MS, key, value)], **options))


@pytest.fixture
def checker() -> CompactionChecker:
    checker = CompactionChecker()
    checker.wrote(0, b"a", b"1")
    checker.wrote(1, b"a", b"2")
    checker.wrote(2, b"b", b"3")
    checker.wrote(3, b"b", None)
    return checker


def test_a_log_that_is_as_it_should_be(checker: CompactionChecker) -> None:
    checker.check(at(1, b"a", b"2") + at(3, b"b", None), tombstones_may_be_gone=False)
    checker.check(at(1, b"a", b"2"), tombstones_may_be_gone=True)
    checker.check(b"", log_start_offset=4, tombstones_may_be_gone=False)


@pytest.mark.parametrize(
    ("batches", "complaint"),
    [
        (at(3, b"b", None), "the last value of b'a'"),
        (at(0, b"a", b"1") + at(3, b"b", None), "the last value of b'a'"),
        (at(1, b"a", b"2"), "went too early"),
        (at(1, b"a", b"1") + at(3, b"b", None), "is at 1, not"),
        (at(1, b"a", b"2") + at(3, b"b", None) + at(9, b"c", b""), "nothing was written at 9"),
        (at(3, b"b", None) + at(1, b"a", b"2"), "comes after"),
    ],
)
def test_a_log_that_is_not(checker: CompactionChecker, batches: bytes, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        checker.check(batches, tombstones_may_be_gone=False)


def test_what_was_deleted_must_not_come_back(checker: CompactionChecker) -> None:
    with pytest.raises(AssertionError, match="was deleted at 3"):
        checker.check(at(1, b"a", b"2") + at(2, b"b", b"3"), tombstones_may_be_gone=True)


def test_a_marker_must_not_go_before_its_records() -> None:
    checker = CompactionChecker()
    checker.wrote(0, b"a", b"1", marker_offset=1)
    record = at(0, b"a", b"1", attributes=TRANSACTIONAL, producer_id=8, producer_epoch=0, base_sequence=0)
    marker = make_marker(8, 0, abort=False)
    marker[7] = 1
    checker.check(record + bytes(marker), tombstones_may_be_gone=False)
    with pytest.raises(AssertionError, match="went before it"):
        checker.check(record, tombstones_may_be_gone=False)
