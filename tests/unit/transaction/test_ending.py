"""EndTxn, whatever came before it."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Answer, Append, Send
from penstock.coordinator.transaction.records import EPOCH_MAX, Transaction
from penstock.coordinator.transaction.states import TransactionState
from tests.unit.transaction.coordinator import OFFSETS, P0, P1, START_MS, Coordinator

OLD = {"version": 4}


def with_epoch(epoch: int, *, state: TransactionState = TransactionState.EMPTY) -> Coordinator:
    """A coordinator whose id `t` is at this epoch."""
    coordinator = Coordinator()
    coordinator.producer()
    (transaction,) = coordinator.states.values()
    reached: Transaction = transaction._replace(producer_epoch=epoch, state=state)
    coordinator.shard.replay(type(coordinator.performed[0].records[0])("t", reached))  # type: ignore[union-attr]
    coordinator.states["t"] = reached
    return coordinator


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_logged_before_it_is_answered_and_before_markers_leave(commit: bool) -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add("t", producer, P0, OFFSETS)
    coordinator.performed.clear()
    coordinator.end("t", producer, commit=commit)
    append, *others = coordinator.performed
    assert isinstance(append, Append)
    assert {type(one) for one in others} == {Answer, Send}
    prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    assert [coordinator.state_of(record.key) for record in append.records] == [prepared]
    (markers,) = coordinator.write_markers()
    assert (markers.is_commit, markers.partitions, markers.transaction_version) == (commit, (OFFSETS, P0), 2)
    complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    assert coordinator.state_of() is complete


def test_the_end_is_complete_when_the_last_partition_has_its_marker() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add("t", producer, P0, P1)
    coordinator.end("t", producer)
    sent = list(coordinator.sent)
    coordinator.write_markers(P0)
    assert coordinator.state_of() is TransactionState.PREPARE_COMMIT
    assert [(one.topic, one.partitions) for one in coordinator.describe().topics] == [("orders", (1,))]
    assert coordinator.shard.unmarked(sent[0]) == (P1,)
    coordinator.sent = sent
    coordinator.write_markers(P1)
    assert coordinator.state_of() is TransactionState.COMPLETE_COMMIT
    assert coordinator.shard.unmarked(sent[0]) == ()


# Transactions with an epoch each (KIP-890)


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_gives_the_next_epoch_and_says_so(commit: bool) -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    for epoch in range(1, 5):
        coordinator.add("t", producer, P0)
        answer = coordinator.end("t", producer, commit=commit)
        producer = answer.producer_id, answer.producer_epoch
        assert producer == (100, epoch)
        (markers,) = coordinator.write_markers()
        assert markers.producer_epoch == epoch, "a marker fences the epoch that it ends"


def test_an_end_that_comes_late_does_not_close_the_next_transaction() -> None:
    coordinator = Coordinator()
    first = coordinator.producer()
    coordinator.add("t", first, P0)
    coordinator.end("t", first)
    coordinator.write_markers()
    second = (100, 1)
    coordinator.add("t", second, P0)
    for commit in (True, False):
        assert coordinator.end("t", first, commit=commit).error_code == ErrorCode.producer_fenced
    assert coordinator.state_of() is TransactionState.ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_answered_like_the_first_and_the_other_outcome_is_refused(commit: bool) -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add("t", producer, P0)
    coordinator.end("t", producer, commit=commit)
    same, other = (coordinator.send_end("t", producer, commit=one) for one in (commit, not commit))
    assert same not in coordinator.answers
    coordinator.write_markers()
    assert (coordinator.answers[same].error_code, coordinator.answers[same].producer_epoch) == (ErrorCode.none, 1)
    assert coordinator.answers[other].error_code == ErrorCode.invalid_txn_state
    again = coordinator.end("t", producer, commit=commit)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (ErrorCode.none, 100, 1)
    assert coordinator.end("t", producer, commit=not commit).error_code == ErrorCode.invalid_txn_state


@pytest.mark.parametrize("before", ["empty", "committed", "aborted"])
def test_to_abort_where_nothing_was_written_is_allowed_and_takes_an_epoch(before: str) -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    if before != "empty":
        coordinator.add("t", producer, P0)
        answer = coordinator.end("t", producer, commit=before == "committed")
        coordinator.write_markers()
        producer = answer.producer_id, answer.producer_epoch
    coordinator.advance(5)
    answer = coordinator.end("t", producer, commit=False)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, producer[1] + 1)
    assert coordinator.sent == []
    assert coordinator.state_of() is TransactionState.COMPLETE_ABORT
    assert coordinator.states["t"].start_ms == START_MS + 5


@pytest.mark.parametrize("before", ["empty", "committed", "aborted"])
def test_to_commit_where_nothing_was_written_is_an_invalid_state(before: str) -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    if before != "empty":
        coordinator.add("t", producer, P0)
        answer = coordinator.end("t", producer, commit=before == "committed")
        coordinator.write_markers()
        producer = answer.producer_id, answer.producer_epoch
    assert coordinator.end("t", producer).error_code == ErrorCode.invalid_txn_state


def test_what_does_not_belong_to_the_producer_is_refused() -> None:
    coordinator = Coordinator()
    producer_id, epoch = coordinator.producer()
    coordinator.add("t", (producer_id, epoch), P0)
    for version in range(6):
        for producer, error in (
            ((producer_id + 1, epoch), ErrorCode.invalid_producer_id_mapping),
            ((producer_id, epoch + 1), ErrorCode.producer_fenced),
            ((producer_id, epoch - 1), ErrorCode.producer_fenced),
        ):
            answer = coordinator.end("t", producer, version=version)
            assert answer.error_code == error
        assert coordinator.end("u", (producer_id, epoch)).error_code == ErrorCode.invalid_producer_id_mapping
        assert coordinator.end("", (producer_id, epoch)).error_code == ErrorCode.invalid_request


# Older clients


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
def test_older_clients_keep_their_epoch(version: int, commit: bool) -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    for _ in range(3):
        coordinator.add("t", producer, P0, transaction_version=0)
        assert coordinator.end("t", producer, commit=commit, version=version).error_code == ErrorCode.none
        (markers,) = coordinator.write_markers()
        assert (markers.producer_epoch, markers.transaction_version) == (0, 0)
        assert coordinator.end("t", producer, commit=commit, version=version).error_code == ErrorCode.none
        other = coordinator.end("t", producer, commit=not commit, version=version)
        assert other.error_code == ErrorCode.invalid_txn_state


@pytest.mark.parametrize("commit", [True, False])
def test_older_clients_cannot_end_what_was_not_begun(commit: bool) -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    assert coordinator.end("t", producer, commit=commit, version=4).error_code == ErrorCode.invalid_txn_state


# The last epochs


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    coordinator = with_epoch(EPOCH_MAX - 1)
    coordinator.add("t", (100, EPOCH_MAX - 1), P0)
    answer = coordinator.end("t", (100, EPOCH_MAX - 1))
    assert (answer.producer_id, answer.producer_epoch) == (100, EPOCH_MAX)
    coordinator.write_markers()
    last = (100, EPOCH_MAX)
    coordinator.add("t", last, P0)
    answer = coordinator.end("t", last)
    assert (answer.producer_id, answer.producer_epoch) == (101, 0)
    # The client goes on with its new id at once; the transaction before is still under way.
    token = coordinator.send_add("t", (101, 0), P1)
    assert token not in coordinator.answers
    (markers,) = coordinator.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (100, EPOCH_MAX + 1)
    assert coordinator.answers[token].errors == {P1: ErrorCode.none}
    assert coordinator.add("t", last, P0) == ErrorCode.invalid_producer_id_mapping


def test_a_repeated_end_is_known_across_the_change_of_the_id_also_after_a_restart() -> None:
    coordinator = with_epoch(EPOCH_MAX)
    last = (100, EPOCH_MAX)
    coordinator.add("t", last, P0)
    coordinator.end("t", last)
    coordinator.write_markers()
    for _ in range(2):
        answer = coordinator.end("t", last)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.none, 101, 0)
        assert coordinator.end("t", last, commit=False).error_code == ErrorCode.invalid_txn_state
        coordinator.restart()


def test_the_new_id_of_an_end_that_is_under_way_survives_a_restart() -> None:
    coordinator = with_epoch(EPOCH_MAX)
    coordinator.add("t", (100, EPOCH_MAX), P0)
    coordinator.end("t", (100, EPOCH_MAX), commit=False)
    coordinator.restart()
    (markers,) = coordinator.write_markers()
    assert (markers.producer_id, markers.producer_epoch, markers.is_commit) == (100, EPOCH_MAX + 1, False)
    assert coordinator.add("t", (101, 0), P0) == ErrorCode.none


def test_an_init_after_the_last_epoch_gives_a_new_id_and_knows_its_own_repetition() -> None:
    coordinator = with_epoch(EPOCH_MAX)
    assert coordinator.producer(producer_id=100, producer_epoch=EPOCH_MAX) == (101, 0)
    assert coordinator.producer(producer_id=100, producer_epoch=EPOCH_MAX) == (101, 0)
    assert coordinator.producer() == (101, 1)
    answer = coordinator.init(producer_id=100, producer_epoch=EPOCH_MAX)
    assert answer.error_code == ErrorCode.producer_fenced


def test_a_stale_claim_at_the_last_epoch_is_fenced() -> None:
    coordinator = with_epoch(EPOCH_MAX)
    assert coordinator.init(producer_id=100, producer_epoch=3).error_code == ErrorCode.producer_fenced


@pytest.mark.parametrize("epoch", [EPOCH_MAX - 1, EPOCH_MAX])
def test_an_abort_by_timeout_changes_the_id_before_the_epochs_run_out(epoch: int) -> None:
    coordinator = with_epoch(epoch)
    coordinator.add("t", (100, epoch), P0)
    coordinator.advance(60_000)
    (markers,) = coordinator.write_markers()
    assert epoch < markers.producer_epoch <= EPOCH_MAX + 1
    assert coordinator.producer() == (101, 0 if epoch == EPOCH_MAX - 1 else 1)


def test_an_end_waits_for_a_producer_id_rather_than_going_on_without() -> None:
    coordinator = with_epoch(EPOCH_MAX)
    last = (100, EPOCH_MAX)
    coordinator.add("t", last, P0)
    coordinator.producer_ids.is_dry = True
    assert coordinator.end("t", last).error_code == ErrorCode.coordinator_load_in_progress
    assert coordinator.state_of() is TransactionState.ONGOING
    coordinator.advance(60_000)
    assert coordinator.state_of() is TransactionState.ONGOING
    coordinator.producer_ids.is_dry = False
    coordinator.advance(1000)
    assert coordinator.state_of() is TransactionState.PREPARE_ABORT
