"""What is known to have gone wrong with transactions elsewhere, as far as the coordinator can prevent it."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Answer, Append, Send
from penstock.coordinator.transaction.records import decode_record
from penstock.coordinator.transaction.requests import Addition
from penstock.coordinator.transaction.states import TransactionState
from tests.unit.transaction.coordinator import P0, P1, Coordinator

TIMEOUT_MS = 60_000


def opened(**settings: object) -> tuple[Coordinator, tuple[int, int]]:
    """A coordinator with an open transaction of `t`."""
    coordinator = Coordinator(**settings)
    producer = coordinator.producer()
    assert coordinator.add("t", producer, P0) == ErrorCode.none
    return coordinator, producer


def test_the_beginning_of_a_transaction_is_in_the_log_before_a_partition_hears_of_it() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.performed.clear()
    coordinator.add("t", producer, P0)
    append, answer = coordinator.performed
    assert isinstance(append, Append)
    assert isinstance(answer, Answer)
    coordinator.restart()
    assert coordinator.describe().transaction_state == "Ongoing"
    assert coordinator.end("t", producer).error_code == ErrorCode.none
    assert coordinator.sent[0].partitions == (P0,)


def test_a_timeout_bumps_the_epoch_in_the_log_before_its_markers_leave() -> None:
    coordinator, producer = opened()
    coordinator.performed.clear()
    coordinator.advance(TIMEOUT_MS - 1)
    assert coordinator.performed == []
    coordinator.advance(1)
    append, send = coordinator.performed
    assert isinstance(append, Append)
    assert isinstance(send, Send)
    assert coordinator.state_of() is TransactionState.PREPARE_ABORT
    key, value = coordinator.log[-1]
    logged = decode_record(key, value)
    assert logged is not None
    assert logged.value is not None
    assert logged.value.producer_epoch == send.message.producer_epoch == 1
    assert not send.message.is_commit
    coordinator.write_markers()
    # The producer that took too long can only learn that: it cannot commit, nor go on with what it has.
    assert coordinator.end("t", producer).error_code == ErrorCode.invalid_txn_state
    assert coordinator.end("t", producer, version=4).error_code == ErrorCode.producer_fenced
    assert coordinator.end("t", producer, commit=False).error_code == ErrorCode.none
    assert coordinator.add("t", producer, P1) == ErrorCode.producer_fenced


def test_a_producer_that_took_too_long_may_begin_anew_if_nobody_took_its_place() -> None:
    """KIP-588."""
    coordinator, (producer_id, epoch) = opened()
    coordinator.advance(TIMEOUT_MS)
    coordinator.write_markers()
    assert coordinator.producer(producer_id=producer_id, producer_epoch=epoch) == (100, 1)
    assert coordinator.producer() == (100, 2)
    assert coordinator.init(producer_id=producer_id, producer_epoch=epoch).error_code == ErrorCode.producer_fenced


def test_a_timeout_counts_from_the_beginning_of_each_transaction() -> None:
    coordinator, producer = opened()
    for _ in range(5):
        coordinator.advance(TIMEOUT_MS - 1)
        answer = coordinator.end("t", producer)
        assert answer.error_code == ErrorCode.none
        coordinator.write_markers()
        producer = answer.producer_id, answer.producer_epoch
        coordinator.add("t", producer, P0)
        # More partitions do not put it off.
        coordinator.advance(TIMEOUT_MS // 2)
        coordinator.add("t", producer, P1)
        coordinator.advance(TIMEOUT_MS // 2 - 1)
        assert coordinator.state_of() is TransactionState.ONGOING
        answer = coordinator.end("t", producer)
        coordinator.write_markers()
        producer = answer.producer_id, answer.producer_epoch
        coordinator.add("t", producer, P0)
    coordinator.advance(TIMEOUT_MS)
    assert coordinator.state_of() is TransactionState.PREPARE_ABORT


def test_a_timeout_is_kept_by_whoever_coordinates_next() -> None:
    coordinator, _ = opened()
    coordinator.advance(TIMEOUT_MS // 2)
    coordinator.restart()
    coordinator.advance(TIMEOUT_MS // 2)
    assert coordinator.state_of() is TransactionState.PREPARE_ABORT


def test_a_shorter_timeout_of_the_next_producer_holds() -> None:
    coordinator, _ = opened()
    coordinator.send_init(transaction_timeout=1000)
    coordinator.write_markers()
    coordinator.add("t", (100, 2), P0)
    coordinator.advance(1000)
    assert coordinator.state_of() is TransactionState.PREPARE_ABORT


def test_a_fence_that_could_not_be_logged_does_not_bump_the_epoch_again_and_again() -> None:
    coordinator, _ = opened()
    coordinator.now_ms += TIMEOUT_MS
    epochs = set()
    for _ in range(3):
        # The append fails: nothing is replayed, and another shard is loaded from what is in the log.
        append, _send = coordinator.shard.tick(coordinator.now_ms)
        assert isinstance(append, Append)
        epochs.add(append.records[0].value.producer_epoch)  # type: ignore[union-attr]
        coordinator.restart()
    assert epochs == {1}


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_sends_the_markers_of_a_decided_end_again_under_its_own_epoch(commit: bool) -> None:
    coordinator, producer = opened()
    coordinator.add("t", producer, P1)
    coordinator.end("t", producer, commit=commit)
    (first,) = coordinator.sent
    coordinator.write_markers(P0)
    coordinator.restart()
    (second,) = coordinator.sent
    assert second == first._replace(coordinator_epoch=first.coordinator_epoch + 1)
    token = coordinator.send_end("t", producer, commit=not commit)
    coordinator.write_markers()
    assert coordinator.answers[token].error_code == ErrorCode.invalid_txn_state, "the decision never flips"
    done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    assert coordinator.state_of() is done


def test_an_end_that_is_decided_waits_for_its_markers_for_as_long_as_it_takes() -> None:
    coordinator, producer = opened()
    coordinator.end("t", producer)
    coordinator.advance(10 * 24 * 3_600_000)
    assert coordinator.state_of() is TransactionState.PREPARE_COMMIT
    coordinator.write_markers()
    assert coordinator.state_of() is TransactionState.COMPLETE_COMMIT


def test_a_late_confirmation_does_not_complete_another_end() -> None:
    coordinator, producer = opened()
    coordinator.end("t", producer)
    (first,) = coordinator.write_markers()
    coordinator.add("t", (100, 1), P0)
    coordinator.end("t", (100, 1), commit=False)
    (second,), coordinator.sent = coordinator.sent, [first]
    coordinator.write_markers()
    assert coordinator.state_of() is TransactionState.PREPARE_ABORT
    assert coordinator.shard.unmarked(first) == ()
    assert coordinator.shard.unmarked(second) == (P0,)
    unknown = coordinator.shard.markers_written("nobody", 1, 1, [P0], coordinator.now_ms)
    assert unknown == []


# Old clients are verified, new ones added (KIP-890)


def test_only_partitions_of_the_open_transaction_are_confirmed_to_a_verifying_partition() -> None:
    coordinator, producer = opened()
    coordinator.performed.clear()
    assert coordinator.add("t", producer, P0, P1, verify_only=True) == {
        P0: ErrorCode.none,
        P1: ErrorCode.transaction_abortable,
    }
    assert not any(isinstance(effect, Append) for effect in coordinator.performed)
    assert coordinator.add("t", (100, 7), P0, verify_only=True) == ErrorCode.producer_fenced
    assert coordinator.add("t", (101, 0), P0, verify_only=True) == ErrorCode.invalid_producer_id_mapping
    assert coordinator.add("u", producer, P0, verify_only=True) == ErrorCode.invalid_producer_id_mapping
    assert coordinator.add("", producer, P0, verify_only=True) == ErrorCode.invalid_request


def test_a_look_at_a_transaction_says_what_a_verification_would_answer_and_nothing_while_it_ends() -> None:
    coordinator, producer = opened()

    def looked(transactional_id: str, producer: tuple[int, int]) -> object:
        addition = Addition(transactional_id, *producer, frozenset({P0, P1}), True, 0)
        return coordinator.shard.verified(addition, coordinator.now_ms)

    assert looked("t", producer) == {P0: ErrorCode.none, P1: ErrorCode.transaction_abortable}
    assert looked("t", (100, 7)) == dict.fromkeys((P0, P1), ErrorCode.producer_fenced)
    assert looked("u", producer) == dict.fromkeys((P0, P1), ErrorCode.invalid_producer_id_mapping)
    assert looked("", producer) is None
    coordinator.end("t", producer, version=4)
    assert looked("t", producer) is None
    coordinator.write_markers()
    assert looked("t", producer) == dict.fromkeys((P0, P1), ErrorCode.transaction_abortable)


def test_a_verification_during_an_end_hears_of_the_state_after_it() -> None:
    coordinator, producer = opened()
    coordinator.end("t", producer, version=4)
    token = coordinator.send_add("t", producer, P0, verify_only=True, transaction_version=0)
    assert token not in coordinator.answers
    coordinator.write_markers()
    assert coordinator.answers[token].errors == {P0: ErrorCode.transaction_abortable}


def test_partitions_added_during_an_end_open_the_next_transaction_in_the_batch_that_completes_the_last() -> None:
    coordinator, producer = opened()
    coordinator.end("t", producer)
    token = coordinator.send_add("t", (100, 1), P1)
    late = coordinator.send_add("t", producer, P1)
    coordinator.performed.clear()
    coordinator.write_markers()
    append, *_ = coordinator.performed
    assert isinstance(append, Append)
    assert len(append.records) == 2
    assert coordinator.answers[token].errors == {P1: ErrorCode.none}
    assert coordinator.answers[late].errors == {P1: ErrorCode.producer_fenced}
    assert coordinator.states["t"].partitions == {P1}


def test_partitions_that_are_known_already_are_confirmed_without_a_record() -> None:
    coordinator, producer = opened()
    length = len(coordinator.log)
    assert coordinator.add("t", producer, P0) == ErrorCode.none
    assert len(coordinator.log) == length


# Expiration


def test_an_unused_id_expires_and_one_with_an_open_transaction_does_not() -> None:
    week_ms = 604_800_000
    coordinator = Coordinator(transaction_two_phase_commit_enable="true")
    prepared = coordinator.producer("prepared", enable2_pc=True)
    coordinator.add("prepared", prepared, P0)
    coordinator.producer("unused")
    coordinator.advance(week_ms - 1000)
    coordinator.producer("used")
    coordinator.advance(3_600_000)
    assert coordinator.listed() == [("prepared", "Ongoing"), ("used", "Empty")]
    coordinator.restart()
    assert coordinator.listed() == [("prepared", "Ongoing"), ("used", "Empty")]
    assert coordinator.producer("unused") == (103, 0)


def test_many_expired_ids_are_taken_away_a_few_at_a_time() -> None:
    coordinator = Coordinator(transactional_id_expiration_ms=1000)
    for number in range(4500):
        coordinator.producer(f"t-{number}")
    coordinator.performed.clear()
    coordinator.advance(3_600_000)
    sizes = [len(effect.records) for effect in coordinator.performed if isinstance(effect, Append)]
    assert sum(sizes) == 4500
    assert max(sizes) <= 2000
    assert coordinator.listed() == []
