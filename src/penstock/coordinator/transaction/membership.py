"""AddPartitionsToTxn and AddOffsetsToTxn: which partitions the transaction writes to.

The first of them opens the transaction. That is in the log before any partition takes a record of it, so there is no
record whose end nobody will decide. With `verify_only` nothing is added: a partition asks for a client that should have
told us itself (KIP-890).
"""

from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction.records import Transaction
from penstock.coordinator.transaction.requests import Addition
from penstock.coordinator.transaction.states import TransactionState
from penstock.coordinator.transaction.verdict import Decide, Verdict
from penstock.protocol.messages import Struct


def answered(addition: Addition, error: ErrorCode) -> Struct:
    """The same for every partition."""
    return Struct(errors=dict.fromkeys(addition.partitions, error))


def deciding(addition: Addition) -> Decide:
    def decide(current: Transaction | None, now_ms: int) -> Verdict:
        if error := _check(current, addition):
            return Verdict(answered(addition, error))
        assert current is not None
        if addition.verify_only:
            return Verdict(Struct(errors={one: _membership(current, one) for one in addition.partitions}))
        is_open = current.state is TransactionState.ONGOING
        if is_open and addition.partitions <= current.partitions:
            return Verdict(answered(addition, ErrorCode.none))
        opened = current._replace(
            state=TransactionState.ONGOING,
            partitions=current.partitions | addition.partitions,
            start_ms=current.start_ms if is_open else now_ms,
            update_ms=now_ms,
            previous_producer_id=current.producer_id,
            transaction_version=addition.transaction_version,
        )
        return Verdict(answered(addition, ErrorCode.none), opened)

    return decide


def _check(current: Transaction | None, addition: Addition) -> ErrorCode:
    if current is None or current.client_producer_id != addition.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if current.client_producer_epoch != addition.producer_epoch:
        return ErrorCode.producer_fenced
    # What was prepared is complete: whoever took it over may end it, not add to it.
    return ErrorCode.invalid_txn_state if current.is_kept else ErrorCode.none


def _membership(current: Transaction, partition: tuple[str, int]) -> ErrorCode:
    is_open = current.state is TransactionState.ONGOING
    return ErrorCode.none if is_open and partition in current.partitions else ErrorCode.transaction_abortable
