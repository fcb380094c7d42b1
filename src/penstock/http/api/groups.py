"""/api/groups: every group with its lag, one in detail, and moving it, with a preview first."""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.administration import Administration
from penstock.http.bodies import Json, decode_json, read_body
from penstock.http.errors import ApiError
from penstock.http.group_lag import group_lags
from penstock.http.names import checked_topic, group_of
from penstock.http.reading import places
from penstock.http.services import services_of

_SHIFT = re.compile(r"[+-]\d{1,18}")


class _Reset(msgspec.Struct, forbid_unknown_fields=True):
    """`to` is a place for all, `offsets` are for single partitions and win. Nothing is changed unless `apply`."""

    to: str | None = None
    topics: list[str] | None = None
    offsets: dict[str, dict[str, int]] | None = None
    apply: bool = False


_reset = msgspec.json.Decoder(_Reset)


async def groups(request: Request) -> Response:
    administration = services_of(request).administration
    return Json({"groups": await administration.in_thread(lambda: _all_groups(administration))})


def _all_groups(administration: Administration) -> list[dict[str, Any]]:
    """Blocks: three kinds of questions, for all groups together where Kafka allows it."""
    listed = administration.groups_now()
    described = administration.describe_groups_now([one.group_id for one in listed]) if listed else {}
    committed = administration.offsets_of_groups_now(one.group_id for one in listed)
    partitions = {key for offsets in committed.values() for key in offsets}
    ends = administration.offsets_now(partitions, -1) if partitions else {}
    answer = []
    for one in listed:
        offsets = committed.get(one.group_id, {})
        detail = described.get(one.group_id)
        answer.append(
            {
                "group": one.group_id,
                "state": one.state.name,
                "type": one.type.name,
                "members": len(detail.members) if detail else 0,
                "topics": sorted({topic for topic, _ in offsets}),
                "lag": sum(max(0, ends[key] - offset) for key, offset in offsets.items() if key in ends),
                "coordinator": detail.coordinator.id if detail and detail.coordinator else None,
            }
        )
    return answer


async def group(request: Request) -> Response:
    services = services_of(request)
    described = await services.administration.describe_group(group_of(request))
    lags = await group_lags(services.administration, described)
    answer = {
        "group": described.group_id,
        "state": described.state.name,
        "type": described.type.name,
        "assignor": described.partition_assignor or "",
        "coordinator": described.coordinator.id if described.coordinator else None,
        "lag": sum(one.lag or 0 for one in lags),
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [
                    [one.topic, one.partition]
                    for one in (member.assignment.topic_partitions if member.assignment else ())
                ],
            }
            for member in described.members
        ],
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "end": one.log_end,
                "lag": one.lag,
                "member": one.member.member_id if one.member else None,
            }
            for one in lags
        ],
    }
    return Json(answer)


async def reset(request: Request) -> Response:
    """The plan; with `apply`, after it was done."""
    services = services_of(request)
    name = group_of(request)
    wanted = decode_json(_reset, await read_body(request, services.options.body_bytes_max))
    committed = await services.administration.group_offsets(name)
    targets = await _targets(services.administration, wanted, committed)
    plan = [
        {"topic": topic, "partition": partition, "committed": committed.get((topic, partition)), "target": target}
        for (topic, partition), target in sorted(targets.items())
    ]
    listed = {one.group_id: one for one in await services.administration.groups()}
    state = listed[name].state.name if name in listed else "NONE"
    if wanted.apply:
        if state not in ("EMPTY", "NONE", "DEAD"):
            raise ApiError(40903, f"the group is {state.lower()}: it has members", "Stop its consumers first.")
        await services.administration.set_group_offsets(name, targets)
    return Json({"group": name, "state": state, "applied": wanted.apply, "plan": plan})


async def _targets(
    administration: Administration, wanted: _Reset, committed: dict[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    view = await administration.cluster()
    topics = [checked_topic(one) for one in wanted.topics or sorted({topic for topic, _ in committed})]
    targets: dict[tuple[str, int], int] = {}
    for topic in topics if wanted.to is not None else ():
        assert wanted.to is not None
        partitions = [one.partition for one in view.partitions_of(topic)]
        if wanted.topics is None:
            partitions = [number for number in partitions if (topic, number) in committed]
        if _SHIFT.fullmatch(wanted.to):
            found = await _shifted(administration, topic, partitions, committed, int(wanted.to))
        else:
            found = await places(administration, topic, partitions, wanted.to)
        targets |= {(topic, number): offset for number, offset in found.items()}
    for topic, offsets in (wanted.offsets or {}).items():
        count = len(view.partitions_of(checked_topic(topic)))
        for text, offset in offsets.items():
            if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < count) or offset < 0:
                raise ApiError(422, f"{topic[:80]} {text[:20]}: {offset} cannot be", "Take what the topic has.")
            targets[topic, int(text)] = offset
    if not targets:
        raise ApiError(
            422, "there is nothing to move", 'Send {"to": "start"} with topics, or offsets of single partitions.'
        )
    return targets


async def _shifted(
    administration: Administration,
    topic: str,
    partitions: list[int],
    committed: dict[tuple[str, int], int],
    by: int,
) -> dict[int, int]:
    """From where the group is now, within what the log has."""
    starts = await places(administration, topic, partitions, "start")
    ends = await places(administration, topic, partitions, "end")
    return {
        number: min(max(committed[topic, number] + by, starts.get(number, 0)), ends[number])
        for number in partitions
        if (topic, number) in committed and number in ends
    }


async def delete_group(request: Request) -> Response:
    await services_of(request).administration.delete_group(group_of(request))
    return Response(status_code=204)


# Names of groups may have slashes in them: the longer path comes first.
ROUTES = [
    Route("/api/groups", groups, methods=["GET"]),
    Route("/api/groups/{group:path}/reset", reset, methods=["POST"]),
    Route("/api/groups/{group:path}", group, methods=["GET"]),
    Route("/api/groups/{group:path}", delete_group, methods=["DELETE"]),
]
