"""InitProducerId with a transactional id."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction.states import TransactionState
from tests.unit.transaction.coordinator import P0, Coordinator


def test_the_first_call_gives_a_new_id_with_epoch_0() -> None:
    coordinator = Coordinator()
    assert coordinator.producer("a") == (100, 0)
    assert coordinator.producer("b") == (101, 0)


@pytest.mark.parametrize("version", range(7))
def test_every_further_call_keeps_the_id_and_fences_the_one_before(version: int) -> None:
    coordinator = Coordinator()
    old = coordinator.producer(version=version)
    assert coordinator.producer(version=version) == (100, 1)
    assert coordinator.add("t", old, P0) == ErrorCode.producer_fenced


def test_the_new_epoch_survives_a_restart() -> None:
    coordinator = Coordinator()
    coordinator.producer()
    coordinator.restart()
    assert coordinator.producer() == (100, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    coordinator = Coordinator()
    answer = coordinator.init(transaction_timeout=timeout_ms)
    assert answer.error_code == ErrorCode.invalid_transaction_timeout
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert coordinator.log == []


def test_an_empty_id_and_half_a_claim_are_invalid_requests() -> None:
    coordinator = Coordinator()
    assert coordinator.init("").error_code == ErrorCode.invalid_request
    assert coordinator.init(producer_id=5).error_code == ErrorCode.invalid_request
    assert coordinator.init(producer_epoch=5).error_code == ErrorCode.invalid_request


def test_while_there_is_no_producer_id_at_hand_clients_come_again() -> None:
    coordinator = Coordinator()
    coordinator.producer_ids.is_dry = True
    assert coordinator.init().error_code == ErrorCode.coordinator_load_in_progress
    coordinator.producer_ids.is_dry = False
    assert coordinator.producer() == (100, 0)


# KIP-360: a producer that goes on after an error


def test_a_producer_that_names_what_it_has_moves_on_by_one_epoch() -> None:
    coordinator = Coordinator()
    producer_id, epoch = coordinator.producer()
    assert coordinator.producer(producer_id=producer_id, producer_epoch=epoch) == (100, 1)


def test_a_repeated_call_that_names_the_same_epoch_is_answered_the_same() -> None:
    coordinator = Coordinator()
    coordinator.producer()
    assert coordinator.producer(producer_id=100, producer_epoch=0) == (100, 1)
    assert coordinator.producer(producer_id=100, producer_epoch=0) == (100, 1)


def test_a_producer_that_was_replaced_cannot_come_back() -> None:
    coordinator = Coordinator()
    coordinator.producer()
    coordinator.producer()
    answer = coordinator.init(producer_id=100, producer_epoch=0)
    assert answer.error_code == ErrorCode.producer_fenced
    assert coordinator.init(producer_id=999, producer_epoch=0).error_code == ErrorCode.producer_fenced
    assert coordinator.producer(producer_id=100, producer_epoch=1) == (100, 2)


def test_a_producer_that_was_replaced_cannot_abort_the_transaction_of_its_successor() -> None:
    coordinator = Coordinator()
    coordinator.producer()
    new = coordinator.producer()
    coordinator.add("t", new, P0)
    assert coordinator.init(producer_id=100, producer_epoch=0).error_code == ErrorCode.producer_fenced
    assert coordinator.state_of() is TransactionState.ONGOING


def test_an_id_that_expired_is_given_anew_to_a_producer_that_still_claims_it() -> None:
    coordinator = Coordinator()
    assert coordinator.producer(producer_id=7, producer_epoch=3) == (100, 0)


# An open transaction


def test_an_open_transaction_is_aborted_first_and_the_answer_waits_for_it() -> None:
    coordinator = Coordinator()
    old = coordinator.producer()
    coordinator.add("t", old, P0)
    token = coordinator.send_init()
    assert coordinator.state_of() is TransactionState.PREPARE_ABORT
    assert token not in coordinator.answers
    (markers,) = coordinator.write_markers()
    assert (markers.is_commit, markers.producer_epoch, markers.partitions) == (False, 1, (P0,))
    answer = coordinator.answers[token]
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.none, 100, 2)
    assert coordinator.end("t", old).error_code == ErrorCode.producer_fenced


def test_one_that_waits_for_too_long_is_told_to_come_again() -> None:
    coordinator = Coordinator()
    coordinator.add("t", coordinator.producer(), P0)
    token = coordinator.send_init()
    coordinator.advance(999)
    assert token not in coordinator.answers
    coordinator.advance(1)
    assert coordinator.answers[token].error_code == ErrorCode.concurrent_transactions
    coordinator.write_markers()
    assert coordinator.producer() == (100, 2)


def test_no_more_than_a_hundred_wait_for_the_same_transaction() -> None:
    coordinator = Coordinator()
    coordinator.add("t", coordinator.producer(), P0)
    tokens = [coordinator.send_init() for _ in range(102)]
    refused = [token for token in tokens if token in coordinator.answers]
    assert refused == tokens[-2:]
    assert {coordinator.answers[token].error_code for token in refused} == {ErrorCode.concurrent_transactions}
    coordinator.write_markers()
    # Each of the others got an epoch of its own; the last one is the producer.
    epochs = [coordinator.answers[token].producer_epoch for token in tokens[:100]]
    assert epochs == list(range(2, 102))


def test_a_transaction_without_partitions_needs_no_markers_to_be_aborted() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.send_add("t", producer)
    assert coordinator.state_of() is TransactionState.ONGOING
    assert (
        coordinator.ask(
            "init_producer_id", transactional_id="t", transaction_timeout=1, producer_id=-1, producer_epoch=-1
        ).producer_epoch
        == 2
    )
    assert coordinator.sent == []
