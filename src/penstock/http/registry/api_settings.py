"""`/config`, `/mode`, `/contexts` and what the registry says of itself."""

import asyncio
from importlib.metadata import version
from typing import Any

from confluent_kafka.admin import AdminClient
from starlette.responses import Response

from penstock.http.registry import deleting, errors, settings, subjects
from penstock.http.registry.calls import Call

_ASK_SECONDS = 10.0


async def get_config(call: Call) -> Response:
    subject = call.setting_subject()
    if call.flag("defaultToGlobal"):
        return call.answer(settings.config_of(call.store, subject))
    config = settings.own_config(call.store, subject)
    if config is None:
        raise errors.no_subject_config(subject)
    return call.answer(config)


async def put_config(call: Call) -> Response:
    subject = call.setting_subject()
    wanted = settings.checked_config(await call.body())
    config = await call.registry.change(lambda: settings.set_config(call.store, subject, wanted))
    return call.answer(_as_request(config))


def _as_request(config: dict[str, Any]) -> dict[str, Any]:
    """A change is echoed in the names of the request, where the level is called compatibility."""
    return {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}


async def delete_config(call: Call) -> Response:
    subject = call.setting_subject()
    deleted = await call.registry.change(lambda: settings.delete_config(call.store, subject))
    return call.answer(deleted)


async def get_mode(call: Call) -> Response:
    subject = call.setting_subject()
    if call.flag("defaultToGlobal"):
        return call.answer({"mode": settings.mode_of(call.store, subject)})
    mode = settings.own_mode(call.store, subject)
    if mode is None:
        raise errors.no_subject_mode(subject)
    return call.answer({"mode": mode})


async def put_mode(call: Call) -> Response:
    subject, is_forced = call.setting_subject(), call.flag("force")
    mode = settings.checked_mode((await call.body()).get("mode"))
    await call.registry.change(lambda: settings.set_mode(call.store, subject, mode, is_forced=is_forced))
    return call.answer({"mode": mode})


async def delete_mode(call: Call) -> Response:
    subject, is_recursive = call.setting_subject(), call.flag("recursive")
    deleted = await call.registry.change(lambda: settings.delete_mode(call.store, subject, is_recursive=is_recursive))
    return call.answer({"mode": deleted} if deleted is not None else {})


async def list_contexts(call: Call) -> Response:
    prefix = call.text("contextPrefix") or ""
    return call.answer(call.page([name for name in call.store.contexts() if name.startswith(prefix)]))


async def delete_context(call: Call) -> Response:
    context = subjects.in_context(call.path("context"), "")
    await call.registry.change(lambda: deleting.delete_context(call.store, context))
    return Response(status_code=204)


async def get_cluster_id(call: Call) -> Response:
    def ask() -> str | None:
        cluster_id: str | None = AdminClient(call.registry.client_config).list_topics(timeout=_ASK_SECONDS).cluster_id
        return cluster_id

    clusters = {"kafka-cluster": await asyncio.to_thread(ask), "schema-registry-cluster": call.registry.group}
    return call.answer({"scope": {"path": [], "clusters": clusters}, "id": ""})


async def get_version(call: Call) -> Response:
    return call.answer({"version": version("penstock"), "commitId": ""})


async def get_root(call: Call) -> Response:
    return call.answer({})
