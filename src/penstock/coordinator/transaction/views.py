"""DescribeTransactions and ListTransactions: what people and tools are shown."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.name_pattern import NamePattern
from penstock.coordinator.transaction.records import Transaction
from penstock.coordinator.transaction.requests import TopicPartition
from penstock.coordinator.transaction.states import NAMES
from penstock.protocol.messages import Struct

_STATES_BY_NAME = {name: state for state, name in NAMES.items()}


def not_described(transactional_id: str, error: ErrorCode) -> Struct:
    return Struct(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=0,
        transaction_start_time=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )


def described(transactional_id: str, transaction: Transaction, partitions: Iterable[TopicPartition]) -> Struct:
    """`partitions`: those of the open transaction; once its end is decided, those that still wait for their marker."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        topics[topic].append(index)
    return Struct(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=NAMES[transaction.state],
        transaction_timeout=transaction.timeout_ms,
        transaction_start_time=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[Struct(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


class TransactionFilter:
    """Which transactions a ListTransactions request asks for. The pattern is matched in time linear in the ids; an id
    with characters that no topic's name can have matches none."""

    def __init__(self, request: Any) -> None:
        """Raises PatternError."""
        names = request.state_filters
        self.unknown_states = [name for name in names if name not in _STATES_BY_NAME]
        self._states = frozenset(_STATES_BY_NAME[name] for name in names if name in _STATES_BY_NAME) if names else None
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms: int = getattr(request, "duration_filter", -1)
        expression = getattr(request, "transactional_id_pattern", None)
        self._pattern = NamePattern(expression) if expression else None

    def listed(self, transactions: Iterable[tuple[str, Transaction]], now_ms: int) -> list[Struct]:
        return [
            Struct(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=NAMES[transaction.state],
            )
            for transactional_id, transaction in transactions
            if self._lets_through(transactional_id, transaction, now_ms)
        ]

    def _lets_through(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        if self._states is not None and transaction.state not in self._states:
            return False
        if self._producer_ids and transaction.producer_id not in self._producer_ids:
            return False
        if self._duration_ms >= 0 and now_ms - transaction.start_ms <= self._duration_ms:
            return False
        return self._pattern is None or self._pattern.matches(transactional_id)
