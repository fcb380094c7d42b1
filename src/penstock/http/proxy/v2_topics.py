"""REST proxy v2: topics, partitions, brokers, and POST to produce."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.administration import PartitionView
from penstock.http.bodies import Json, decode_json, read_body
from penstock.http.errors import ApiError, meaning_of, no_partition, sentence_of
from penstock.http.formats import Format, format_of_content
from penstock.http.names import partition_of, topic_of
from penstock.http.producing import Outgoing
from penstock.http.rest.messages import Encode
from penstock.http.schema_values import SchemaChoice
from penstock.http.services import Services, services_of

V2 = "application/vnd.kafka.v2+json"


class _Base64Record(msgspec.Struct):
    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None


class _JsonRecord(msgspec.Struct):
    key: msgspec.Raw = msgspec.Raw(b"null")
    value: msgspec.Raw = msgspec.Raw(b"null")
    partition: int | None = None
    timestamp: int | None = None


class _Base64Records(msgspec.Struct):
    records: list[_Base64Record]


class _JsonRecords(msgspec.Struct):
    records: list[_JsonRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


_base64_records = msgspec.json.Decoder(_Base64Records)
_json_records = msgspec.json.Decoder(_JsonRecords)


async def topics(request: Request) -> Response:
    return Json(list((await services_of(request).administration.cluster()).topics), media_type=V2)


async def topic(request: Request) -> Response:
    administration = services_of(request).administration
    name = topic_of(request)
    partitions = (await administration.cluster()).partitions_of(name)
    configs = (await administration.configs("topic", [name]))[name]
    answer = {
        "name": name,
        "configs": {entry.name: entry.value for entry in configs},
        "partitions": [_partition(one) for one in partitions],
    }
    return Json(answer, media_type=V2)


async def partitions(request: Request) -> Response:
    found = (await services_of(request).administration.cluster()).partitions_of(topic_of(request))
    return Json([_partition(one) for one in found], media_type=V2)


async def partition(request: Request) -> Response:
    return Json(_partition(await _the_partition(request)), media_type=V2)


async def offsets(request: Request) -> Response:
    await _the_partition(request)
    key = (topic_of(request), partition_of(request))
    administration = services_of(request).administration
    first = await administration.offsets([key], -2)
    end = await administration.offsets([key], -1)
    if key not in first or key not in end:
        raise ApiError(50301, "the partition has no leader now", "Try again in a moment.")
    return Json({"beginning_offset": first[key], "end_offset": end[key]}, media_type=V2)


async def brokers(request: Request) -> Response:
    return Json({"brokers": sorted((await services_of(request).administration.cluster()).brokers)}, media_type=V2)


async def produce(request: Request) -> Response:
    services = services_of(request)
    name = topic_of(request)
    format = format_of_content(request.headers.get("content-type", "application/vnd.kafka.json.v2+json"))
    into = partition_of(request) if "partition" in request.path_params else None
    body = await read_body(request, services.options.body_bytes_max)
    records, key_schema_id, value_schema_id = await _decoded(services, name, format, body, into)
    results = (await services.producing.send(name, records)).delivered()
    answer: dict[str, Any] = {
        "offsets": [
            {"partition": one.partition, "offset": one.offset, "error_code": None, "error": None}
            if one.error is None
            else {
                "partition": None,
                "offset": None,
                "error_code": meaning_of(one.error).code,
                "error": sentence_of(one.error),
            }
            for one in results
        ],
        "key_schema_id": key_schema_id,
        "value_schema_id": value_schema_id,
    }
    return Json(answer, media_type=V2)


async def _decoded(
    services: Services, topic: str, format: Format, body: bytes, into: int | None
) -> tuple[list[Outgoing], int | None, int | None]:
    """The records, and the ids of the schemas of their keys and values."""
    if format is Format.BASE64:
        plain = decode_json(_base64_records, body).records
        return [(one.key, one.value, None, _into(one, into), one.timestamp or 0) for one in plain], None, None
    batch = decode_json(_json_records, body)
    encode_key: Encode = _json_bytes
    encode_value: Encode = _json_bytes
    key_schema_id = value_schema_id = None
    if format.needs_registry:
        values = services.schema_values()
        if any(bytes(one.key) != b"null" for one in batch.records):
            encode_key, key_schema_id = await values.encoder_and_id(
                format, topic, SchemaChoice(batch.key_schema_id, batch.key_schema), "key"
            )
        encode_value, value_schema_id = await values.encoder_and_id(
            format, topic, SchemaChoice(batch.value_schema_id, batch.value_schema)
        )
    return _outgoing(batch, encode_key, encode_value, into), key_schema_id, value_schema_id


def _outgoing(batch: _JsonRecords, encode_key: Encode, encode_value: Encode, into: int | None) -> list[Outgoing]:
    return [
        (encode_key(one.key), encode_value(one.value), None, _into(one, into), one.timestamp or 0)
        for one in batch.records
    ]


def _json_bytes(value: msgspec.Raw) -> bytes | None:
    data = bytes(value)
    return None if data == b"null" else data


def _into(record: _Base64Record | _JsonRecord, into: int | None) -> int:
    partition = record.partition if into is None else into
    if partition is None:
        return -1
    if partition < 0:
        raise ApiError(422, f"{partition} is not a partition", "Take a number from 0 on, or leave it out.")
    return partition


async def _the_partition(request: Request) -> PartitionView:
    found = (await services_of(request).administration.cluster()).partitions_of(topic_of(request))
    number = partition_of(request)
    if number >= len(found):
        raise no_partition(topic_of(request), number, len(found))
    return found[number]


def _partition(one: PartitionView) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "leader": one.leader,
        "replicas": [
            {"broker": broker, "leader": broker == one.leader, "in_sync": broker in one.isr} for broker in one.replicas
        ],
    }


ROUTES = [
    Route("/topics", topics, methods=["GET"]),
    Route("/topics/{topic}", topic, methods=["GET"]),
    Route("/topics/{topic}", produce, methods=["POST"]),
    Route("/topics/{topic}/partitions", partitions, methods=["GET"]),
    Route("/topics/{topic}/partitions/{partition}", partition, methods=["GET"]),
    Route("/topics/{topic}/partitions/{partition}", produce, methods=["POST"]),
    Route("/topics/{topic}/partitions/{partition}/offsets", offsets, methods=["GET"]),
    Route("/brokers", brokers, methods=["GET"]),
]
