"""POST /topics/{topic}/messages and /messages/batch: records in, and where they are now."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.bodies import Json, decode_json, query_int, read_body
from penstock.http.errors import ApiError, meaning_of, sentence_of
from penstock.http.formats import Format, format_of_content
from penstock.http.names import topic_of
from penstock.http.producing import Delivered, Outgoing, failure_of
from penstock.http.records import HeaderTexts, headers_of
from penstock.http.schema_values import SchemaChoice
from penstock.http.services import Services, services_of

_PARTITIONS_MAX = 1_000_000
_PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=_PARTITIONS_MAX)]
_Milliseconds = Annotated[int, msgspec.Meta(gt=0, lt=1 << 62)]
_BATCH_RECORDS_MAX = 100_000


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """No cycles can be in it, so the garbage collector need not look at 100,000 of them a second."""

    key: str | None = None
    key_base64: bytes | None = None
    headers: HeaderTexts | None = None
    partition: _PartitionNumber | None = None
    timestamp: _Milliseconds | None = None


class _Base64Message(_Envelope, kw_only=True):
    value: bytes | None


class _TextMessage(_Envelope, kw_only=True):
    value: str | None


class _JsonMessage(_Envelope, kw_only=True):
    value: msgspec.Raw


class _SchemaMessage(_Envelope, kw_only=True):
    """Which schema: an id, or one to register, or the newest of the topic's subject."""

    value: msgspec.Raw
    value_schema_id: int | None = None
    value_schema: str | None = None


class _Base64Batch(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[_Base64Message]


class _TextBatch(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[_TextMessage]


class _JsonBatch(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[_JsonMessage]


class _SchemaBatch(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[_JsonMessage]
    value_schema_id: int | None = None
    value_schema: str | None = None


class Produced(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    timestamp: int


class Placed(msgspec.Struct, omit_defaults=True, gc=False):
    """One record of a batch; a failed one has an error instead of an offset."""

    partition: int
    offset: int | None
    timestamp: int | None
    error_code: int = 0
    error: str = ""


_ONE: dict[Format, Any] = {
    Format.BASE64: msgspec.json.Decoder(_Base64Message),
    Format.TEXT: msgspec.json.Decoder(_TextMessage),
    Format.JSON: msgspec.json.Decoder(_JsonMessage),
}
_MANY: dict[Format, Any] = {
    Format.BASE64: msgspec.json.Decoder(_Base64Batch),
    Format.TEXT: msgspec.json.Decoder(_TextBatch),
    Format.JSON: msgspec.json.Decoder(_JsonBatch),
}
_ONE_WITH_SCHEMA = msgspec.json.Decoder(_SchemaMessage)
_MANY_WITH_SCHEMA = msgspec.json.Decoder(_SchemaBatch)

Encode = Callable[[Any], bytes | None]


def _json_value(value: msgspec.Raw) -> bytes | None:
    """JSON's null is Kafka's null: a tombstone."""
    data = bytes(value)
    return None if data == b"null" else data


# None: the value is what it has to be already.
_ENCODE: dict[Format, Encode | None] = {
    Format.BASE64: None,
    Format.TEXT: lambda value: None if value is None else value.encode(),
    Format.JSON: _json_value,
}


async def produce(request: Request) -> Response:
    services = services_of(request)
    topic = topic_of(request)
    content_type = request.headers.get("content-type", "application/json")
    body = await read_body(request, services.options.body_bytes_max)
    if content_type.startswith(("text/plain", "application/octet-stream")):
        record = _whole_body(request, body)
    else:
        format = format_of_content(content_type)
        if format.needs_registry:
            one = decode_json(_ONE_WITH_SCHEMA, body)
            schema = SchemaChoice(one.value_schema_id, one.value_schema)
            encode: Encode | None = await services.schema_values().encoder_for(format, topic, schema)
        else:
            one = decode_json(_ONE[format], body)
            encode = _ENCODE[format]
        (record,) = _outgoing([one], encode)
    placed = await services.producing.send_one(topic, record)
    return Json(Produced(topic, placed.partition, placed.offset, placed.timestamp))


async def produce_batch(request: Request) -> Response:
    services = services_of(request)
    topic = topic_of(request)
    format = format_of_content(request.headers.get("content-type", "application/json"))
    body = await read_body(request, services.options.body_bytes_max)
    messages, encode = await _decoded_batch(services, topic, format, body)
    if len(messages) > _BATCH_RECORDS_MAX:
        raise ApiError(413, f"a batch has at most {_BATCH_RECORDS_MAX} messages", "Send smaller batches.")
    batch = await services.producing.send(topic, _outgoing(messages, encode))
    failure = failure_of(batch)
    if failure is not None:
        raise failure
    if batch.failures:
        places = [_placed(result) for result in batch.delivered()]
    else:
        places = [Placed(one.partition(), one.offset(), one.timestamp()[1]) for one in batch.reports]
    return Json({"offsets": places})


async def _decoded_batch(
    services: Services, topic: str, format: Format, body: bytes
) -> tuple[list[Any], Encode | None]:
    if format.needs_registry:
        batch = decode_json(_MANY_WITH_SCHEMA, body)
        schema = SchemaChoice(batch.value_schema_id, batch.value_schema)
        return batch.messages, await services.schema_values().encoder_for(format, topic, schema)
    decoded: Any = decode_json(_MANY[format], body)
    return decoded.messages, _ENCODE[format]


def _outgoing(messages: list[Any], encode: Encode | None) -> list[Outgoing]:
    """Hot: for batches this is most of what we do ourselves for a record."""
    return [
        (
            one.key_base64 if one.key is None else one.key,
            one.value if encode is None else encode(one.value),
            None if one.headers is None else headers_of(one.headers),
            -1 if one.partition is None else one.partition,
            one.timestamp or 0,
        )
        for one in messages
    ]


def _whole_body(request: Request, body: bytes) -> Outgoing:
    """Plain text or bytes: the body is the value, the rest is in the query."""
    key = request.query_params.get("key")
    partition = query_int(request, "partition", -1, 0, _PARTITIONS_MAX)
    return key, body, None, partition, 0


def _placed(result: Delivered) -> Placed:
    if result.error is None:
        return Placed(result.partition, result.offset, result.timestamp)
    return Placed(result.partition, None, None, meaning_of(result.error).code, sentence_of(result.error))


ROUTES = [
    Route("/topics/{topic}/messages", produce, methods=["POST"]),
    Route("/topics/{topic}/messages/batch", produce_batch, methods=["POST"]),
]
