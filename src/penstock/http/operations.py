"""Words about the operations, for the OpenAPI page: what they do, what they take, what they give.

An operation that is not here is listed by its route. One that is here and not served fails a test.
"""

from typing import Any, NamedTuple

Parameter = tuple[str, str, str, str]


class Operation(NamedTuple):
    """`parameters`: where, name, type, meaning. `body` and `answer` name schemas."""

    summary: str
    parameters: tuple[Parameter, ...] = ()
    body: str = ""
    answer: str = ""
    status: int = 200
    answer_type: str = "application/json"


# Name: what it is for, and the paths that belong to it. The first that fits counts.
TAGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "REST proxy v2: consumers": (
        "Consumers as Confluent's REST proxy has them.",
        ("/consumers/{group}/instances",),
    ),
    "Consumers": ("Members of a group, read by polling.", ("/consumers",)),
    "Messages": ("Records in, and live out.", ("/topics/{topic}/messages", "/topics/{topic}/tail")),
    "REST proxy v2: topics": ("Topics and records as the REST proxy has them.", ("/topics", "/brokers")),
    "REST v3": ("Administration as the REST proxy v3 has it.", ("/v3",)),
    "Console": ("What the console shows: one request for one view.", ("/api",)),
    "Schema registry": (
        "Compatible with Confluent's.",
        ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts", "/v1/metadata"),
    ),
    "server": ("This server.", ("/",)),
}

_INSTANCE: Parameter = (
    "header",
    "X-Consumer-Instance",
    "string",
    "Which consumer of the group; `new` at subscribe makes one. The cookie penstock-instance does the same.",
)
_FILTER: Parameter = ("query", "filter", "string", "A CEL expression over key, value, headers, partition, offset, ...")
_PARTITION: Parameter = ("query", "partition", "string", "Partitions with commas; all by default.")
_PLACE = "start, end, an offset, -N from the end, @milliseconds or an ISO time"

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/topics/{topic}/messages"): Operation(
        "Produce one message; text/plain and application/octet-stream bodies are the value itself",
        (("header", "Content-Type", "string", "application/json; value=base64|json|text|avro|protobuf|jsonschema"),),
        "NewMessage",
        "Produced",
    ),
    ("POST", "/topics/{topic}/messages/batch"): Operation(
        "Produce many messages; each is told its place or its error", (), "NewMessages", "Offsets"
    ),
    ("GET", "/topics/{topic}/tail"): Operation(
        "Follow a topic by server-sent events; nothing is skipped",
        (
            _PARTITION,
            ("query", "from", "string", _PLACE),
            ("query", "value", "string", "text, json, base64, avro, protobuf or jsonschema"),
            ("header", "Last-Event-ID", "string", "Goes on after this event."),
        ),
        answer="Message",
        answer_type="text/event-stream",
    ),
    ("POST", "/consumers/{group}/subscribe"): Operation(
        "Join a group and subscribe to topics", (_INSTANCE,), "Subscription", "Subscribed"
    ),
    ("GET", "/consumers/{group}/poll"): Operation(
        "Read what comes next; waits for the first message",
        (
            _INSTANCE,
            ("query", "max_records", "integer", "At most so many; 500."),
            ("query", "timeout_ms", "integer", "Waits so long for the first; 1000."),
            ("query", "max_bytes", "integer", "Stops at about so many bytes."),
            ("header", "Accept", "string", "application/json; value=base64|json|text|avro|protobuf|jsonschema"),
        ),
        answer="Messages",
    ),
    ("POST", "/consumers/{group}/offsets"): Operation(
        "Commit offsets: where the group continues. An empty body commits what was polled",
        (_INSTANCE,),
        "CommittedOffsets",
        "CommittedOffsets",
    ),
    ("POST", "/consumers/{group}/seek"): Operation("Read on from elsewhere", (_INSTANCE,), "Seek", "Seek"),
    ("DELETE", "/consumers/{group}"): Operation("Leave the group", (_INSTANCE,), status=204),
    ("GET", "/api/topics/{topic}/messages"): Operation(
        "Look at messages, decoded and filtered",
        (
            _PARTITION,
            _FILTER,
            ("query", "from", "string", f"newest (first), or {_PLACE}"),
            ("query", "limit", "integer", "How many; 50."),
            ("query", "cursor", "string", "Of an earlier answer, for the next page."),
            ("query", "scan_max", "integer", "Stops after looking at so many."),
            ("query", "timeout_ms", "integer", "Stops after so long."),
        ),
    ),
    ("GET", "/api/topics/{topic}/tail"): Operation(
        "Follow a topic by samples, four times a second, whatever its rate",
        (_PARTITION, _FILTER, ("query", "per_second", "integer", "How many messages a second; 40.")),
        answer_type="text/event-stream",
        answer="object",
    ),
    ("POST", "/api/groups/{group:path}/reset"): Operation("Move a group; without `apply` only the plan", body="Reset"),
    ("GET", "/metrics"): Operation("Offsets, lag and this process, for Prometheus", answer_type="text/plain"),
    ("GET", "/metrics/brokers/{broker}"): Operation("A broker's own metrics, passed on", answer_type="text/plain"),
    ("GET", "/health"): Operation("Whether this process serves"),
}


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_HEADERS = {"type": "object", "additionalProperties": {"type": ["string", "array", "null"]}}
_BY_PARTITION = {"type": "object", "additionalProperties": _INTEGER}

