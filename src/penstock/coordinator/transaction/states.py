"""The states of a transaction: numbers and names are Kafka's, the first in the log, the second in DescribeTransactions.

Dead and PrepareEpochFence never come up here. Kafka has them for the time between a decision and its record; our
decisions are records at once, and an id that expires is a tombstone. They can be asked for in ListTransactions.
"""

import enum


class TransactionState(enum.IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_S = TransactionState

NAMES = {
    _S.EMPTY: "Empty",
    _S.ONGOING: "Ongoing",
    _S.PREPARE_COMMIT: "PrepareCommit",
    _S.PREPARE_ABORT: "PrepareAbort",
    _S.COMPLETE_COMMIT: "CompleteCommit",
    _S.COMPLETE_ABORT: "CompleteAbort",
    _S.DEAD: "Dead",
    _S.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

# Between two transactions. Ids that stay here long enough expire.
RESTING = frozenset((_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT))
# The end is decided, and on its way to the partitions. Everything else waits.
PREPARING = frozenset((_S.PREPARE_COMMIT, _S.PREPARE_ABORT))

# Where each state may be entered from; None is an id that the log does not know.
ENTERED_FROM: dict[TransactionState, frozenset[TransactionState | None]] = {
    # InitProducerId.
    _S.EMPTY: RESTING | {None},
    # AddPartitionsToTxn, AddOffsetsToTxn; InitProducerId that keeps a prepared transaction (KIP-939).
    _S.ONGOING: RESTING | {_S.ONGOING},
    # EndTxn.
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # EndTxn, InitProducerId, the timeout; since KIP-890 also where nothing was written.
    _S.PREPARE_ABORT: RESTING | {_S.ONGOING},
    # All markers are written.
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}
