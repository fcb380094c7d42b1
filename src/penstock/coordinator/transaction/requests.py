"""What comes into a transaction coordinator besides kio's decoded requests, and the message that leaves it."""

from typing import NamedTuple, Protocol

TopicPartition = tuple[str, int]


class WriteMarkers(NamedTuple):
    """To whoever leads these partitions: the transaction is over, and how. It is sent again until every partition was
    confirmed by `markers_written`; partitions tell a second marker from a first by its epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    # The leader epoch of the coordinator's own partition: what an older coordinator still sends is refused.
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


class Addition(NamedTuple):
    """Partitions that a producer is about to write to, or, with `verify_only`, says it has told us of (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    verify_only: bool
    transaction_version: int


class ProducerIds(Protocol):
    def take(self) -> int | None:
        """An id that nobody was or will be given; None while there is none at hand."""
