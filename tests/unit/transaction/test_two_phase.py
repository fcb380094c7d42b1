"""KIP-939: transactions that take part in two-phase commits."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction.records import EPOCH_MAX, NO_TIMEOUT_MS
from penstock.coordinator.transaction.states import TransactionState
from tests.unit.transaction.coordinator import P0, P1, Coordinator

YEAR_MS = 365 * 24 * 3_600_000
TWO_PHASE: dict[str, Any] = {"enable2_pc": True, "transaction_timeout": 1}
KEEPING: dict[str, Any] = {"enable2_pc": True, "keep_prepared_txn": True, "transaction_timeout": 1}


def prepared() -> tuple[Coordinator, tuple[int, int]]:
    """An open transaction of a two-phase commit."""
    coordinator = Coordinator(transaction_two_phase_commit_enable="true")
    producer = coordinator.producer(**TWO_PHASE)
    coordinator.add("t", producer, P0, P1)
    return coordinator, producer


def pair(answer: Any) -> tuple[int, int]:
    return answer.producer_id, answer.producer_epoch


def ongoing(answer: Any) -> tuple[int, int]:
    return answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch


def test_two_phase_commits_have_to_be_allowed() -> None:
    coordinator = Coordinator()
    answer = coordinator.init(**TWO_PHASE)
    assert answer.error_code == ErrorCode.transactional_id_authorization_failed
    assert ongoing(answer) == (-1, -1)


def test_a_prepared_transaction_outlives_every_timeout_and_restarts() -> None:
    coordinator, producer = prepared()
    assert coordinator.states["t"].timeout_ms == NO_TIMEOUT_MS
    for _ in range(3):
        coordinator.advance(YEAR_MS)
        coordinator.restart()
    described = coordinator.describe()
    assert (described.transaction_state, pair(described)) == ("Ongoing", producer)
    assert coordinator.listed(duration_filter=3 * YEAR_MS - 1) == [("t", "Ongoing")]
    assert coordinator.end("t", producer).error_code == ErrorCode.none


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_new_producer_takes_a_prepared_transaction_over_and_ends_it(commit: bool, restarts: bool) -> None:
    coordinator, old = prepared()
    answer = coordinator.init(**KEEPING)
    assert (answer.error_code, pair(answer), ongoing(answer)) == (ErrorCode.none, (100, 1), old)
    assert coordinator.state_of() is TransactionState.ONGOING
    if restarts:
        coordinator.restart()
    # The one before is out, whatever it tries.
    assert coordinator.end("t", old, commit=not commit).error_code == ErrorCode.producer_fenced
    assert coordinator.add("t", old, P0) == ErrorCode.producer_fenced
    end = coordinator.end("t", pair(answer), commit=commit)
    assert (end.error_code, pair(end)) == (ErrorCode.none, (100, 2))
    (markers,) = coordinator.write_markers()
    assert (markers.is_commit, markers.partitions) == (commit, (P0, P1))
    assert (markers.producer_id, markers.producer_epoch) == (100, 2), "it fences both producers before it"
    again = coordinator.end("t", pair(answer), commit=commit)
    assert (again.error_code, pair(again)) == (ErrorCode.none, (100, 2))


def test_recovery_can_be_repeated_and_tells_of_the_same_transaction() -> None:
    coordinator, old = prepared()
    for epoch in range(1, 6):
        answer = coordinator.init(**KEEPING)
        assert (pair(answer), ongoing(answer)) == ((100, epoch), old)
        coordinator.restart()
    assert coordinator.end("t", (100, 4)).error_code == ErrorCode.producer_fenced
    assert coordinator.end("t", (100, 5)).error_code == ErrorCode.none


def test_nothing_can_be_added_to_what_was_taken_over() -> None:
    coordinator, _ = prepared()
    answer = coordinator.init(**KEEPING)
    assert coordinator.add("t", pair(answer), P0) == ErrorCode.invalid_txn_state
    assert coordinator.add("t", pair(answer), P0, verify_only=True) == ErrorCode.invalid_txn_state


def test_without_an_open_transaction_there_is_nothing_to_keep() -> None:
    coordinator = Coordinator(transaction_two_phase_commit_enable="true")
    for epoch in range(2):
        answer = coordinator.init(**KEEPING)
        assert (answer.error_code, pair(answer), ongoing(answer)) == (ErrorCode.none, (100, epoch), (-1, -1))
    coordinator.add("t", (100, 1), P0)
    coordinator.end("t", (100, 1))
    coordinator.write_markers()
    answer = coordinator.init(**KEEPING)
    assert (pair(answer), ongoing(answer)) == ((100, 3), (-1, -1))


def test_one_that_asks_for_the_prepared_transaction_while_it_ends_waits_for_that() -> None:
    coordinator, producer = prepared()
    coordinator.end("t", producer)
    token = coordinator.send_init(**KEEPING)
    assert token not in coordinator.answers
    coordinator.write_markers()
    assert ongoing(coordinator.answers[token]) == (-1, -1)


def test_a_producer_that_keeps_nothing_aborts_what_was_prepared_also_after_it_was_taken_over() -> None:
    for is_taken_over in (False, True):
        coordinator, _ = prepared()
        if is_taken_over:
            coordinator.init(**KEEPING)
        answer = coordinator.init(**TWO_PHASE)
        assert answer.error_code == ErrorCode.none
        assert coordinator.state_of() is TransactionState.EMPTY
        assert [one.value.state for effect in coordinator.performed for one in getattr(effect, "records", ())][-3:] == [
            TransactionState.PREPARE_ABORT,
            TransactionState.COMPLETE_ABORT,
            TransactionState.EMPTY,
        ]


def test_what_is_kept_without_two_phase_commit_keeps_its_time() -> None:
    coordinator = Coordinator()
    coordinator.add("t", coordinator.producer(transaction_timeout=60_000), P0)
    answer = coordinator.init(keep_prepared_txn=True, transaction_timeout=1000)
    assert ongoing(answer) == (100, 0)
    coordinator.advance(59_999)
    assert coordinator.state_of() is TransactionState.ONGOING
    coordinator.advance(1)
    (markers,) = coordinator.write_markers()
    assert (markers.is_commit, markers.producer_epoch) == (False, 2)


def test_recoveries_beyond_the_last_epoch_go_on_under_a_new_id_and_the_markers_keep_the_old() -> None:
    coordinator, old = prepared()
    transaction = coordinator.states["t"]._replace(next_producer_id=100, next_producer_epoch=EPOCH_MAX - 2)
    coordinator.shard.replay(type(coordinator.performed[0].records[0])("t", transaction))  # type: ignore[union-attr]
    answer = coordinator.init(**KEEPING)
    assert (pair(answer), ongoing(answer)) == ((100, EPOCH_MAX - 1), old)
    answer = coordinator.init(**KEEPING)
    assert (pair(answer), ongoing(answer)) == ((101, 0), old)
    coordinator.restart()
    answer = coordinator.init(**KEEPING)
    assert (pair(answer), ongoing(answer)) == ((101, 1), old)
    end = coordinator.end("t", (101, 1))
    assert pair(end) == (101, 2)
    coordinator.restart()
    (markers,) = coordinator.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (100, 1)
    again = coordinator.end("t", (101, 1))
    assert (again.error_code, pair(again)) == (ErrorCode.none, (101, 2))
    assert coordinator.add("t", (101, 2), P0) == ErrorCode.none
