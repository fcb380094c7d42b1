"""REST proxy v2: consumers that are made, subscribe or are assigned partitions, and are read by GET .../records.

They live beside the REST API's own consumers, under the same idle timeout. Offsets that are committed here name the
last record that was dealt with, as the proxy has it, not the next one.
"""

import secrets
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.bodies import Json, decode_json, query_int, read_body
from penstock.http.consuming import END, START, Instance
from penstock.http.errors import ApiError
from penstock.http.formats import Format, format_of_accept
from penstock.http.names import checked_instance, checked_topic, group_of
from penstock.http.records import Present, plain_presenter
from penstock.http.rest.consumers import POLL_BYTES, RECORDS_MAX, WAIT_MS_MAX
from penstock.http.services import Services, services_of

V2 = "application/vnd.kafka.v2+json"
_FORMATS = {
    "binary": Format.BASE64,
    "json": Format.JSON,
    "avro": Format.AVRO,
    "protobuf": Format.PROTOBUF,
    "jsonschema": Format.JSONSCHEMA,
}


class _NewConsumer(msgspec.Struct):
    """Other properties of the proxy are taken and have no effect here."""

    name: str | None = None
    format: str = "binary"
    auto_offset_reset: str = msgspec.field(name="auto.offset.reset", default="latest")
    auto_commit_enable: str | bool = msgspec.field(name="auto.commit.enable", default="true")


class _Subscription(msgspec.Struct):
    topics: list[str] | None = None
    topic_pattern: str | None = None


class _Partition(msgspec.Struct):
    topic: str
    partition: int


class _Partitions(msgspec.Struct):
    partitions: list[_Partition]


