"""EndTxn: commit or abort, decided once.

Since KIP-890 every end also gives the producer a new epoch, so that a request that was under way for too long cannot
end the transaction after the one it meant: its epoch is not the current one any more. The epoch before the current one
is a client that missed our answer. Older clients keep their epoch, and that defence is not theirs.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction.records import (
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONS_V2,
    Transaction,
)
from penstock.coordinator.transaction.requests import ProducerIds
from penstock.coordinator.transaction.states import TransactionState
from penstock.coordinator.transaction.verdict import Decide, Verdict
from penstock.protocol.messages import Struct

_V2_FROM_VERSION = 5


def refused(error: ErrorCode) -> Struct:
    return Struct(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def deciding(request: Any, version: int, producer_ids: ProducerIds) -> Decide:
    is_v2 = version >= _V2_FROM_VERSION

    def decide(current: Transaction | None, now_ms: int) -> Verdict:
        check = _check_v2 if is_v2 else _check_v1
        error, is_retry = (ErrorCode.invalid_producer_id_mapping, False) if current is None else check(current, request)
        if error:
            return Verdict(refused(error))
        assert current is not None
        if is_retry:
            return Verdict(_given(current))
        ending = ended(
            current,
            producer_ids,
            now_ms,
            is_commit=request.committed,
            is_v2=is_v2,
        )
        if ending is None:
            return Verdict(refused(ErrorCode.coordinator_load_in_progress))
        return Verdict(_given(ending), ending)

    return decide


def ended(
    current: Transaction,
    producer_ids: ProducerIds,
    now_ms: int,
    *,
    is_commit: bool,
    is_v2: bool,
) -> Transaction | None:
    """The decision: what its markers will say, and which epoch the client will have afterwards. A client that has used
    up its epochs gets a new producer id with it; None while there is none at hand."""
    epochs = 1 if is_v2 else 0
    client_epoch = current.client_producer_epoch + epochs
    next_producer_id, next_producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if client_epoch > EPOCH_MAX:
        taken = producer_ids.take()
        if taken is None:
            return None
        next_producer_id = taken
    elif current.client_producer_id != current.producer_id:
        next_producer_id, next_producer_epoch = current.client_producer_id, client_epoch
    if current.client_producer_id == current.producer_id:
        marker_epoch = client_epoch
    else:
        marker_epoch = current.producer_epoch + epochs
    is_open = current.state is TransactionState.ONGOING
    return current._replace(
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        producer_epoch=min(marker_epoch, EPOCH_MAX + 1),
        previous_producer_id=current.producer_id,
        next_producer_id=next_producer_id,
        next_producer_epoch=next_producer_epoch,
        # Where nothing was written, the transaction begins with its end.
        start_ms=current.start_ms if is_open else now_ms,
        update_ms=now_ms,
        transaction_version=TRANSACTIONS_V2 if is_v2 else 0,
        last_producer_epoch=current.client_producer_epoch if is_v2 else current.last_producer_epoch,
    )


def _check_v2(current: Transaction, request: Any) -> tuple[ErrorCode, bool]:
    """(What is wrong, whether it is a request that was answered before.)"""
    is_resting = current.state is not TransactionState.ONGOING
    is_retry_across_ids = (
        current.previous_producer_id == request.producer_id
        and request.producer_epoch == EPOCH_MAX
        and current.producer_epoch == 0
    )
    if current.client_producer_id != request.producer_id and not is_retry_across_ids:
        return ErrorCode.invalid_producer_id_mapping, False
    is_current = current.client_producer_epoch == request.producer_epoch and not is_retry_across_ids
    is_complete = is_resting and current.state is not TransactionState.EMPTY
    is_retry = is_complete and (is_retry_across_ids or current.producer_epoch == request.producer_epoch + 1)
    if is_retry:
        is_same = request.committed == (current.state is TransactionState.COMPLETE_COMMIT)
        return (ErrorCode.none, True) if is_same else (ErrorCode.invalid_txn_state, False)
    if not is_current:
        return ErrorCode.producer_fenced, False
    # To abort where nothing was written is allowed: the client need not know whether its records got through.
    return (ErrorCode.invalid_txn_state if is_resting and request.committed else ErrorCode.none), False


def _check_v1(current: Transaction, request: Any) -> tuple[ErrorCode, bool]:
    if current.client_producer_id != request.producer_id:
        return ErrorCode.invalid_producer_id_mapping, False
    if current.client_producer_epoch != request.producer_epoch:
        return ErrorCode.producer_fenced, False
    if current.state is TransactionState.ONGOING:
        return ErrorCode.none, False
    same = TransactionState.COMPLETE_COMMIT if request.committed else TransactionState.COMPLETE_ABORT
    return (ErrorCode.none, True) if current.state is same else (ErrorCode.invalid_txn_state, False)


def _given(transaction: Transaction) -> Struct:
    """What the client goes on with."""
    return Struct(
        error_code=ErrorCode.none,
        producer_id=transaction.client_producer_id,
        producer_epoch=transaction.client_producer_epoch,
    )
