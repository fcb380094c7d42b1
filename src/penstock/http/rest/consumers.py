"""/consumers/{group}/...: subscribe, poll, commit, seek, leave.

A consumer is known by its group and the instance that the request names: by the header `X-Consumer-Instance` or the
cookie `penstock-instance`. Who names none is `default`: one consumer, shared by all who do not care. To have one of
your own, subscribe with a name, or with `new`, which makes one up and tells it.
"""

import secrets
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.bodies import Json, decode_json, query_int, read_body
from penstock.http.consuming import END, START, Instance
from penstock.http.errors import ApiError
from penstock.http.formats import Format, format_of_accept
from penstock.http.names import checked_instance, checked_topic, group_of
from penstock.http.records import messages_as_json, plain_presenter
from penstock.http.services import services_of

INSTANCE_HEADER = "x-consumer-instance"
INSTANCE_COOKIE = "penstock-instance"
DEFAULT_INSTANCE = "default"
NEW_INSTANCE = "new"
RECORDS_MAX = 100_000
WAIT_MS_MAX = 60_000
POLL_BYTES = 32 * 1024 * 1024
_PARTITION_DIGITS_MAX = 9
_RESETS = {"earliest", "latest"}


class _Subscription(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str]
    auto_offset_reset: str = "earliest"
    isolation_level: str = "read_committed"


class _Offsets(msgspec.Struct, forbid_unknown_fields=True):
    offsets: dict[str, dict[str, int]] | None = None


class _Seek(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    offset: int | Literal["start", "end"]


_subscription = msgspec.json.Decoder(_Subscription)
_offsets = msgspec.json.Decoder(_Offsets)
_seek = msgspec.json.Decoder(_Seek)


def _instance_name(request: Request) -> str:
    name = request.headers.get(INSTANCE_HEADER) or request.cookies.get(INSTANCE_COOKIE) or DEFAULT_INSTANCE
    return checked_instance(name)


def _instance(request: Request) -> Instance:
    return services_of(request).consumers.get(group_of(request), _instance_name(request))


async def subscribe(request: Request) -> Response:
    services = services_of(request)
    group, name = group_of(request), _instance_name(request)
    wanted = decode_json(_subscription, await read_body(request, services.options.body_bytes_max))
    if not wanted.topics:
        raise ApiError(422, "a subscription names at least one topic", 'Send {"topics": ["..."]}.')
    topics = [checked_topic(topic) for topic in wanted.topics]
    if wanted.auto_offset_reset not in _RESETS:
        raise ApiError(422, "auto_offset_reset is earliest or latest", "It says where a group without offsets begins.")
    if wanted.isolation_level not in ("read_committed", "read_uncommitted"):
        raise ApiError(422, "isolation_level is read_committed or read_uncommitted", "Leave it out for the first.")
    if name == NEW_INSTANCE:
        name = secrets.token_urlsafe(12)
    instance = services.consumers.find(group, name)
    if instance is None:
        properties = {"auto.offset.reset": wanted.auto_offset_reset, "isolation.level": wanted.isolation_level}
        instance = services.consumers.make(group, name, Format.BASE64, properties)
    await instance.subscribe(topics)
    response = Json({"group": group, "instance": name, "topics": topics}, headers={INSTANCE_HEADER: name})
    if name != DEFAULT_INSTANCE:
        response.set_cookie(INSTANCE_COOKIE, name, path="/consumers/", httponly=True, samesite="strict")
    return response


async def poll(request: Request) -> Response:
    records_max = query_int(request, "max_records", 500, 1, RECORDS_MAX)
    wait_ms = query_int(request, "timeout_ms", 1000, 0, WAIT_MS_MAX)
    bytes_max = query_int(request, "max_bytes", POLL_BYTES, 1, POLL_BYTES)
    format = format_of_accept(request.headers.get("accept"))
    services = services_of(request)
    instance = _instance(request)
    found = await instance.poll(records_max, wait_ms / 1000, bytes_max)
    if format.needs_registry:
        present = await services.schema_values().presenter_for([one.value() for one in found])
    else:
        present = plain_presenter(format)
    return Json({"messages": messages_as_json(found, present)})


async def commit(request: Request) -> Response:
    services = services_of(request)
    group = group_of(request)
    body = await read_body(request, services.options.body_bytes_max)
    wanted = decode_json(_offsets, body or b"{}").offsets
    offsets = None if wanted is None else _by_partition(wanted)
    name = _instance_name(request)
    if offsets is None or services.consumers.find(group, name) is not None:
        committed = await services.consumers.get(group, name).commit(offsets)
    else:
        # Nobody reads for this group from here: its offsets can be set while it has no members.
        committed = await services.administration.set_group_offsets(group, offsets)
    answer: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in committed.items():
        answer.setdefault(topic, {})[str(partition)] = offset
    return Json({"offsets": answer})


def _by_partition(wanted: dict[str, dict[str, int]]) -> dict[tuple[str, int], int]:
    offsets = {}
    for topic, partitions in wanted.items():
        for text, offset in partitions.items():
            if not (text.isascii() and text.isdecimal() and len(text) <= _PARTITION_DIGITS_MAX):
                raise ApiError(422, f"{text[:40]!r} is not a partition of '{topic[:80]}'", "Take a number from 0 on.")
            if offset < 0:
                raise ApiError(422, f"{offset} is not an offset", "Commit the offset that the group continues from.")
            offsets[checked_topic(topic), int(text)] = offset
    if not offsets:
        raise ApiError(422, "there is no offset to commit", 'Send {"offsets": {"topic": {"0": 42}}}.')
    return offsets


async def seek(request: Request) -> Response:
    services = services_of(request)
    wanted = decode_json(_seek, await read_body(request, services.options.body_bytes_max))
    instance = _instance(request)
    topic = checked_topic(wanted.topic)
    offset: Any = {"start": START, "end": END}.get(wanted.offset, wanted.offset)  # type: ignore[arg-type]
    if wanted.partition < 0 or (isinstance(wanted.offset, int) and wanted.offset < 0):
        raise ApiError(422, "partitions and offsets are numbers from 0 on", 'Or take "start" or "end" as the offset.')
    await services.administration.check_partition(topic, wanted.partition)
    await instance.seek(topic, wanted.partition, offset)
    return Json({"topic": topic, "partition": wanted.partition, "offset": wanted.offset})


async def leave(request: Request) -> Response:
    """The named instance; without a name, all of the group's that are here."""
    services = services_of(request)
    group = group_of(request)
    is_named = INSTANCE_HEADER in request.headers or INSTANCE_COOKIE in request.cookies
    if is_named:
        await services.consumers.delete(group, _instance_name(request))
    elif not await services.consumers.delete_group(group):
        services.consumers.get(group, DEFAULT_INSTANCE)
    return Response(status_code=204)


ROUTES = [
    Route("/consumers/{group}/poll", poll, methods=["GET"]),
    Route("/consumers/{group}/subscribe", subscribe, methods=["POST"]),
    Route("/consumers/{group}/offsets", commit, methods=["POST"]),
    Route("/consumers/{group}/seek", seek, methods=["POST"]),
    Route("/consumers/{group}", leave, methods=["DELETE"]),
]
