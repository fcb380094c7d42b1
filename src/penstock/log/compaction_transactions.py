"""Transactions as compaction passes over them: which batches were aborted, and which markers have nothing left to mark.

A marker outlives the records of its transaction: it may go only in a pass that has met none of them.
"""

from collections.abc import Iterable

from penstock.base.ports import Bytes
from penstock.log.end_marker import read_end_marker
from penstock.log.transaction_index import AbortedTransaction
from penstock.protocol.batch import TRANSACTIONAL, BatchHeader


class PassedTransactions:
    """To be told of every batch with a producer id, in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # The next one to begin is the last.
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        # Of the producers whose transaction is under way here, and will be aborted: it, and whether a batch was met.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers of which a batch was met that is, or will be, committed.
        self._committed: set[int] = set()
        # Entries that the transaction index of what is written must have.
        self.still_aborted: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        self._begin(header)
        if not header.attributes & TRANSACTIONAL:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = aborted[0], True
        return True

    def is_spent(self, header: BatchHeader, batch: Bytes) -> bool:
        """Whether a control batch marks the end of nothing any more."""
        self._begin(header)
        if header.record_count == 0:
            return True
        marker = read_end_marker(batch, header)
        if marker is None:
            return False
        if not marker.is_abort:
            was_met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_met
        transaction, was_met = self._aborted.pop(header.producer_id, (None, False))
        if transaction is not None and was_met:
            self.still_aborted.append(transaction)
        return not was_met

    def _begin(self, header: BatchHeader) -> None:
        """Those that began before the batch, unless their end is before it as well: a pass may start after them."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            transaction = self._coming.pop()
            if transaction.last_offset >= header.base_offset:
                self._aborted.setdefault(transaction.producer_id, (transaction, False))
