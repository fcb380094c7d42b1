"""Which producers have asked the transaction coordinator whether they may write here (KIP-890).

Before the first batch of a transaction the partition makes sure that the coordinator knows of it: otherwise nobody
would ever end that transaction, and the last stable offset would stay where it is. A verification is the permission to
write that batch. It is given back with the batch, and void as soon as a marker was written: a batch that comes late,
after the abort of its transaction, must not open one that nobody knows of.
"""

from penstock.base.errors import ErrorCode
from penstock.log.producer_state import ProducerState
from penstock.protocol.batch import BatchHeader

_NO_EPOCH = -1


class Verification:
    """One producer's, until its transaction has data here. While it is there, sequences above the lowest one that was
    asked for must wait: else that one, sent again after an error, could never be written."""

    __slots__ = ("epoch", "epoch_bumps", "lowest_sequence", "started_ms")

    def __init__(self, epoch: int, sequence: int, epoch_bumps: bool, now_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        # Whether every transaction has an epoch of its own, and so begins with sequence 0 (transaction version 2).
        self.epoch_bumps = epoch_bumps
        self.started_ms = now_ms

    def note(self, epoch: int, sequence: int) -> None:
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


# For a batch of a transaction that has data here already, and for one that need not be verified (an old client, where
# `transaction.partition.verification.enable` is off).
NOTHING_TO_VERIFY = Verification(_NO_EPOCH, 0, False, 0)
TRUSTED = Verification(_NO_EPOCH, 0, False, 0)


class Verifications:
    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def start(
        self, producers: ProducerState, producer_id: int, epoch: int, sequence: int, epoch_bumps: bool, now_ms: int
    ) -> Verification:
        """What must come back with the batch; NOTHING_TO_VERIFY if it is of an open transaction."""
        if producers.has_open_transaction(producer_id, epoch):
            return NOTHING_TO_VERIFY
        verification = self._by_producer.get(producer_id)
        if verification is None:
            verification = self._by_producer[producer_id] = Verification(epoch, sequence, epoch_bumps, now_ms)
        else:
            verification.note(epoch, sequence)
        return verification

    def check(self, producers: ProducerState, producer_id: int, epoch: int, verification: Verification) -> ErrorCode:
        """Whether a batch may be written in its producer's transaction. The epoch comes first: who was fenced must hear
        that, and not that its transaction is in a wrong state, which ends the producer."""
        if error := producers.check_epoch(producer_id, epoch):
            return error
        if verification is TRUSTED or producers.has_open_transaction(producer_id, epoch):
            return ErrorCode.none
        if self._by_producer.get(producer_id) is not verification:
            return ErrorCode.invalid_txn_state
        return ErrorCode.none

    def check_sequence(self, producers: ProducerState, header: BatchHeader) -> ErrorCode:
        """What verification adds to the rules of sequence numbers, for a client's batch."""
        verification = self._by_producer.get(header.producer_id)
        if verification is None:
            return ErrorCode.none
        known = producers.producers.get(header.producer_id)
        is_unknown = known is None or not known.batches
        if verification.epoch_bumps and header.base_sequence != 0 and is_unknown:
            return ErrorCode.out_of_order_sequence_number
        if header.base_sequence > verification.lowest_sequence:
            return ErrorCode.out_of_order_sequence_number
        return ErrorCode.none

    def end(self, producer_id: int) -> None:
        """Data or a marker was written."""
        self._by_producer.pop(producer_id, None)

    def expire(self, started_before_ms: int) -> None:
        """Forgets those that nothing came of."""
        self._by_producer = {
            producer_id: verification
            for producer_id, verification in self._by_producer.items()
            if verification.started_ms > started_before_ms
        }
