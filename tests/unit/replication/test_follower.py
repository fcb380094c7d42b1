import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.cluster.partition.follower import FIRST_BACKOFF_MS, FetchedPartition, FetchPosition, Follower
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.log.producer_snapshot import encode_snapshot, state_from_snapshot
from penstock.log.producer_state import PRODUCER_EXPIRATION_MS
from penstock.protocol.batch import read_header
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk

BACKOFF_MS = 1000


def make_log(*epochs: int) -> Log:
    """A log with one record per epoch given, the value of which tells them apart."""
    log = Log.open(
        SimDisk(), "orders-0", LogConfig(), topic_id=None, recovery_point=0, clean=True, log_start_offset=0, now_ms=0
    )
    for epoch in epochs:
        append(log, epoch)
    return log


def append(log: Log, epoch: int, value: bytes = b"v") -> None:
    batch = build_batch([Record(0, 0, None, value)])
    log.append(batch, read_header(batch), epoch, 0)


def contents(log: Log, start: int = 0) -> bytes:
    if start >= log.log_end_offset:
        return b""
    found = log.read(start, 1 << 20, log.log_end_offset)
    assert found is not None
    return found.file.read(found.position, found.length)


def following(log: Log, leader_epoch: int = 9, high_watermark: int = 0) -> Follower:
    follower = Follower(log, high_watermark, backoff_ms=BACKOFF_MS)
    follower.follow(1, leader_epoch)
    return follower


def ask(follower: Follower, now_ms: int = 0) -> FetchPosition:
    position = follower.position(now_ms)
    assert position is not None
    return position


def test_a_fetch_says_where_the_log_ends_and_which_epoch_wrote_its_last_batch() -> None:
    follower = following(make_log(3, 3, 4))
    assert ask(follower) == FetchPosition(leader_epoch=9, fetch_offset=3, last_fetched_epoch=4, log_start_offset=0)
    assert ask(following(make_log())).last_fetched_epoch == -1


def test_without_a_leader_nothing_is_asked() -> None:
    follower = Follower(make_log(), 0, backoff_ms=BACKOFF_MS)
    assert follower.position(0) is None
    follower.follow(2, 5)
    follower.follow(1, 4)
    assert (follower.leader_id, follower.leader_epoch) == (2, 5)
    follower.follow(-1, 6)
    assert follower.position(0) is None


def test_a_producer_that_was_replicated_is_known_after_a_clean_restart() -> None:
    """Its last write is noted by the time of day, whatever clock deadlines go by: taken for long ago, it would be
    forgotten, and what it sends again written twice."""
    wall_ms = 1_700_000_000_000
    records = build_batch([Record(0, wall_ms, None, b"v")], producer_id=77, producer_epoch=0, base_sequence=0)
    own = make_log()
    follower = following(own)
    answer = FetchedPartition(high_watermark=1, log_start_offset=0, records=records)
    follower.on_answer(ask(follower), answer, now_ms=5, wall_ms=wall_ms)
    snapshot = encode_snapshot(own.producers)
    assert 77 in state_from_snapshot(snapshot, wall_ms + 1000).producers
    own.expire_producers(wall_ms + 1000, PRODUCER_EXPIRATION_MS)
    assert 77 in own.producers.producers


def test_batches_are_taken_over_as_they_are_with_the_leaders_high_watermark() -> None:
    leader, own = make_log(3, 4, 4), make_log(3)
    follower = following(own)
    answer = FetchedPartition(high_watermark=2, log_start_offset=0, records=contents(leader, 1))
    follower.on_answer(ask(follower), answer, 0, wall_ms=0)
    assert contents(own) == contents(leader)
    assert (own.epochs.entries(), follower.high_watermark) == ([(3, 0), (4, 1)], 2)


def test_the_high_watermark_is_not_beyond_the_log_and_does_not_go_back() -> None:
    follower = following(make_log(3), high_watermark=1)
    follower.on_answer(ask(follower), FetchedPartition(high_watermark=50, log_start_offset=0), 0, wall_ms=0)
    assert follower.high_watermark == 1
    follower.on_answer(ask(follower), FetchedPartition(high_watermark=0, log_start_offset=0), 0, wall_ms=0)
    assert follower.high_watermark == 1


