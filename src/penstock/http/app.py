"""The ASGI app, put together: the gate, the routes of every part, and what they share while the server runs."""

import asyncio
import contextlib
import importlib
import importlib.util
import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.http.administration import Administration
from penstock.http.api import cluster as api_cluster
from penstock.http.api import groups as api_groups
from penstock.http.api import messages as api_messages
from penstock.http.api import transactions as api_transactions
from penstock.http.bodies import Json
from penstock.http.broker_metrics import BrokerMetricsPages
from penstock.http.charts import Charts
from penstock.http.cluster_metrics import ClusterMetrics
from penstock.http.consuming import Consumers
from penstock.http.gate import Gate
from penstock.http.inside import ask_inside
from penstock.http.metrics import HttpMetrics
from penstock.http.openapi import openapi_routes
from penstock.http.options import HttpOptions
from penstock.http.producing import Producing
from penstock.http.proxy import v2_consumers, v2_topics, v3_cluster, v3_groups, v3_records
from penstock.http.rest import consumers, messages, tail
from penstock.http.routing import RoutesByFirstWord
from penstock.http.schema_values import SchemaValues
from penstock.http.services import Services

log = logging.getLogger("penstock.http")

_REGISTRY = "penstock.http.registry"
_CONSOLE = "penstock.http.console"
_REGISTRY_RETRY_SECONDS = 2.0


def make_app(options: HttpOptions) -> Gate:
    metrics = HttpMetrics()
    registry = _made_registry(options)
    routes: list[BaseRoute] = [
        *messages.ROUTES,
        *consumers.ROUTES,
        *v2_topics.ROUTES,
        *v2_consumers.ROUTES,
        *v3_cluster.ROUTES,
        *v3_groups.ROUTES,
        *v3_records.ROUTES,
        *tail.ROUTES,
        *api_messages.ROUTES,
        *api_groups.ROUTES,
        *api_cluster.ROUTES,
        *api_transactions.ROUTES,
        Route("/health", _health),
        Route("/", _root(options), methods=["GET", "POST", "HEAD"], include_in_schema=False),
    ]
    if registry is not None:
        routes += importlib.import_module(_REGISTRY).routes(registry)
    routes += openapi_routes(routes)
    console = _optional(_CONSOLE)
    if console is not None:
        routes += console.routes()

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        administration = Administration(options.bootstrap, options.client_properties)
        broker_metrics = BrokerMetricsPages(options.broker_metrics)
        charts = Charts(administration, broker_metrics)
        services = Services(
            options=options,
            metrics=metrics,
            producing=Producing(options.bootstrap, options.client_properties),
            consumers=Consumers(
                options.bootstrap,
                options.client_properties,
                idle_ms_max=options.consumer_idle_ms,
                consumers_max=options.consumers_max,
                tails_max=options.tails_max,
            ),
            administration=administration,
            cluster_metrics=ClusterMetrics(administration, broker_metrics),
            broker_metrics=broker_metrics,
            charts=charts,
            registry=registry,
            values=None if registry is None else SchemaValues(ask_inside(app)),
        )
        app.state.services = services
        starting = None if registry is None else asyncio.create_task(_start_registry(registry))
        try:
            yield
        finally:
            charts.stop()
            if starting is not None:
                starting.cancel()
            await services.consumers.close()
            await services.producing.close()
            if registry is not None:
                await registry.stop()

    # Starlette's own middleware is left out: the gate answers errors, and hot paths are shorter.
    return Gate(RoutesByFirstWord(routes, lifespan), options, metrics)


def _optional(name: str) -> Any:
    """A part that may not be installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) is not None else None


def _made_registry(options: HttpOptions) -> Any:
    module = _optional(_REGISTRY)
    if module is None:
        return None
    url = f"http://{options.host}:{options.registry_port}"
    return module.Registry(options.bootstrap, url, client_config=dict(options.client_properties))


async def _start_registry(registry: Any) -> None:
    """It reads its topic first, which takes a cluster that answers. The rest of HTTP does not wait for that."""
    while True:
        try:
            await registry.start()
            return
        except Exception as problem:
            log.warning("the schema registry cannot start yet: %s", problem)
            await asyncio.sleep(_REGISTRY_RETRY_SECONDS)


async def _health(request: Request) -> Response:
    """Answers while the process serves; it says nothing of the cluster."""
    return Json({"status": "ok"})


def _root(options: HttpOptions) -> Any:
    has_console = importlib.util.find_spec(_CONSOLE) is not None

    async def root(request: Request) -> Response:
        """The registry's and the REST proxy's clients want `{}` here, people want the console."""
        server = request.scope.get("server")
        port = server[1] if server else options.console_port
        if port != options.console_port or request.method == "POST" or not _is_browser(request):
            return Json({})
        return RedirectResponse("/console/" if has_console else "/openapi")

    return root


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")
