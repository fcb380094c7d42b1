"""REST proxy v3: clusters, brokers, topics, partitions, replicas and their configs."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.administration import ClusterView, PartitionView
from penstock.http.bodies import Json, decode_json, read_body
from penstock.http.errors import BROKER_NOT_FOUND, CONFIG_NOT_FOUND, ApiError, bad_request, no_partition
from penstock.http.names import checked_topic, partition_of, topic_of
from penstock.http.proxy.v3_shapes import Shapes
from penstock.http.services import services_of

_DYNAMIC_DEFAULT_BROKER = 3


class _Config(msgspec.Struct):
    name: str
    value: str | None = None


class _NewTopic(msgspec.Struct):
    topic_name: str
    partitions_count: int | None = None
    replication_factor: int | None = None
    configs: list[_Config] = []
    validate_only: bool = False


class _MorePartitions(msgspec.Struct):
    partitions_count: int


class _ConfigValue(msgspec.Struct):
    value: str | None


class _Change(msgspec.Struct):
    name: str
    value: str | None = None
    operation: str = "SET"


class _Changes(msgspec.Struct):
    data: list[_Change]
    validate_only: bool = False


_new_topic = msgspec.json.Decoder(_NewTopic)
_more_partitions = msgspec.json.Decoder(_MorePartitions)
_config_value = msgspec.json.Decoder(_ConfigValue)
_changes = msgspec.json.Decoder(_Changes)


async def seen(request: Request) -> tuple[ClusterView, Shapes]:
    """The cluster, if it is the one that the path names. Raises ApiError."""
    view = await services_of(request).administration.cluster()
    named = request.path_params.get("cluster", view.cluster_id)
    if named != view.cluster_id:
        raise ApiError(404, f"there is no cluster {named[:80]!r} here", f"This server knows {view.cluster_id}.")
    return view, Shapes(request, view.cluster_id)


async def _body(request: Request) -> bytes:
    return await read_body(request, services_of(request).options.body_bytes_max)


async def clusters(request: Request) -> Response:
    view, shapes = await seen(request)
    answer = shapes.items("KafkaClusterList", (), [shapes.cluster(view.controller_id)])
    answer["metadata"]["self"] = f"{str(request.base_url).rstrip('/')}/v3/clusters"
    return Json(answer)


async def cluster(request: Request) -> Response:
    view, shapes = await seen(request)
    return Json(shapes.cluster(view.controller_id))


# Brokers


def broker_of(request: Request) -> int:
    text: str = request.path_params["broker"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_request(f"{text[:40]!r} is not a broker", "Take its number.")
    return int(text)


async def brokers(request: Request) -> Response:
    view, shapes = await seen(request)
    racks = await services_of(request).administration.racks()
    data = [shapes.broker(one, racks.get(one.broker_id)) for _, one in sorted(view.brokers.items())]
    return Json(shapes.items("KafkaBrokerList", ("brokers",), data))


async def broker(request: Request) -> Response:
    view, shapes = await seen(request)
    racks = await services_of(request).administration.racks()
    one = view.broker(broker_of(request))
    return Json(shapes.broker(one, racks.get(one.broker_id)))


async def broker_replicas(request: Request) -> Response:
    view, shapes = await seen(request)
    number = view.broker(broker_of(request)).broker_id
    data = [
        shapes.replica(name, one, number)
        for name, partitions in view.topics.items()
        for one in partitions
        if number in one.replicas
    ]
    return Json(shapes.items("KafkaReplicaList", ("brokers", number, "partition-replicas"), data))


# Topics


async def topics(request: Request) -> Response:
    view, shapes = await seen(request)
    data = [shapes.topic(name, partitions) for name, partitions in view.topics.items()]
    return Json(shapes.items("KafkaTopicList", ("topics",), data))


async def create_topic(request: Request) -> Response:
    wanted = decode_json(_new_topic, await _body(request))
    name = checked_topic(wanted.topic_name)
    _, shapes = await seen(request)
    administration = services_of(request).administration
    config = {one.name: one.value for one in wanted.configs if one.value is not None}
    await administration.create_topic(
        name, wanted.partitions_count or -1, wanted.replication_factor or -1, config, wanted.validate_only
    )
    if wanted.validate_only:
        partitions = [PartitionView(number, -1, [], []) for number in range(max(wanted.partitions_count or 1, 1))]
        return Json(shapes.topic(name, partitions))
    view = await administration.cluster()
    return Json(shapes.topic(name, view.topics.get(name, [])), 201, {"location": shapes.url("topics", name)})


async def topic(request: Request) -> Response:
    view, shapes = await seen(request)
    name = topic_of(request)
    return Json(shapes.topic(name, view.partitions_of(name)))


async def alter_topic(request: Request) -> Response:
    view, shapes = await seen(request)
    name = topic_of(request)
    view.partitions_of(name)
    administration = services_of(request).administration
    await administration.add_partitions(name, decode_json(_more_partitions, await _body(request)).partitions_count)
    return Json(shapes.topic(name, (await administration.cluster()).partitions_of(name)))


async def delete_topic(request: Request) -> Response:
    await seen(request)
    await services_of(request).administration.delete_topic(topic_of(request))
    return Response(status_code=204)


async def partitions(request: Request) -> Response:
    view, shapes = await seen(request)
    name = topic_of(request)
    data = [shapes.partition(name, one) for one in view.partitions_of(name)]
    return Json(shapes.items("KafkaPartitionList", ("topics", name, "partitions"), data))


async def partition(request: Request) -> Response:
    view, shapes = await seen(request)
    return Json(shapes.partition(topic_of(request), _the_partition(request, view)))


async def replicas(request: Request) -> Response:
    view, shapes = await seen(request)
    name, one = topic_of(request), _the_partition(request, view)
    data = [shapes.replica(name, one, number) for number in one.replicas]
    path = ("topics", name, "partitions", one.partition, "replicas")
    return Json(shapes.items("KafkaReplicaList", path, data))


async def replica(request: Request) -> Response:
    view, shapes = await seen(request)
    one, number = _the_partition(request, view), broker_of(request)
    if number not in one.replicas:
        raise ApiError(BROKER_NOT_FOUND, f"broker {number} has no replica of it", f"The replicas: {one.replicas}.")
    return Json(shapes.replica(topic_of(request), one, number))


def _the_partition(request: Request, view: ClusterView) -> PartitionView:
    found = view.partitions_of(topic_of(request))
    number = partition_of(request)
    if number >= len(found):
        raise no_partition(topic_of(request), number, len(found))
    return found[number]


# Configs


async def _owner(request: Request) -> tuple[str, str, str, tuple[object, ...], dict[str, Any], Shapes]:
    """Kind of resource, its name, kind of its configs, path, fields, shapes. Raises ApiError."""
    view, shapes = await seen(request)
    if "topic" in request.path_params:
        name = topic_of(request)
        view.partitions_of(name)
        return "topic", name, "KafkaTopicConfig", ("topics", name), {"topic_name": name}, shapes
    if "broker" in request.path_params:
        number = view.broker(broker_of(request)).broker_id
        path = ("brokers", number)
        return "broker", str(number), "KafkaBrokerConfig", path, {"broker_id": number}, shapes
    raise AssertionError("a route without an owner")


async def cluster_configs(request: Request) -> Response:
    """Defaults that were set for all brokers: each broker knows them. librdkafka cannot set them, so neither can we."""
    view, shapes = await seen(request)
    name = str(min(view.brokers))
    entries = (await services_of(request).administration.configs("broker", [name]))[name]
    data = [
        shapes.config("KafkaClusterConfig", ("broker-configs",), entry, config_type="BROKER")
        for entry in entries
        if entry.source == _DYNAMIC_DEFAULT_BROKER
    ]
    return Json(shapes.items("KafkaClusterConfigList", ("broker-configs",), data))


async def configs(request: Request) -> Response:
    kind, name, shape, path, fields, shapes = await _owner(request)
    entries = (await services_of(request).administration.configs(kind, [name]))[name]
    data = [shapes.config(shape, path, entry, **fields) for entry in entries]
    return Json(shapes.items(f"{shape}List", (*path, "configs"), data))


async def config(request: Request) -> Response:
    kind, name, shape, path, fields, shapes = await _owner(request)
    setting = request.path_params["name"]
    for entry in (await services_of(request).administration.configs(kind, [name]))[name]:
        if entry.name == setting:
            return Json(shapes.config(shape, path, entry, **fields))
    raise ApiError(CONFIG_NOT_FOUND, f"there is no setting {setting[:80]!r}", "See the list of settings.")


async def set_config(request: Request) -> Response:
    kind, name, *_ = await _owner(request)
    value = decode_json(_config_value, await _body(request)).value
    await services_of(request).administration.alter_configs(kind, name, {request.path_params["name"]: value})
    return Response(status_code=204)


async def reset_config(request: Request) -> Response:
    kind, name, *_ = await _owner(request)
    await services_of(request).administration.alter_configs(kind, name, {request.path_params["name"]: None})
    return Response(status_code=204)


async def alter_configs(request: Request) -> Response:
    kind, name, *_ = await _owner(request)
    wanted = decode_json(_changes, await _body(request))
    changes: dict[str, str | None] = {}
    for one in wanted.data:
        if one.operation not in ("SET", "DELETE"):
            raise ApiError(422, f"{one.operation[:40]!r} is no operation", "Take SET or DELETE.")
        changes[one.name] = None if one.operation == "DELETE" else one.value
    if not wanted.validate_only:
        await services_of(request).administration.alter_configs(kind, name, changes)
    return Response(status_code=204)


_C = "/v3/clusters/{cluster}"
_T = _C + "/topics/{topic}"
_P = _T + "/partitions/{partition}"


def _config_routes(base: str) -> list[Route]:
    return [
        Route(base, configs, methods=["GET"]),
        Route(base + ":alter", alter_configs, methods=["POST"]),
        Route(base + "/{name}", config, methods=["GET"]),
        Route(base + "/{name}", set_config, methods=["PUT"]),
        Route(base + "/{name}", reset_config, methods=["DELETE"]),
    ]


ROUTES = [
    Route("/v3/clusters", clusters, methods=["GET"]),
    Route(_C, cluster, methods=["GET"]),
    Route(_C + "/brokers", brokers, methods=["GET"]),
    Route(_C + "/brokers/{broker}", broker, methods=["GET"]),
    Route(_C + "/brokers/{broker}/partition-replicas", broker_replicas, methods=["GET"]),
    *_config_routes(_C + "/brokers/{broker}/configs"),
    Route(_C + "/broker-configs", cluster_configs, methods=["GET"]),
    Route(_C + "/topics", topics, methods=["GET"]),
    Route(_C + "/topics", create_topic, methods=["POST"]),
    Route(_T, topic, methods=["GET"]),
    Route(_T, alter_topic, methods=["PATCH"]),
    Route(_T, delete_topic, methods=["DELETE"]),
    *_config_routes(_T + "/configs"),
    Route(_T + "/partitions", partitions, methods=["GET"]),
    Route(_P, partition, methods=["GET"]),
    Route(_P + "/replicas", replicas, methods=["GET"]),
    Route(_P + "/replicas/{broker}", replica, methods=["GET"]),
]
