"""REST proxy v3: consumer groups, their members, assignments and lag."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.bodies import Json
from penstock.http.errors import CONSUMER_NOT_FOUND, PARTITION_NOT_FOUND, ApiError
from penstock.http.group_lag import PartitionLag, group_lags
from penstock.http.names import group_of, partition_of, topic_of
from penstock.http.proxy.v3_cluster import seen
from penstock.http.proxy.v3_shapes import Shapes
from penstock.http.services import services_of


async def groups(request: Request) -> Response:
    _, shapes = await seen(request)
    administration = services_of(request).administration
    names = [one.group_id for one in await administration.groups()]
    described = await administration.describe_groups(names)
    data = [shapes.group(described[name]) for name in names if name in described]
    return Json(shapes.items("KafkaConsumerGroupList", ("consumer-groups",), data))


async def _described(request: Request) -> tuple[Any, Shapes]:
    _, shapes = await seen(request)
    return await services_of(request).administration.describe_group(group_of(request)), shapes


async def group(request: Request) -> Response:
    described, shapes = await _described(request)
    return Json(shapes.group(described))


async def delete_group(request: Request) -> Response:
    await _described(request)
    await services_of(request).administration.delete_group(group_of(request))
    return Response(status_code=204)


async def consumers(request: Request) -> Response:
    described, shapes = await _described(request)
    name = described.group_id
    data = [shapes.consumer(name, member) for member in described.members]
    return Json(shapes.items("KafkaConsumerList", ("consumer-groups", name, "consumers"), data))


async def _member(request: Request) -> tuple[Any, Any, Shapes]:
    described, shapes = await _described(request)
    for member in described.members:
        if member.member_id == request.path_params["consumer"]:
            return described, member, shapes
    raise ApiError(CONSUMER_NOT_FOUND, "the group has no such consumer", "See the list of its consumers.")


async def consumer(request: Request) -> Response:
    described, member, shapes = await _member(request)
    return Json(shapes.consumer(described.group_id, member))


async def assignments(request: Request) -> Response:
    described, member, shapes = await _member(request)
    found = [] if member.assignment is None else member.assignment.topic_partitions
    data = [shapes.assignment(described.group_id, member.member_id, one.topic, one.partition) for one in found]
    path = ("consumer-groups", described.group_id, "consumers", member.member_id, "assignments")
    return Json(shapes.items("KafkaConsumerAssignmentList", path, data))


async def lags(request: Request) -> Response:
    described, shapes = await _described(request)
    found = await group_lags(services_of(request).administration, described)
    data = [_lag(shapes, described.group_id, one) for one in found]
    return Json(shapes.items("KafkaConsumerLagList", ("consumer-groups", described.group_id, "lags"), data))


async def partition_lag(request: Request) -> Response:
    described, shapes = await _described(request)
    wanted = (topic_of(request), partition_of(request))
    for one in await group_lags(services_of(request).administration, described):
        if (one.topic, one.partition) == wanted:
            return Json(_lag(shapes, described.group_id, one))
    raise ApiError(PARTITION_NOT_FOUND, "the group does not read this partition", "See the list of its lags.")


async def lag_summary(request: Request) -> Response:
    described, shapes = await _described(request)
    found = await group_lags(services_of(request).administration, described)
    known = [one for one in found if one.lag is not None]
    worst = max(known, key=lambda one: one.lag or 0, default=None)
    name = described.group_id
    member = worst.member if worst is not None else None
    return Json(
        {
            "kind": "KafkaConsumerGroupLagSummary",
            "metadata": {"self": shapes.url("consumer-groups", name, "lag-summary")},
            "cluster_id": shapes.cluster_id,
            "consumer_group_id": name,
            "max_lag_consumer_id": member.member_id if member else "",
            "max_lag_instance_id": member.group_instance_id if member else None,
            "max_lag_client_id": member.client_id if member else "",
            "max_lag_topic_name": worst.topic if worst else "",
            "max_lag_partition_id": worst.partition if worst else 0,
            "max_lag": worst.lag if worst else 0,
            "total_lag": sum(one.lag or 0 for one in known),
        }
    )


def _lag(shapes: Shapes, group: str, one: PartitionLag) -> dict[str, Any]:
    path = ("consumer-groups", group, "lags", one.topic, "partitions", one.partition)
    return {
        "kind": "KafkaConsumerLag",
        "metadata": {"self": shapes.url(*path)},
        "cluster_id": shapes.cluster_id,
        "consumer_group_id": group,
        "topic_name": one.topic,
        "partition_id": one.partition,
        "consumer_id": one.member.member_id if one.member else "",
        "instance_id": one.member.group_instance_id if one.member else None,
        "client_id": one.member.client_id if one.member else "",
        "current_offset": one.committed,
        "log_end_offset": one.log_end,
        "lag": one.lag,
    }


_G = "/v3/clusters/{cluster}/consumer-groups/{group}"
ROUTES = [
    Route("/v3/clusters/{cluster}/consumer-groups", groups, methods=["GET"]),
    Route(_G, group, methods=["GET"]),
    Route(_G, delete_group, methods=["DELETE"]),
    Route(_G + "/consumers", consumers, methods=["GET"]),
    Route(_G + "/consumers/{consumer}", consumer, methods=["GET"]),
    Route(_G + "/consumers/{consumer}/assignments", assignments, methods=["GET"]),
    Route(_G + "/lags", lags, methods=["GET"]),
    Route(_G + "/lag-summary", lag_summary, methods=["GET"]),
    Route(_G + "/lags/{topic}/partitions/{partition}", partition_lag, methods=["GET"]),
]