def test_the_log_begins_where_the_leaders_does() -> None:
    own = make_log(3, 3, 3, 3)
    follower = following(own)
    follower.on_answer(ask(follower), FetchedPartition(high_watermark=3, log_start_offset=4), 0, wall_ms=0)
    assert own.log_start_offset == 3


@pytest.mark.parametrize(
    ("own", "diverging", "left"),
    [
        # The leader has less of the same epoch.
        ((3, 4, 4, 4), (4, 2), 2),
        # The leader never had epoch 5.
        ((3, 4, 5, 5), (4, 2), 2),
        # Nor did it have 4, of which we have some: it is asked again with 3.
        ((3, 4, 4, 5), (3, 9), 1),
        # We never had epoch 4, which it names: what came after 3 goes, and it is asked again.
        ((3, 3, 5, 5), (4, 3), 2),
    ],
)
def test_the_log_is_cut_where_the_leaders_epochs_part_from_ours(
    own: tuple[int, ...], diverging: tuple[int, int], left: int
) -> None:
    """KIP-279, KIP-595."""
    log = make_log(*own)
    follower = following(log, high_watermark=0)
    follower.on_answer(ask(follower), FetchedPartition(diverging_epoch=diverging), 0, wall_ms=0)
    assert (log.log_end_offset, log.latest_epoch) == (left, own[left - 1])


def test_an_epoch_in_which_nothing_was_written_is_forgotten_by_diverging() -> None:
    log = make_log(3, 3)
    log.assign_epoch(6, 2)
    follower = following(log)
    assert ask(follower).last_fetched_epoch == 6
    follower.on_answer(ask(follower), FetchedPartition(diverging_epoch=(3, 5)), 0, wall_ms=0)
    assert ask(follower).last_fetched_epoch == 3
    assert log.log_end_offset == 2


def test_becoming_a_follower_cuts_nothing() -> None:
    """Truncation by the high watermark loses what was acknowledged (KIP-101)."""
    log = make_log(3, 3, 3)
    following(log, high_watermark=1)
    assert log.log_end_offset == 3


def test_an_answer_to_a_question_that_no_longer_stands_is_not_used() -> None:
    leader, own = make_log(3, 3, 3), make_log(3)
    follower = following(own)
    asked = ask(follower)
    late = FetchedPartition(high_watermark=3, log_start_offset=0, records=contents(leader, 1))
    follower.follow(2, 10)
    follower.on_answer(asked, late, 0, wall_ms=0)
    follower.on_answer(asked, FetchedPartition(diverging_epoch=(0, 0)), 0, wall_ms=0)
    assert own.log_end_offset == 1
    again = ask(follower)
    append(own, 3)
    follower.on_answer(again, late, 0, wall_ms=0)
    assert own.log_end_offset == 2


@pytest.mark.parametrize(
    "error", [ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch, ErrorCode.not_leader_or_follower]
)
def test_after_an_error_it_waits_unless_the_metadata_brings_news(error: ErrorCode) -> None:
    follower = following(make_log())
    follower.on_answer(ask(follower), FetchedPartition(error), now_ms=5, wall_ms=0)
    assert (follower.position(5), follower.retry_at_ms) == (None, 5 + FIRST_BACKOFF_MS)
    assert follower.position(5 + FIRST_BACKOFF_MS) is not None
    follower.back_off(BACKOFF_MS)
    follower.follow(2, 10)
    assert follower.position(BACKOFF_MS) is not None


def test_pauses_grow_up_to_the_longest_and_are_short_again_after_an_answer() -> None:
    follower = following(make_log())
    pauses = []
    now_ms = 0
    for _ in range(9):
        follower.on_answer(
            ask(follower, now_ms), FetchedPartition(ErrorCode.unknown_leader_epoch), now_ms, wall_ms=now_ms
        )
        assert follower.retry_at_ms is not None
        pauses.append(follower.retry_at_ms - now_ms)
        now_ms = follower.retry_at_ms
    assert pauses == [10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS]
    follower.on_answer(
        ask(follower, now_ms), FetchedPartition(high_watermark=0, log_start_offset=0), now_ms, wall_ms=now_ms
    )
    follower.on_answer(ask(follower, now_ms), FetchedPartition(ErrorCode.unknown_leader_epoch), now_ms, wall_ms=now_ms)
    assert follower.retry_at_ms == now_ms + FIRST_BACKOFF_MS


