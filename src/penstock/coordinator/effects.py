"""What a coordinator wants done, in order.

The shell's duties: perform effects in the order given; append the records of one `Append` as one batch to the
coordinator's partition and replay them into the coordinator at once, before anything else is handled; hold each
`Answer` and each `Send` back until the log it was computed from is committed, also where it appended nothing itself.
On losing the partition the coordinator is thrown away, so nothing is ever rolled back; on gaining it the log is
replayed before the first request.
"""

from typing import Any, NamedTuple

from penstock.protocol.messages import Struct

NO_PRODUCER_ID = -1


class CoordinatorRecord(NamedTuple):
    """A key and a value in one of Kafka's coordinator schemas; a value of None takes the key's state away."""

    key: Any
    value: Any | None


class Append(NamedTuple):
    """With a producer id: as a part of that producer's transaction."""

    records: list[CoordinatorRecord]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1


class Answer(NamedTuple):
    """The answer to the request that came with this token."""

    token: int
    body: Struct


class Send(NamedTuple):
    """A message to another part of the system, of a kind that the coordinator defines."""

    message: Any


Effect = Append | Answer | Send
