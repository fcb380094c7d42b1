"""REST proxy v3: POST .../records, one JSON object for each record; several may follow each other in one body."""

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.bodies import Json, read_body
from penstock.http.errors import ApiError, bad_request, meaning_of, sentence_of
from penstock.http.formats import Format
from penstock.http.names import topic_of
from penstock.http.producing import Delivered, Outgoing
from penstock.http.proxy.v3_cluster import seen
from penstock.http.schema_values import SchemaChoice
from penstock.http.services import Services, services_of

_RECORDS_MAX = 10_000
_SCHEMA_TYPES = {"AVRO": Format.AVRO, "PROTOBUF": Format.PROTOBUF, "JSONSCHEMA": Format.JSONSCHEMA}


class _Data(msgspec.Struct):
    data: Any = None
    type: str | None = None
    schema_id: int | None = None
    schema: str | None = None


class _Header(msgspec.Struct):
    name: str
    value: str | None = None


class _Record(msgspec.Struct):
    partition_id: int | None = None
    headers: list[_Header] = []
    key: _Data | None = None
    value: _Data | None = None
    timestamp: str | int | None = None


async def produce(request: Request) -> Response:
    services = services_of(request)
    topic = topic_of(request)
    view, _ = await seen(request)
    body = await read_body(request, services.options.body_bytes_max)
    records = [await _outgoing(services, topic, one) for one in _records(body)]
    if not records:
        raise bad_request("there is no record in the body", 'Send {"value": {"type": "JSON", "data": ...}}.')
    results = (await services.producing.send(topic, records)).delivered()
    answers = [_answer(view.cluster_id, topic, record, result) for record, result in zip(records, results, strict=True)]
    if len(answers) == 1:
        return Json(answers[0], answers[0]["error_code"] if answers[0]["error_code"] < 600 else 400)
    return Response(b"".join(msgspec.json.encode(one) + b"\n" for one in answers), media_type="application/json")


def _records(body: bytes) -> Iterator[_Record]:
    try:
        text = body.decode()
        decoder = json.JSONDecoder()
        position = 0
        for _ in range(_RECORDS_MAX):
            while position < len(text) and text[position].isspace():
                position += 1
            if position == len(text):
                return
            found, position = decoder.raw_decode(text, position)
            yield msgspec.convert(found, _Record)
    except msgspec.ValidationError as problem:
        raise ApiError(422, f"a record has not the shape that this wants: {problem}", "See /openapi.") from problem
    except RecursionError as problem:
        raise bad_request("the JSON is nested too deeply", "Send flatter JSON.") from problem
    except ValueError as problem:
        raise bad_request(f"the body is not JSON: {problem}", "Send JSON in UTF-8.") from problem
    raise ApiError(413, f"a request has at most {_RECORDS_MAX} records", "Send fewer at once.")


async def _outgoing(services: Services, topic: str, record: _Record) -> Outgoing:
    if record.partition_id is not None and record.partition_id < 0:
        raise ApiError(422, f"{record.partition_id} is not a partition", "Take a number from 0 on, or leave it out.")
    headers = [(one.name, None if one.value is None else _base64(one.value)) for one in record.headers]
    return (
        await _bytes(services, topic, record.key, "key"),
        await _bytes(services, topic, record.value, "value"),
        headers or None,
        -1 if record.partition_id is None else record.partition_id,
        record.timestamp if isinstance(record.timestamp, int) else 0,
    )


async def _bytes(services: Services, topic: str, part: _Data | None, name: str) -> bytes | None:
    if part is None or part.data is None:
        return None
    kind = part.type or ("JSON" if part.schema_id is None and part.schema is None else "AVRO")
    if kind == "BINARY":
        return _base64(part.data)
    if kind == "STRING":
        return str(part.data).encode()
    if kind == "JSON":
        return msgspec.json.encode(part.data)
    if kind not in _SCHEMA_TYPES:
        raise ApiError(422, f"{kind[:40]!r} is no type", "Take BINARY, STRING, JSON, AVRO, PROTOBUF or JSONSCHEMA.")
    choice = SchemaChoice(part.schema_id, part.schema)
    encode, _ = await services.schema_values().encoder_and_id(_SCHEMA_TYPES[kind], topic, choice, name)
    return encode(msgspec.Raw(msgspec.json.encode(part.data)))


def _base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as problem:
        raise ApiError(422, "BINARY data and headers are base64", "Encode them, or take STRING or JSON.") from problem


def _answer(cluster_id: str, topic: str, record: Outgoing, result: Delivered) -> dict[str, Any]:
    if result.error is not None:
        return {"error_code": meaning_of(result.error).code, "message": sentence_of(result.error)}
    return {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": result.partition,
        "offset": result.offset,
        "timestamp": result.timestamp,
        "key": None if record[0] is None else {"size": len(record[0])},
        "value": None if record[1] is None else {"size": len(record[1])},
    }


ROUTES = [Route("/v3/clusters/{cluster}/topics/{topic}/records", produce, methods=["POST"])]
