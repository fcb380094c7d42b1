"""What a client is told when something is wrong: a status, a code, what happened, and what to do about it.

Codes are those of the REST proxy where it has one: the HTTP status, two more digits for the case. Kafka's error codes
are mapped to them here, and nowhere else.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class ApiError(Exception):
    def __init__(self, error_code: int, message: str, what_to_do: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message
        self.what_to_do = what_to_do
        self.status = status or (error_code if error_code < 1000 else error_code // 100)

    def as_body(self) -> dict[str, Any]:
        return {"error_code": self.error_code, "message": self.message, "what_to_do": self.what_to_do}


TOPIC_NOT_FOUND = 40401
PARTITION_NOT_FOUND = 40402
CONSUMER_NOT_FOUND = 40403
GROUP_NOT_FOUND = 40404
BROKER_NOT_FOUND = 40405
CONFIG_NOT_FOUND = 40406
CONSUMER_EXISTS = 40902
WRONG_STATE = 40903
UNPROCESSABLE = 42200
INVALID_SCHEMA = 42205
CLUSTER_ERROR = 50002
CLUSTER_UNREACHABLE = 50301


def bad_request(message: str, what_to_do: str) -> ApiError:
    return ApiError(400, message, what_to_do)


def no_topic(topic: str) -> ApiError:
    return ApiError(TOPIC_NOT_FOUND, f"there is no topic '{topic}'", f"Make it: penstock topic create {topic}")


def no_partition(topic: str, partition: int, count: int) -> ApiError:
    return ApiError(
        PARTITION_NOT_FOUND,
        f"topic '{topic}' has no partition {partition}",
        f"Take 0 to {count - 1}, or leave it out to let the key decide.",
    )


class Meaning(NamedTuple):
    code: int
    what_to_do: str


_RETRY = "Try again; if it stays, look at the broker's log."
_UNREACHABLE = Meaning(CLUSTER_UNREACHABLE, "The cluster does not answer: is it running? Try again in a moment.")

# By the name of librdkafka's or Kafka's error.
_MEANINGS: dict[str, Meaning] = {
    "UNKNOWN_TOPIC_OR_PART": Meaning(TOPIC_NOT_FOUND, "Check the name, or make the topic first."),
    "_UNKNOWN_TOPIC": Meaning(TOPIC_NOT_FOUND, "Check the name, or make the topic first."),
    "_UNKNOWN_PARTITION": Meaning(PARTITION_NOT_FOUND, "Take a partition that the topic has."),
    "TOPIC_EXCEPTION": Meaning(UNPROCESSABLE, "Topic names have letters, digits, '.', '_' and '-', at most 249."),
    "TOPIC_ALREADY_EXISTS": Meaning(40902, "Take another name, or use the topic that is there."),
    "INVALID_PARTITIONS": Meaning(40002, "Partitions can only be added, and there must be at least one."),
    "INVALID_REPLICATION_FACTOR": Meaning(40002, "Ask for no more replicas than there are brokers."),
    "INVALID_CONFIG": Meaning(40002, "See the settings' documentation for the values that they take."),
    "INVALID_REQUEST": Meaning(400, "Check the values of the request."),
    "POLICY_VIOLATION": Meaning(40002, "Ask whoever runs the cluster what it allows."),
    "MSG_SIZE_TOO_LARGE": Meaning(413, "Send smaller records, or raise the topic's max.message.bytes."),
    "RECORD_LIST_TOO_LARGE": Meaning(413, "Send smaller batches."),
    "INVALID_RECORD": Meaning(UNPROCESSABLE, "A compacted topic wants a key with every record."),
    "INVALID_TIMESTAMP": Meaning(UNPROCESSABLE, "The topic does not take such old or such new records."),
    "TOPIC_AUTHORIZATION_FAILED": Meaning(40301, "The user of this server may not do that: ask for an ACL."),
    "GROUP_AUTHORIZATION_FAILED": Meaning(40301, "The user of this server may not do that: ask for an ACL."),
    "CLUSTER_AUTHORIZATION_FAILED": Meaning(40301, "The user of this server may not do that: ask for an ACL."),
    "SASL_AUTHENTICATION_FAILED": Meaning(40101, "Give this server a user that the cluster knows."),
    "_AUTHENTICATION": Meaning(40101, "Give this server a user that the cluster knows."),
    "NON_EMPTY_GROUP": Meaning(WRONG_STATE, "Stop the group's consumers first."),
    "GROUP_ID_NOT_FOUND": Meaning(GROUP_NOT_FOUND, "Check the name of the group."),
    "UNKNOWN_MEMBER_ID": Meaning(WRONG_STATE, "The group has moved on without this consumer: poll, then try again."),
    "ILLEGAL_GENERATION": Meaning(WRONG_STATE, "The group has rebalanced meanwhile: poll, then try again."),
    "STALE_MEMBER_EPOCH": Meaning(WRONG_STATE, "The group has rebalanced meanwhile: poll, then try again."),
    "FENCED_MEMBER_EPOCH": Meaning(WRONG_STATE, "The group has moved on without this consumer: subscribe anew."),
    "REBALANCE_IN_PROGRESS": Meaning(WRONG_STATE, "The group is rebalancing: poll, then try again."),
    "INCONSISTENT_GROUP_PROTOCOL": Meaning(
        WRONG_STATE, "The group's members speak another protocol: take another group."
    ),
    "INVALID_GROUP_ID": Meaning(400, "Take another name for the group."),
    "OFFSET_OUT_OF_RANGE": Meaning(UNPROCESSABLE, "Take an offset between the log's start and its end."),
    "_STATE": Meaning(WRONG_STATE, "The consumer has no such partition now: poll first, then try again."),
    "_NO_OFFSET": Meaning(WRONG_STATE, "There is nothing to commit: poll first."),
    "_INVALID_ARG": Meaning(400, "Check the values of the request."),
    "_UNSUPPORTED_FEATURE": Meaning(50101, "These brokers do not support that."),
    "UNSUPPORTED_VERSION": Meaning(50101, "These brokers do not support that."),
    "_TRANSPORT": _UNREACHABLE,
    "_ALL_BROKERS_DOWN": _UNREACHABLE,
    "_RESOLVE": _UNREACHABLE,
    "_TIMED_OUT": _UNREACHABLE,
    "_MSG_TIMED_OUT": _UNREACHABLE,
    "_TIMED_OUT_QUEUE": _UNREACHABLE,
    "REQUEST_TIMED_OUT": _UNREACHABLE,
    "NOT_ENOUGH_REPLICAS": Meaning(
        CLUSTER_UNREACHABLE, "Too few replicas are in sync: try again when brokers are back."
    ),
    "KAFKA_STORAGE_ERROR": Meaning(CLUSTER_UNREACHABLE, "The broker's disk fails or is full: look at its log."),
}


def meaning_of(error: "KafkaError") -> Meaning:
    return _MEANINGS.get(error.name(), Meaning(CLUSTER_ERROR, _RETRY))


def sentence_of(error: "KafkaError") -> str:
    """librdkafka's or the broker's words, without librdkafka's decorations."""
    text = error.str().removeprefix("Unable to produce message: ").removeprefix("Broker: ").removeprefix("Local: ")
    text = text.strip().rstrip(".") or error.name().lower().replace("_", " ")
    return text[0].lower() + text[1:] if text[1:2].islower() else text


def from_kafka(error: "KafkaError", about: str = "") -> ApiError:
    code, what_to_do = meaning_of(error)
    text = sentence_of(error)
    return ApiError(code, f"{about}: {text}" if about else text, what_to_do)
