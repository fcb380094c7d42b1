import uuid

from penstock.base.errors import ErrorCode
from penstock.cluster.partition.fetcher import FetchBody, Fetcher, Key
from penstock.cluster.partition.follower import FIRST_BACKOFF_MS, FetchedPartition, Follower
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.testing.sim_disk import SimDisk
from tests.unit.replication.test_follower import append, contents, make_log

BACKOFF_MS = 100
WALL_MS = 1_700_000_000_000
A, B = ((uuid.UUID(int=7), index) for index in (0, 1))
NOTHING_NEW = FetchedPartition(high_watermark=0, log_start_offset=0)


def fetcher_of(*keys: Key) -> tuple[Fetcher, dict[Key, Follower]]:
    fetcher = Fetcher(backoff_ms=BACKOFF_MS)
    followers = {key: Follower(make_log(), 0, backoff_ms=BACKOFF_MS) for key in keys}
    for key, follower in followers.items():
        follower.follow(1, 5)
        fetcher.add(key, follower)
    return fetcher, followers


def request(fetcher: Fetcher, now_ms: int = 0) -> FetchBody:
    body = fetcher.next_request(now_ms)
    assert body is not None
    return body


def answer(fetcher: Fetcher, *answers: tuple[Key, FetchedPartition], session_id: int = 77, now_ms: int = 0) -> None:
    fetcher.on_answer(ErrorCode.none, session_id, answers, now_ms, wall_ms=now_ms)


def test_a_session_begins_with_everything_and_goes_on_with_what_changed() -> None:
    fetcher, _ = fetcher_of(A, B)
    first = request(fetcher)
    assert (first.session_id, first.session_epoch, [key for key, _ in first.partitions]) == (0, 0, [A, B])
    assert fetcher.next_request(0) is None
    new = FetchedPartition(high_watermark=0, log_start_offset=0, records=contents(make_log(5)))
    answer(fetcher, (A, new), (B, NOTHING_NEW))
    second = request(fetcher)
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert [(key, position.fetch_offset) for key, position in second.partitions] == [(A, 1)]
    answer(fetcher)
    third = request(fetcher)
    assert (third.session_epoch, third.partitions, third.forgotten) == (2, [], [])


def test_a_follower_whose_disk_is_full_goes_on_when_there_is_space_again() -> None:
    disk = SimDisk(capacity_bytes=0)
    log = Log.open(
        disk, "full-0", LogConfig(), topic_id=None, recovery_point=0, clean=True, log_start_offset=0, now_ms=0
    )
    fetcher, follower = Fetcher(backoff_ms=BACKOFF_MS), Follower(log, 0, backoff_ms=BACKOFF_MS)
    follower.follow(1, 5)
    fetcher.add(A, follower)
    request(fetcher)
    new = FetchedPartition(high_watermark=1, log_start_offset=0, records=contents(make_log(5)))
    taken = fetcher.on_answer(ErrorCode.none, 77, [(A, new)], 0, wall_ms=0)
    assert (list(taken.full), taken.failed, log.log_end_offset) == ([A], {}, 0)
    # It is no longer asked for, so that others are not kept from waiting for news, until it is time to try again.
    assert request(fetcher).forgotten == [A]
    answer(fetcher, now_ms=1)
    disk.capacity_bytes = None
    assert [key for key, _ in request(fetcher, FIRST_BACKOFF_MS).partitions] == [A]
    answer(fetcher, (A, new), now_ms=FIRST_BACKOFF_MS)
    assert log.log_end_offset == 1


def test_a_log_that_cannot_be_read_fails_alone() -> None:
    """It is opened when it is first asked how far it is."""
    disk = SimDisk()

    def open_log() -> Log:
        return Log.open(
            disk, "damaged-0", LogConfig(), topic_id=None, recovery_point=0, clean=True, log_start_offset=0, now_ms=0
        )

    whole = open_log()
    append(whole, 5)
    whole.roll(0)
    append(whole, 5)
    whole.close()
    disk.flip_bit(f"damaged-0/{1:020d}.log", 8, 7)
    damaged = open_log()
    fetcher, _ = fetcher_of(A)
    follower = Follower(damaged, 0, backoff_ms=BACKOFF_MS)
    follower.follow(1, 5)
    fetcher.add(B, follower)
    assert [key for key, _ in request(fetcher).partitions] == [A]
    assert (list(fetcher.take_failed()), fetcher.take_failed(), B in fetcher) == ([B], {}, False)
    answer(fetcher, (A, NOTHING_NEW))
    assert request(fetcher).forgotten == []