def test_a_damaged_batch_is_asked_for_again_and_what_was_whole_is_kept() -> None:
    leader, own = make_log(3, 3), make_log()
    damaged = bytearray(contents(leader))
    damaged[-1] ^= 1
    follower = following(own)
    follower.on_answer(
        ask(follower), FetchedPartition(records=bytes(damaged), high_watermark=2, log_start_offset=0), 0, wall_ms=0
    )
    assert own.log_end_offset == 1
    assert follower.position(0) is None
    follower.on_answer(
        ask(follower, BACKOFF_MS),
        FetchedPartition(records=contents(leader, 1), high_watermark=2, log_start_offset=0),
        0,
        wall_ms=0,
    )
    assert contents(own) == contents(leader)


def test_a_first_batch_that_is_cut_short_has_a_damaged_length_and_is_not_asked_for_in_a_tight_loop() -> None:
    leader, own = make_log(3, 3), make_log()
    damaged = bytearray(contents(leader))
    damaged[8] ^= 1
    follower = following(own)
    follower.on_answer(
        ask(follower), FetchedPartition(records=bytes(damaged), high_watermark=2, log_start_offset=0), 0, wall_ms=0
    )
    assert own.log_end_offset == 0
    assert follower.retry_at_ms == FIRST_BACKOFF_MS


def test_who_was_away_for_longer_than_retention_begins_anew_where_the_leader_does() -> None:
    own = make_log(3, 3)
    follower = following(own, high_watermark=2)
    follower.on_answer(ask(follower), FetchedPartition(ErrorCode.offset_out_of_range), 0, wall_ms=0)
    assert (follower.wants_offsets, follower.position(0)) == (True, None)
    follower.on_leader_offsets(8, start_offset=70, end_offset=90, now_ms=0, wall_ms=0)
    assert own.log_end_offset == 2
    follower.on_leader_offsets(9, start_offset=70, end_offset=90, now_ms=0, wall_ms=0)
    assert (own.log_start_offset, own.log_end_offset, follower.high_watermark) == (70, 70, 70)
    assert ask(follower, BACKOFF_MS).fetch_offset == 70


@pytest.mark.parametrize(("leader_start", "own_start", "own_end"), [(1, 1, 1), (2, 2, 5), (3, 2, 5)])
def test_a_log_that_a_crash_took_the_beginning_of_is_copied_anew(
    leader_start: int, own_start: int, own_end: int
) -> None:
    """Before its first fetch: by that the leader would take it for one that has everything."""
    own = make_log(5, 5, 5, 5, 5)
    own.advance_log_start(2)
    own.may_lack_beginning = True
    follower = following(own, high_watermark=5)
    assert follower.wants_offsets
    assert follower.position(0) is None
    follower.on_leader_offsets(9, leader_start, 5, 0, wall_ms=0)
    assert (own.log_start_offset, own.log_end_offset, follower.high_watermark) == (own_start, own_end, own_end)
    assert ask(follower).fetch_offset == own_end
    assert not own.may_lack_beginning


def test_a_log_that_begins_in_the_middle_of_a_batch_is_copied_with_the_whole_of_it() -> None:
    leader = make_log()
    batch = build_batch([Record(delta, 0, None, b"v") for delta in range(5)])
    leader.append(batch, read_header(batch), 1, 0)
    leader.advance_log_start(3)
    own = make_log()
    follower = following(own)
    follower.on_answer(ask(follower), FetchedPartition(ErrorCode.offset_out_of_range), 0, wall_ms=0)
    follower.on_leader_offsets(9, start_offset=3, end_offset=5, now_ms=0, wall_ms=0)
    answer = FetchedPartition(high_watermark=5, log_start_offset=3, records=contents(leader, 3))
    follower.on_answer(ask(follower, BACKOFF_MS), answer, BACKOFF_MS, wall_ms=0)
    assert (own.log_start_offset, own.log_end_offset, follower.high_watermark) == (3, 5, 5)
    assert contents(own, 3) == contents(leader, 3)


