"""What can go wrong between a client and its cluster, in words, and whether trying again makes sense."""

from penstock.base.errors import ErrorCode

# The leader moved, is being elected, or knows less than we do for a moment: ask for metadata anew and try again.
STALE_LEADER_CODES = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.listener_not_found,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
RETRIABLE_CODES = STALE_LEADER_CODES | {
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.offset_not_available,
    ErrorCode.corrupt_message,
    ErrorCode.concurrent_transactions,
    ErrorCode.throttling_quota_exceeded,
}


class ClientError(Exception):
    """The cluster cannot be reached or does not do what was asked; the message is for people."""


class Unreachable(ClientError):
    """Nobody answered, or the connection broke: another broker or another moment may help."""


class Refusal(ClientError):
    """A broker answered with an error code."""

    def __init__(self, code: ErrorCode, what: str, message: str | None = None) -> None:
        reason = message or code.name.replace("_", " ")
        super().__init__(f"{what}: {reason}")
        self.code = code


class OffsetOutOfRange(ClientError):
    """The offset is not, or no longer, in the partition."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(f"offset {offset} of {topic}-{partition} is out of range: the records may have been deleted")
        self.topic = topic
        self.partition = partition
        self.offset = offset


class TimedOut(ClientError):
    """It was tried for as long as was allowed."""


def is_worth_retrying(error: ClientError) -> bool:
    if isinstance(error, Refusal):
        return error.code in RETRIABLE_CODES
    return isinstance(error, Unreachable)