def test_a_leader_without_sessions_is_told_everything_each_time() -> None:
    fetcher, _ = fetcher_of(A, B)
    for _ in range(2):
        assert [key for key, _ in request(fetcher).partitions] == [A, B]
        answer(fetcher, session_id=0)


def test_a_lost_session_is_opened_anew_at_once() -> None:
    fetcher, _ = fetcher_of(A)
    request(fetcher)
    answer(fetcher)
    request(fetcher)
    fetcher.on_answer(ErrorCode.fetch_session_id_not_found, 0, [], 0, wall_ms=0)
    again = request(fetcher)
    assert (again.session_id, again.session_epoch, len(again.partitions)) == (0, 0, 1)
    fetcher.on_answer(ErrorCode.invalid_fetch_session_epoch, 0, [], 0, wall_ms=0)
    assert request(fetcher).session_epoch == 0


def test_after_a_failure_it_waits_and_begins_anew_closing_the_old_session() -> None:
    fetcher, _ = fetcher_of(A)
    request(fetcher)
    answer(fetcher)
    request(fetcher)
    fetcher.on_failure(now_ms=10)
    assert (fetcher.next_request(10), fetcher.next_deadline_ms()) == (None, BACKOFF_MS + 10)
    again = request(fetcher, BACKOFF_MS + 10)
    assert (again.session_id, again.session_epoch, len(again.partitions)) == (77, 0, 1)


def test_a_partition_that_waits_is_forgotten_by_the_session_until_it_is_due() -> None:
    fetcher, _ = fetcher_of(A, B)
    request(fetcher)
    answer(fetcher, (A, FetchedPartition(ErrorCode.not_leader_or_follower)))
    waiting = request(fetcher)
    assert (waiting.partitions, waiting.forgotten) == ([], [A])
    answer(fetcher)
    assert fetcher.next_deadline_ms() == fetcher.rest_ends_ms() == FIRST_BACKOFF_MS
    assert [key for key, _ in request(fetcher, BACKOFF_MS).partitions] == [A]


def test_partitions_come_and_go() -> None:
    fetcher, followers = fetcher_of(A, B)
    request(fetcher)
    answer(fetcher)
    fetcher.remove(A)
    assert request(fetcher).forgotten == [A]
    answer(fetcher, (A, NOTHING_NEW))
    fetcher.add(A, followers[A])
    assert [key for key, _ in request(fetcher).partitions] == [A]
    answer(fetcher)
    fetcher.remove(A)
    fetcher.add(A, followers[A])
    body = request(fetcher)
    assert (body.partitions, body.forgotten) == ([], [])


def test_a_new_leader_epoch_is_news() -> None:
    fetcher, followers = fetcher_of(A)
    request(fetcher)
    answer(fetcher)
    followers[A].follow(1, 6)
    fetcher.changed(A)
    assert [position.leader_epoch for _, position in request(fetcher).partitions] == [6]


def test_who_is_out_of_range_is_named_and_goes_on_when_it_knows_more() -> None:
    fetcher, followers = fetcher_of(A)
    request(fetcher)
    answer(fetcher, (A, FetchedPartition(ErrorCode.offset_out_of_range)))
    assert request(fetcher).forgotten == [A]
    assert fetcher.wanting_offsets() == [A]
    answer(fetcher)
    followers[A].on_leader_offsets(5, start_offset=40, end_offset=50, now_ms=0, wall_ms=0)
    fetcher.changed(A)
    assert [position.fetch_offset for _, position in request(fetcher, BACKOFF_MS).partitions] == [40]


def test_with_nothing_to_follow_nothing_is_asked() -> None:
    fetcher, _ = fetcher_of()
    assert (fetcher.next_request(0), fetcher.next_deadline_ms()) == (None, None)


def test_throttled_partitions_rest_while_the_quota_is_exceeded() -> None:
    fetcher, followers = fetcher_of(A, B)
    followers[A].is_throttled = True
    body = fetcher.next_request(0, quota_is_exceeded=True)
    assert body is not None
    assert [key for key, _ in body.partitions] == [B]
    answer(fetcher)
    rest_ends_ms = fetcher.rest_ends_ms()
    assert rest_ends_ms is not None
    assert [key for key, _ in request(fetcher, rest_ends_ms).partitions] == [A]
