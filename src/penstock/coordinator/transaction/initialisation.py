"""InitProducerId with a transactional id: who the producer is, and that everybody who was it before is not any more.

Each call gives the id a new epoch (KIP-98). A producer that names the id and epoch it has keeps its place only if
nobody came in between (KIP-360). A transaction that is still open is aborted first, or, if the producer asks for that,
kept: then the transaction stays what it was, and the new producer may end it and nothing else (KIP-939).
"""

from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.coordinator.requests import Settings, milliseconds
from penstock.coordinator.transaction.ending import ended
from penstock.coordinator.transaction.records import (
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    NO_TIMEOUT_MS,
    Transaction,
)
from penstock.coordinator.transaction.requests import ProducerIds
from penstock.coordinator.transaction.states import TransactionState
from penstock.coordinator.transaction.verdict import Decide, Verdict
from penstock.protocol.messages import Struct


class Expected(NamedTuple):
    """What the producer says it has."""

    producer_id: int
    producer_epoch: int


def refused(error: ErrorCode) -> Struct:
    return Struct(
        error_code=error,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        ongoing_txn_producer_id=NO_PRODUCER_ID,
        ongoing_txn_producer_epoch=NO_PRODUCER_EPOCH,
    )


def has_half_a_claim(request: Any) -> bool:
    """Whether it names a producer id without an epoch, or an epoch without an id."""
    producer_id, producer_epoch = _claimed(request)
    return (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH)


def check(request: Any, settings: Settings) -> ErrorCode:
    """What is wrong with the request, whatever the state."""
    if has_half_a_claim(request) or not request.transactional_id:
        return ErrorCode.invalid_request
    if getattr(request, "enable2_pc", False):
        is_allowed = settings["transaction.two.phase.commit.enable"]
        return ErrorCode.none if is_allowed else ErrorCode.transactional_id_authorization_failed
    if not 0 < milliseconds(request.transaction_timeout) <= settings["transaction.max.timeout.ms"]:
        return ErrorCode.invalid_transaction_timeout
    return ErrorCode.none


def deciding(request: Any, producer_ids: ProducerIds) -> Decide:
    producer_id, producer_epoch = _claimed(request)
    expected = None if producer_id == NO_PRODUCER_ID else Expected(producer_id, producer_epoch)
    is_two_phase = getattr(request, "enable2_pc", False)
    timeout_ms = NO_TIMEOUT_MS if is_two_phase else milliseconds(request.transaction_timeout)
    keeps_prepared = getattr(request, "keep_prepared_txn", False)

    def decide(current: Transaction | None, now_ms: int) -> Verdict:
        if current is None:
            return _first(producer_ids, timeout_ms, now_ms)
        if expected is not None and not _is_known(current, expected):
            return Verdict(refused(ErrorCode.producer_fenced))
        if current.state is not TransactionState.ONGOING:
            return _renewed(current, expected, producer_ids, timeout_ms, now_ms)
        if expected is not None and expected != (current.client_producer_id, current.client_producer_epoch):
            # Kafka would abort the transaction of whoever came later, and only then tell this one that it is too late.
            return Verdict(refused(ErrorCode.producer_fenced))
        if keeps_prepared:
            return _kept(current, producer_ids, timeout_ms, now_ms)
        aborted = fenced(current, producer_ids, now_ms)
        return Verdict(refused(ErrorCode.coordinator_load_in_progress) if aborted is None else None, aborted)

    return decide


def fenced(current: Transaction, producer_ids: ProducerIds, now_ms: int) -> Transaction | None:
    """The open transaction, aborted on our own account. It gets a new epoch whatever its producer speaks, which cannot
    go on with what it has. None while there is no producer id at hand for whoever comes next."""
    return ended(current, producer_ids, now_ms, is_commit=False, is_v2=True)


def _claimed(request: Any) -> tuple[int, int]:
    return getattr(request, "producer_id", NO_PRODUCER_ID), getattr(request, "producer_epoch", NO_PRODUCER_EPOCH)


def _is_known(current: Transaction, expected: Expected) -> bool:
    """Whether the id is ours; or was, before the epochs ran out, and the producer may not have heard of the new one."""
    if expected.producer_id == current.client_producer_id:
        return True
    return expected.producer_id == current.previous_producer_id and expected.producer_epoch >= EPOCH_MAX


def _first(producer_ids: ProducerIds, timeout_ms: int, now_ms: int) -> Verdict:
    producer_id = producer_ids.take()
    if producer_id is None:
        return Verdict(refused(ErrorCode.coordinator_load_in_progress))
    return _given(
        Transaction(
            state=TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
            update_ms=now_ms,
        )
    )


def _renewed(
    current: Transaction, expected: Expected | None, producer_ids: ProducerIds, timeout_ms: int, now_ms: int
) -> Verdict:
    """Between two transactions: the next epoch."""
    emptied = current._replace(
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        update_ms=now_ms,
        transaction_version=0,
    )
    if expected is not None and expected != (current.producer_id, current.producer_epoch):
        if expected.producer_epoch == current.last_producer_epoch:
            # It did not hear our last answer. Had another producer come in between, no last epoch would be known.
            return _given(emptied)
        return Verdict(refused(ErrorCode.producer_fenced))
    last_epoch = NO_PRODUCER_EPOCH if expected is None else current.producer_epoch
    if current.producer_epoch < EPOCH_MAX:
        return _given(
            emptied._replace(
                producer_epoch=current.producer_epoch + 1,
                previous_producer_id=current.producer_id,
                last_producer_epoch=last_epoch,
            )
        )
    producer_id = producer_ids.take()
    if producer_id is None:
        return Verdict(refused(ErrorCode.coordinator_load_in_progress))
    return _given(
        emptied._replace(
            producer_id=producer_id,
            producer_epoch=0,
            previous_producer_id=current.producer_id,
            last_producer_epoch=last_epoch,
        )
    )


def _kept(current: Transaction, producer_ids: ProducerIds, timeout_ms: int, now_ms: int) -> Verdict:
    """The transaction goes on under the id and epoch of its records; the new producer gets others, by which it will end
    it. They stop short of the last epoch, so that the end has one to move on to."""
    producer_id, producer_epoch = current.client_producer_id, current.client_producer_epoch + 1
    if producer_epoch >= EPOCH_MAX:
        taken = producer_ids.take()
        if taken is None:
            return Verdict(refused(ErrorCode.coordinator_load_in_progress))
        producer_id, producer_epoch = taken, 0
    kept = current._replace(
        next_producer_id=producer_id,
        next_producer_epoch=producer_epoch,
        # Whoever recovers a transaction does not shorten its time.
        timeout_ms=max(timeout_ms, current.timeout_ms),
        update_ms=now_ms,
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    return _given(kept, ongoing=kept)


def _given(entered: Transaction, *, ongoing: Transaction | None = None) -> Verdict:
    answer = Struct(
        error_code=ErrorCode.none,
        producer_id=entered.client_producer_id,
        producer_epoch=entered.client_producer_epoch,
        ongoing_txn_producer_id=NO_PRODUCER_ID if ongoing is None else ongoing.producer_id,
        ongoing_txn_producer_epoch=NO_PRODUCER_EPOCH if ongoing is None else ongoing.producer_epoch,
    )
    return Verdict(answer, entered)
