"""What the clients of a run have done and seen, for the checkers."""

from dataclasses import dataclass, field
from typing import NamedTuple

TopicPartition = tuple[str, int]

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


class Violation(Exception):
    """An invariant does not hold; the message begins with its number and name."""

    def __init__(self, invariant: int, name: str, what: str) -> None:
        super().__init__(f"invariant {invariant} ({name}): {what}")
        self.invariant = invariant


@dataclass(slots=True)
class Write:
    """One record, known by its value, which no other record has."""

    value: bytes
    key: bytes | None
    partition: TopicPartition
    acks: int
    producer: str
    # Its number among the producer's records in this partition.
    number: int
    transaction: "Transaction | None" = None
    offset: int | None = None
    # Certain not to be there: refused with an error that says so.
    is_refused: bool = False


@dataclass(slots=True)
class Transaction:
    producer: str
    number: int
    outcome: str = UNKNOWN
    is_ended: bool = False
    writes: list[Write] = field(default_factory=list)
    # Offsets of the group that it consumed for, as they would be if it were committed.
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class GroupCommits:
    """Of one partition by one group: what was tried, in order, and up to which of these it was acknowledged."""

    attempts: list[int] = field(default_factory=list)
    acknowledged: int = -1


class Trim(NamedTuple):
    """The beginning of a partition was deleted, as its leader confirmed."""

    offset: int
    leader: int
    # Those in sync all the while, as the leader saw it. As in Kafka, it waits for nobody who is fenced, and who is may
    # be elected all the same, having been in sync when too few were left (KIP-966).
    in_sync: frozenset[int]
    # How many processes of nodes had ended by then.
    ends: int


class History:
    def __init__(self) -> None:
        self.writes: dict[bytes, Write] = {}
        self.transactions: list[Transaction] = []
        # What stands where, as anybody has ever seen or been told.
        self.placed: dict[tuple[TopicPartition, int], bytes] = {}
        # In which leader's epoch it was written, as readers were told.
        self.epochs: dict[tuple[TopicPartition, int], int] = {}
        self.read_committed: dict[bytes, str] = {}
        # The ends of transactions that a coordinator has told partitions: id, producer, epoch, whether it is a commit.
        self.decisions: set[tuple[str, int, int, bool]] = set()
        self.group_commits: dict[tuple[str, TopicPartition], GroupCommits] = {}
        # Topics that are trimmed or compacted, or that were deleted in between: less can be said of them.
        self.compacted_topics: set[str] = set()
        self.trimmed_topics: set[str] = set()
        # Up to where their beginnings were asked to be deleted, and what was confirmed of that.
        self.trimmed_to: dict[TopicPartition, int] = {}
        self.trims: dict[TopicPartition, list[Trim]] = {}
        self.acknowledged = 0
        self.reads = 0

    def sent(self, write: Write) -> None:
        self.writes[write.value] = write

    def acked(self, write: Write, offset: int) -> None:
        self.acknowledged += 1
        if write.offset is not None and write.offset != offset:
            raise Violation(2, "one record per offset", f"{write.value!r} acknowledged at {write.offset} and {offset}")
        write.offset = offset
        if write.acks == -1:
            # With acks=1 the record may be lost, and its offset be used again: that is what acks=1 means.
            self.place(write.partition, offset, write.value, "acknowledged")

    def place(self, partition: TopicPartition, offset: int, value: bytes, how: str) -> None:
        known = self.placed.setdefault((partition, offset), value)
        if known != value:
            raise Violation(2, "one record per offset", f"{partition} {offset}: {known!r}, then {how} {value!r}")

    def seen(self, reader: str, partition: TopicPartition, offset: int, value: bytes, epoch: int) -> None:
        self.reads += 1
        known = self.epochs.setdefault((partition, offset), epoch)
        if known != epoch:
            raise Violation(2, "one record per offset", f"{partition} {offset}: of epochs {known} and {epoch}")
        if value not in self.writes:
            raise Violation(2, "one record per offset", f"{partition} {offset}: {value!r}, which nobody has written")
        write = self.writes[value]
        if write.partition != partition:
            raise Violation(2, "one record per offset", f"{value!r} of {write.partition} read from {partition}")
        self.place(partition, offset, value, f"read by {reader}")

    def seen_committed(self, reader: str, value: bytes) -> None:
        write = self.writes[value]
        if write.transaction is None:
            return
        if write.transaction.outcome == ABORTED:
            raise Violation(18, "all or nothing", f"{reader} read {value!r} of an aborted transaction")
        self.read_committed[value] = reader