class _Offset(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class _Offsets(msgspec.Struct):
    offsets: list[_Offset] | None = None


_new_consumer = msgspec.json.Decoder(_NewConsumer)
_subscription = msgspec.json.Decoder(_Subscription)
_partitions = msgspec.json.Decoder(_Partitions)
_offsets = msgspec.json.Decoder(_Offsets)


async def _body(request: Request) -> bytes:
    return await read_body(request, services_of(request).options.body_bytes_max)


def _instance(request: Request) -> Instance:
    name = checked_instance(request.path_params["instance"])
    return services_of(request).consumers.get(group_of(request), name)


async def create(request: Request) -> Response:
    services = services_of(request)
    group = group_of(request)
    wanted = decode_json(_new_consumer, await _body(request) or b"{}")
    name = checked_instance(wanted.name or f"rest-consumer-{secrets.token_hex(8)}")
    format = _FORMATS.get(wanted.format)
    if format is None:
        raise ApiError(42204, f"{wanted.format[:40]!r} is not a format", f"Take one of {', '.join(_FORMATS)}.")
    if wanted.auto_offset_reset not in ("earliest", "latest", "none"):
        raise ApiError(42204, "auto.offset.reset is earliest or latest", "Leave it out for latest.")
    properties = {
        "auto.offset.reset": {"none": "error"}.get(wanted.auto_offset_reset, wanted.auto_offset_reset),
        "enable.auto.commit": str(wanted.auto_commit_enable).lower() == "true",
    }
    services.consumers.make(group, name, format, properties)
    base_uri = f"{str(request.base_url).rstrip('/')}/consumers/{request.path_params['group']}/instances/{name}"
    return Json({"instance_id": name, "base_uri": base_uri}, media_type=V2)


async def delete(request: Request) -> Response:
    name = checked_instance(request.path_params["instance"])
    await services_of(request).consumers.delete(group_of(request), name)
    return Response(status_code=204)


async def subscribe(request: Request) -> Response:
    instance = _instance(request)
    wanted = decode_json(_subscription, await _body(request))
    if (wanted.topics is None) == (wanted.topic_pattern is None):
        raise ApiError(422, "a subscription has topics or a topic_pattern", 'Send {"topics": ["..."]}.')
    if instance.is_assigned_by_hand:
        raise ApiError(40903, "partitions were assigned by hand", "Delete the subscription first.")
    if wanted.topics is not None:
        await instance.subscribe([checked_topic(topic) for topic in wanted.topics])
    else:
        assert wanted.topic_pattern is not None
        if len(wanted.topic_pattern) > 256 or not wanted.topic_pattern.isprintable():
            raise ApiError(422, "the pattern is too long or cannot be printed", "Take a shorter one.")
        await instance.subscribe(["^" + wanted.topic_pattern.removeprefix("^")])
    return Response(status_code=204)


async def subscription(request: Request) -> Response:
    return Json({"topics": _instance(request).topics}, media_type=V2)


async def unsubscribe(request: Request) -> Response:
    await _instance(request).unsubscribe()
    return Response(status_code=204)


async def records(request: Request) -> Response:
    services = services_of(request)
    instance = _instance(request)
    format = format_of_accept(request.headers.get("accept"), instance.format)
    if format is not instance.format:
        raise ApiError(
            40601,
            f"the consumer was made for {instance.format.value}, not {format.value}",
            "Accept what it was made for, or make another one.",
        )
    wait_ms = query_int(request, "timeout", 1000, 0, WAIT_MS_MAX)
    bytes_max = query_int(request, "max_bytes", POLL_BYTES, -1, 1 << 31)
    found = await instance.poll(RECORDS_MAX, wait_ms / 1000, min(max(bytes_max, 1), POLL_BYTES))
    present = await _presenter(services, format, found)
    answer = [
        {
            "topic": one.topic(),
            "key": _presented(one.key(), present),
            "value": _presented(one.value(), present),
            "partition": one.partition(),
            "offset": one.offset(),
        }
        for one in found
    ]
    name = "binary" if format is Format.BASE64 else format.value
    return Json(answer, media_type=f"application/vnd.kafka.{name}.v2+json")


async def _presenter(services: Services, format: Format, found: list[Any]) -> Present:
    if not format.needs_registry:
        return plain_presenter(format)
    values = [one.value() for one in found] + [one.key() for one in found]
    return await services.schema_values().presenter_for(values)


def _presented(data: bytes | None, present: Present) -> Any:
    if data is None:
        return None
    try:
        return present(data)
    except ValueError as problem:
        raise ApiError(
            50002, f"a record is {problem}", "Read it with a consumer made for binary, or seek past it."
        ) from problem


async def commit(request: Request) -> Response:
    instance = _instance(request)
    wanted = decode_json(_offsets, await _body(request) or b"{}").offsets
    if wanted is None:
        await instance.commit(None)
    else:
        await instance.commit({(checked_topic(one.topic), one.partition): one.offset + 1 for one in wanted})
    return Response(status_code=200, media_type=V2)


async def committed(request: Request) -> Response:
    instance = _instance(request)
    wanted = decode_json(_partitions, await _body(request)).partitions
    found = await instance.committed([(checked_topic(one.topic), one.partition) for one in wanted])
    answer = [
        {"topic": topic, "partition": partition, "offset": offset, "metadata": metadata}
        for (topic, partition), (offset, metadata) in found.items()
        if offset >= 0
    ]
    return Json({"offsets": answer}, media_type=V2)


async def assign(request: Request) -> Response:
    instance = _instance(request)
    wanted = decode_json(_partitions, await _body(request)).partitions
    for one in wanted:
        await services_of(request).administration.check_partition(checked_topic(one.topic), one.partition)
    await instance.assign([(one.topic, one.partition) for one in wanted])
    return Response(status_code=204)


async def assignments(request: Request) -> Response:
    found = await _instance(request).assignment()
    return Json({"partitions": [{"topic": topic, "partition": number} for topic, number in found]}, media_type=V2)


async def seek(request: Request) -> Response:
    instance = _instance(request)
    for one in decode_json(_offsets, await _body(request)).offsets or []:
        if one.offset < 0:
            raise ApiError(422, f"{one.offset} is not an offset", "Take a number from 0 on.")
        await instance.seek(checked_topic(one.topic), one.partition, one.offset)
    return Response(status_code=204)


async def seek_to_edge(request: Request) -> Response:
    instance = _instance(request)
    offset = START if request.url.path.endswith("/beginning") else END
    for one in decode_json(_partitions, await _body(request)).partitions:
        await instance.seek(checked_topic(one.topic), one.partition, offset)
    return Response(status_code=204)


_BASE = "/consumers/{group}/instances/{instance}"
ROUTES = [
    Route(_BASE + "/records", records, methods=["GET"]),
    Route(_BASE + "/offsets", commit, methods=["POST"]),
    Route(_BASE + "/offsets", committed, methods=["GET"]),
    Route(_BASE + "/subscription", subscribe, methods=["POST"]),
    Route(_BASE + "/subscription", subscription, methods=["GET"]),
    Route(_BASE + "/subscription", unsubscribe, methods=["DELETE"]),
    Route(_BASE + "/assignments", assign, methods=["POST"]),
    Route(_BASE + "/assignments", assignments, methods=["GET"]),
    Route(_BASE + "/positions", seek, methods=["POST"]),
    Route(_BASE + "/positions/beginning", seek_to_edge, methods=["POST"]),
    Route(_BASE + "/positions/end", seek_to_edge, methods=["POST"]),
    Route(_BASE, delete, methods=["DELETE"]),
    Route("/consumers/{group}", create, methods=["POST"]),
]
