"""Fetch sessions as KIP-227 defines them."""

from itertools import count

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ports import Slice
from penstock.broker.fetch.sessions import FetchContext, SessionCache
from penstock.protocol.fetch import FetchPartition, FetchRequest, PartitionAnswer


class CountingRandom:
    def __init__(self) -> None:
        self._next = count(1)

    def random_bytes(self, count: int) -> bytes:
        return next(self._next).to_bytes(count)


def cache(sessions_max: int = 10) -> SessionCache:
    return SessionCache(CountingRandom(), sessions_max=sessions_max, eviction_ms=1000)


def fetch(
    session_id: int = 0, epoch: int = 0, *, wants: tuple[int, ...] = (), forgets: tuple[int, ...] = (), offset: int = 0
) -> FetchRequest:
    partitions = [FetchPartition(index, -1, offset, -1, -1, 1000) for index in wants]
    return FetchRequest(
        -1,
        500,
        1,
        10_000,
        False,
        session_id,
        epoch,
        [(b"t", partitions)] if wants else [],
        [(b"t", list(forgets))] if forgets else [],
        "",
    )


def wanted(context: FetchContext) -> list[int]:
    return [one.request.partition for one in context.partitions]


def test_a_first_full_fetch_opens_a_session() -> None:
    context = cache().open(fetch(wants=(0, 1)), False, 0)
    assert context.session_id == 1
    assert not context.is_incremental
    assert wanted(context) == [0, 1]


def test_a_fetch_with_the_final_epoch_has_no_session_and_ends_the_one_it_names() -> None:
    sessions = cache()
    opened = sessions.open(fetch(wants=(0,)), False, 0)
    context = sessions.open(fetch(opened.session_id, -1, wants=(0,)), False, 0)
    assert context.session_id == 0
    assert sessions.open(fetch(opened.session_id, 1), False, 0).error == ErrorCode.fetch_session_id_not_found


def test_an_incremental_fetch_adds_changes_and_forgets_partitions() -> None:
    sessions = cache()
    session_id = sessions.open(fetch(wants=(0, 1)), False, 0).session_id
    context = sessions.open(fetch(session_id, 1, wants=(2, 0), forgets=(1,), offset=7), False, 0)
    assert context.is_incremental
    assert wanted(context) == [0, 2]
    assert [one.request.fetch_offset for one in context.partitions] == [7, 7]


def test_the_epoch_must_follow() -> None:
    sessions = cache()
    session_id = sessions.open(fetch(wants=(0,)), False, 0).session_id
    assert sessions.open(fetch(session_id, 2), False, 0).error == ErrorCode.invalid_fetch_session_epoch
    assert not sessions.open(fetch(session_id, 1), False, 0).error
    assert sessions.open(fetch(session_id, 1), False, 0).error == ErrorCode.invalid_fetch_session_epoch
    assert not sessions.open(fetch(session_id, 2), False, 0).error


def test_a_session_does_not_change_between_names_and_ids() -> None:
    sessions = cache()
    session_id = sessions.open(fetch(wants=(0,)), False, 0).session_id
    assert sessions.open(fetch(session_id, 1), True, 0).error == ErrorCode.fetch_session_topic_id_error


def test_a_session_that_wants_nothing_any_more_ends() -> None:
    sessions = cache()
    session_id = sessions.open(fetch(wants=(0,)), False, 0).session_id
    assert sessions.open(fetch(session_id, 1, forgets=(0,)), False, 0).session_id == 0
    assert len(sessions) == 0


def test_a_full_cache_gives_no_session_until_one_is_old_enough_to_evict() -> None:
    sessions = cache(sessions_max=2)
    first = sessions.open(fetch(wants=(0,)), False, 0).session_id
    second = sessions.open(fetch(wants=(0,)), False, 100).session_id
    sessions.open(fetch(first, 1), False, 200)
    assert sessions.open(fetch(wants=(0,)), False, 300).session_id == 0
    third = sessions.open(fetch(wants=(0,)), False, 1100).session_id
    assert third not in (0, first, second)
    # The least recently used one had to go: the second.
    assert not sessions.open(fetch(first, 2), False, 1100).error
    assert sessions.open(fetch(second, 1), False, 1100).error == ErrorCode.fetch_session_id_not_found


@pytest.mark.parametrize(
    ("answer", "is_news"),
    [
        (PartitionAnswer(0, 0, 10, 10, 0), False),
        (PartitionAnswer(0, 0, 11, 10, 0), True),
        (PartitionAnswer(0, 0, 10, 10, 3), True),
        (PartitionAnswer(0, ErrorCode.offset_out_of_range), True),
        (PartitionAnswer(0, 0, 10, 10, 0, records=Slice(None, 0, 5)), True),  # type: ignore[arg-type]
        (PartitionAnswer(0, 0, 10, 10, 0, diverging_epoch=(1, 2)), True),
    ],
)
def test_an_incremental_answer_mentions_a_partition_only_when_there_is_news(
    answer: PartitionAnswer, is_news: bool
) -> None:
    sessions = cache()
    one = sessions.open(fetch(wants=(0,)), False, 0).partitions[0]
    assert one.is_news(PartitionAnswer(0, 0, 10, 10, 0))
    assert one.is_news(answer) is is_news


def test_an_error_that_is_over_is_news_too() -> None:
    one = cache().open(fetch(wants=(0,)), False, 0).partitions[0]
    one.is_news(PartitionAnswer(0, ErrorCode.unknown_topic_or_partition, 10, 10, 0))
    assert one.is_news(PartitionAnswer(0, 0, 10, 10, 0))


def test_partitions_that_gave_data_go_last_next_time() -> None:
    sessions = cache()
    context = sessions.open(fetch(wants=(0, 1, 2)), False, 0)
    assert context.session is not None
    context.session.move_behind_others([(b"t", 0)])
    assert wanted(sessions.open(fetch(context.session_id, 1), False, 0)) == [1, 2, 0]