SCHEMAS: dict[str, dict[str, Any]] = {
    "Error": _object("error_code message", error_code=_INTEGER, message=_STRING, what_to_do=_STRING),
    "NewMessage": _object(
        "value",
        key={"type": ["string", "null"]},
        key_base64={"type": ["string", "null"]},
        value={"type": ["string", "null"], "description": "base64, unless the content type says otherwise"},
        headers=_HEADERS,
        partition=_INTEGER,
        timestamp=_INTEGER,
        value_schema_id={"type": "integer", "description": "with a schema format"},
        value_schema={"type": "string", "description": "with a schema format; registered if it is new"},
    ),
    "NewMessages": _object(
        "messages", messages={"type": "array", "items": {"$ref": "#/components/schemas/NewMessage"}}
    ),
    "Produced": _object(
        "topic partition offset timestamp", topic=_STRING, partition=_INTEGER, offset=_INTEGER, timestamp=_INTEGER
    ),
    "Offsets": _object(
        "offsets",
        offsets={
            "type": "array",
            "items": _object(
                "partition offset timestamp",
                partition=_INTEGER,
                offset={"type": ["integer", "null"]},
                timestamp={"type": ["integer", "null"]},
                error_code=_INTEGER,
                error=_STRING,
            ),
        },
    ),
    "Subscription": _object(
        "topics",
        topics={"type": "array", "items": _STRING},
        auto_offset_reset={"enum": ["earliest", "latest"]},
        isolation_level={"enum": ["read_committed", "read_uncommitted"]},
    ),
    "Subscribed": _object("", group=_STRING, instance=_STRING, topics={"type": "array", "items": _STRING}),
    "Message": _object(
        "topic partition offset key value timestamp headers",
        topic=_STRING,
        partition=_INTEGER,
        offset=_INTEGER,
        key={"type": ["string", "null"]},
        value={},
        timestamp=_INTEGER,
        headers=_HEADERS,
        key_base64=_STRING,
        value_base64=_STRING,
        headers_base64={"type": "object"},
        problem=_STRING,
    ),
    "Messages": _object("messages", messages={"type": "array", "items": {"$ref": "#/components/schemas/Message"}}),
    "CommittedOffsets": _object("", offsets={"type": "object", "additionalProperties": _BY_PARTITION}),
    "Seek": _object(
        "topic partition offset",
        topic=_STRING,
        partition=_INTEGER,
        offset={"oneOf": [_INTEGER, {"enum": ["start", "end"]}]},
    ),
    "Reset": _object(
        "",
        to={"type": "string", "description": "start, end, an offset, +N or -N from now, @milliseconds, an ISO time"},
        topics={"type": "array", "items": _STRING},
        offsets={"type": "object", "additionalProperties": _BY_PARTITION},
        apply={"type": "boolean"},
    ),
}