def test_a_damaged_batch_in_the_middle_of_which_the_leaders_log_begins_is_waited_for() -> None:
    records = build_batch([Record(offset, 0, None, b"v") for offset in range(3)])
    leader = make_log(5, 5)
    leader.append(records, read_header(records), 5, 0)
    damaged = bytearray(contents(leader, 2))
    damaged[-1] ^= 1
    own = make_log()
    own.truncate_fully_and_start_at(3, 0)
    follower = following(own, high_watermark=3)
    follower.on_answer(
        ask(follower), FetchedPartition(high_watermark=5, log_start_offset=3, records=damaged), 0, wall_ms=0
    )
    assert (own.log_start_offset, own.log_end_offset, follower.high_watermark) == (2, 2, 2)
    whole = FetchedPartition(high_watermark=5, log_start_offset=3, records=contents(leader, 2))
    follower.on_answer(ask(follower, BACKOFF_MS), whole, BACKOFF_MS, wall_ms=0)
    assert (own.log_start_offset, own.log_end_offset, follower.high_watermark) == (3, 5, 5)


def test_who_has_more_than_the_leader_in_an_epoch_it_does_not_know_is_cut_to_its_end() -> None:
    own = make_log(3, 3, 3)
    follower = following(own, high_watermark=3)
    follower.on_answer(ask(follower), FetchedPartition(ErrorCode.offset_out_of_range), 0, wall_ms=0)
    follower.on_leader_offsets(9, start_offset=0, end_offset=1, now_ms=0, wall_ms=0)
    assert (own.log_end_offset, follower.high_watermark) == (1, 1)


def test_a_throttled_replica_waits_while_the_quota_is_exceeded() -> None:
    """KIP-73."""
    follower = following(make_log())
    follower.is_throttled = True
    assert follower.position(0, quota_is_exceeded=True) is None
    assert follower.retry_at_ms == 100
    assert follower.position(100) is not None


@settings(max_examples=200, deadline=None)
@given(
    shared=st.lists(st.integers(0, 2), max_size=6),
    leaders=st.lists(st.integers(3, 6), max_size=6),
    own=st.lists(st.integers(3, 6), max_size=6),
)
def test_logs_that_parted_anywhere_become_equal(shared: list[int], leaders: list[int], own: list[int]) -> None:
    """Epochs rise, and an epoch has one leader: so the two logs may share later epochs only where they agree."""
    ours = [2 * epoch + 1 for epoch in sorted(own)]
    theirs = [2 * epoch for epoch in sorted(leaders)]
    leader, follower_log = make_log(*sorted(shared), *theirs), make_log(*sorted(shared), *ours)
    leader.assign_epoch(99, leader.log_end_offset)
    follower = following(follower_log, leader_epoch=99)
    for _ in range(40):
        asked = ask(follower)
        if asked.fetch_offset == leader.log_end_offset and asked.last_fetched_epoch == leader.epoch_for_offset(
            leader.log_end_offset - 1
        ):
            break
        answer = FetchedPartition(high_watermark=0, log_start_offset=0, records=contents(leader, asked.fetch_offset))
        if asked.last_fetched_epoch >= 0:
            epoch, end_offset = leader.end_offset_for_epoch(asked.last_fetched_epoch)
            if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
                answer = FetchedPartition(diverging_epoch=(epoch, end_offset))
        assert follower_log.log_end_offset >= len(shared)
        follower.on_answer(asked, answer, 0, wall_ms=0)
    assert contents(follower_log) == contents(leader)


def test_a_throttled_replica_that_has_caught_up_does_not_wait() -> None:
    """KIP-73: it is in sync, and is to stay so."""
    follower = following(make_log(1))
    follower.is_throttled = True
    asked = follower.position(0)
    assert asked is not None
    follower.on_answer(asked, FetchedPartition(high_watermark=1, log_start_offset=0), 100, wall_ms=100)
    assert follower.position(100, quota_is_exceeded=True) is not None
