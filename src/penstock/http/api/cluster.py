"""/api/overview, /api/topics, /api/brokers, /api/settings, and /metrics."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.base.settings import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, Setting
from penstock.http.administration import ClusterView
from penstock.http.bodies import Json, query_bool, query_int
from penstock.http.broker_metrics import BrokerFigures
from penstock.http.cluster_metrics import whole_page
from penstock.http.names import topic_of
from penstock.http.proxy.v3_cluster import broker_of
from penstock.http.services import services_of

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_SOURCES = {1: "topic", 2: "node", 3: "cluster", 4: "start-up", 5: "default", 8: "group"}
_DISK_FREE_SHARE_MIN = 0.1
_PARTITION_MAX = (1 << 31) - 1


async def overview(request: Request) -> Response:
    services = services_of(request)
    view = await services.administration.cluster()
    groups = await services.administration.groups()
    figures = await services.broker_metrics.totals()
    partitions = [one for of_topic in view.topics.values() for one in of_topic]
    answer = {
        "cluster_id": view.cluster_id,
        "controller": view.controller_id,
        "brokers": _brokers(view, figures),
        "topics": len(view.topics),
        "partitions": len(partitions),
        "under_replicated": sum(1 for one in partitions if len(one.isr) < len(one.replicas)),
        "offline": sum(1 for one in partitions if one.leader < 0),
        "groups": len(groups),
        "groups_by_state": _counted(one.state.name for one in groups),
        "log_bytes": sum(one.plain.get("penstock_log_bytes", 0) for one in figures.values()),
        "messages_in_total": _traffic(figures, "kafka_server_brokertopicmetrics_messagesin_total"),
        "bytes_in_total": _traffic(figures, "kafka_server_brokertopicmetrics_bytesin_total"),
        "bytes_out_total": _traffic(figures, "kafka_server_brokertopicmetrics_bytesout_total"),
        "problems": _problems(view, figures),
        "has_registry": services.registry is not None,
    }
    return Json(answer)


def _counted(names: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _traffic(figures: dict[int, BrokerFigures], name: str) -> float:
    return sum(topic.get(name, 0) for one in figures.values() for topic in one.topics.values())


def _problems(view: ClusterView, figures: dict[int, BrokerFigures]) -> list[dict[str, str]]:
    """What is wrong, and where to look."""
    problems = []
    for topic, partitions in view.topics.items():
        offline = [one.partition for one in partitions if one.leader < 0]
        behind = [one.partition for one in partitions if one.leader >= 0 and len(one.isr) < len(one.replicas)]
        link = f"/api/topics/{topic}"
        if offline:
            problems.append({"severity": "critical", "what": f"{topic}: no leader for {offline}", "link": link})
        if behind:
            problems.append({"severity": "warning", "what": f"{topic}: replicas behind in {behind}", "link": link})
    for broker_id, one in figures.items():
        total, free = one.plain.get("penstock_disk_total_bytes", 0), one.plain.get("penstock_disk_free_bytes", 0)
        if total and free / total < _DISK_FREE_SHARE_MIN:
            what = f"broker {broker_id}: the disk is {100 - 100 * free / total:.0f}% full"
            problems.append({"severity": "warning", "what": what, "link": "/api/brokers"})
    return problems


def _brokers(view: ClusterView, figures: dict[int, BrokerFigures]) -> list[dict[str, Any]]:
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    in_sync: dict[int, int] = {}
    for partitions in view.topics.values():
        for one in partitions:
            leaders[one.leader] = leaders.get(one.leader, 0) + 1
            for broker_id in one.replicas:
                replicas[broker_id] = replicas.get(broker_id, 0) + 1
            for broker_id in one.isr:
                in_sync[broker_id] = in_sync.get(broker_id, 0) + 1
    answer = []
    for broker_id, broker in sorted(view.brokers.items()):
        plain = figures[broker_id].plain if broker_id in figures else {}
        answer.append(
            {
                "id": broker_id,
                "host": broker.host,
                "port": broker.port,
                "is_controller": broker_id == view.controller_id,
                "leaders": leaders.get(broker_id, 0),
                "replicas": replicas.get(broker_id, 0),
                "in_sync": in_sync.get(broker_id, 0),
                "log_bytes": plain.get("penstock_log_bytes"),
                "disk_total_bytes": plain.get("penstock_disk_total_bytes"),
                "disk_free_bytes": plain.get("penstock_disk_free_bytes"),
                "resident_bytes": plain.get("process_resident_memory_bytes"),
                "cpu_seconds": plain.get("process_cpu_seconds_total"),
                "started": plain.get("process_start_time_seconds"),
                "loop_lag_max_seconds": plain.get("penstock_event_loop_lag_max_seconds"),
            }
        )
    return answer


async def brokers(request: Request) -> Response:
    services = services_of(request)
    view = await services.administration.cluster()
    return Json({"brokers": _brokers(view, await services.broker_metrics.totals())})


async def topics(request: Request) -> Response:
    services = services_of(request)
    view = await services.administration.cluster()
    figures = await services.broker_metrics.figures()
    sizes: dict[str, int] = {}
    for one in figures.values():
        for (topic, _), size in one.sizes.items():
            sizes[topic] = sizes.get(topic, 0) + size
    with_internal = query_bool(request, "internal", True)
    wanted = request.query_params.get("search", "").lower()
    answer = [
        {
            "name": name,
            "is_internal": name.startswith("__"),
            "partitions": len(partitions),
            "replicas": len(partitions[0].replicas) if partitions else 0,
            "under_replicated": sum(1 for one in partitions if len(one.isr) < len(one.replicas)),
            "offline": sum(1 for one in partitions if one.leader < 0),
            "log_bytes": sizes.get(name),
            "messages_in_total": _of_topic(figures, name, "messagesin"),
            "bytes_in_total": _of_topic(figures, name, "bytesin"),
            "bytes_out_total": _of_topic(figures, name, "bytesout"),
        }
        for name, partitions in view.topics.items()
        if wanted in name.lower() and (with_internal or not name.startswith("__"))
    ]
    return Json({"topics": answer})


def _of_topic(figures: dict[int, BrokerFigures], topic: str, short: str) -> float:
    name = f"kafka_server_brokertopicmetrics_{short}_total"
    return sum(one.topics.get(topic, {}).get(name, 0) for one in figures.values())


async def topic(request: Request) -> Response:
    services = services_of(request)
    administration = services.administration
    name = topic_of(request)
    partitions = (await administration.cluster()).partitions_of(name)
    keys = [(name, one.partition) for one in partitions]
    starts = await administration.offsets(keys, -2)
    ends = await administration.offsets(keys, -1)
    figures = await services.broker_metrics.figures()
    entries = (await administration.configs("topic", [name]))[name]
    answer = {
        "name": name,
        "is_internal": name.startswith("__"),
        "messages": sum(ends[key] - starts.get(key, 0) for key in ends),
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": one.replicas,
                "isr": one.isr,
                "start": starts.get((name, one.partition)),
                "end": ends.get((name, one.partition)),
                "log_bytes": {
                    str(broker_id): found.sizes[name, one.partition]
                    for broker_id, found in figures.items()
                    if (name, one.partition) in found.sizes
                },
                **_compaction(figures.get(one.leader), (name, one.partition)),
            }
            for one in partitions
        ],
        "configs": [_described(entry, TOPIC_SETTINGS.get(entry.name)) for entry in entries],
    }
    return Json(answer)


def _compaction(leader: BrokerFigures | None, key: tuple[str, int]) -> dict[str, float | None]:
    """None where it is not compacted, or not known."""
    return {
        "dirty_ratio": leader.dirty_ratios.get(key) if leader else None,
        "compaction_progress": leader.compaction_progress.get(key) if leader else None,
    }


async def settings(request: Request) -> Response:
    """Every setting with its meaning; those of brokers with the value that each broker has now."""
    administration = services_of(request).administration
    view = await administration.cluster()
    values: dict[str, dict[str, dict[str, Any]]] = {}
    for name, entries in (await administration.configs("broker", [str(one) for one in sorted(view.brokers)])).items():
        for entry in entries:
            values.setdefault(entry.name, {})[name] = {
                "value": None if entry.is_sensitive else entry.value,
                "source": _SOURCES.get(entry.source, "unknown"),
            }
    answer = {
        "brokers": [_setting(one) | {"values": values.get(one.name, {})} for one in BROKER_SETTINGS.values()],
        "topics": [_setting(one) for one in TOPIC_SETTINGS.values() if not one.internal],
        "groups": [_setting(one) for one in GROUP_SETTINGS.values()],
    }
    return Json(answer)


def _setting(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "type": setting.kind.name.lower(),
        "default": setting.default,
        "values_allowed": "" if setting.rule is None else str(setting.rule).replace("`", ""),
        "doc": setting.doc,
        "is_dynamic": setting.dynamic,
        "broker_settings": [one.name for one in setting.synonyms],
    }


def _described(entry: Any, setting: Setting | None) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "source": _SOURCES.get(entry.source, "unknown"),
        "is_default": bool(entry.is_default),
        "is_sensitive": bool(entry.is_sensitive),
        "default": setting.default if setting else None,
        "type": setting.kind.name.lower() if setting else "string",
        "values_allowed": "" if setting is None or setting.rule is None else str(setting.rule).replace("`", ""),
        "doc": setting.doc if setting else "",
    }


async def metrics(request: Request) -> Response:
    services = services_of(request)
    page = await whole_page(services, services.cluster_metrics)
    return Response(page.encode(), media_type=_PROMETHEUS)


async def broker_metrics(request: Request) -> Response:
    page = await services_of(request).broker_metrics.page(broker_of(request))
    return Response(page, media_type=_PROMETHEUS)


async def charts(request: Request) -> Response:
    """Rates and lag of the last hour, for drawing."""
    found = services_of(request).charts
    group, topic = request.query_params.get("group"), request.query_params.get("topic")
    if group is None:
        return Json(found.rates())
    partition = query_int(request, "partition", 0, 0, _PARTITION_MAX)
    return Json(found.lags(group, None if topic is None else (topic, partition)))


ROUTES = [
    Route("/api/charts", charts, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
    Route("/metrics/brokers/{broker}", broker_metrics, methods=["GET"]),
    Route("/api/overview", overview, methods=["GET"]),
    Route("/api/brokers", brokers, methods=["GET"]),
    Route("/api/topics", topics, methods=["GET"]),
    Route("/api/topics/{topic}", topic, methods=["GET"]),
    Route("/api/settings", settings, methods=["GET"]),
]
