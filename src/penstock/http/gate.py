"""What every request passes first and last: who may ask at all, errors as JSON, counting, the log of slow requests.

A browser sends requests to this server for any page that tells it to. So requests that come from pages of other sites
are refused, and, while we listen on this machine only, so are those that reached us by a name which is not this
machine's: that is how a hostile page would get around the first rule.
"""

import ipaddress
import logging
import time
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any

from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from penstock.http.bodies import Json
from penstock.http.errors import ApiError
from penstock.http.metrics import HttpMetrics
from penstock.http.options import HttpOptions

log = logging.getLogger("penstock.http")
slow_log = logging.getLogger("penstock.http.slow")

_WAITS = ("/poll", "/tail", "/records", "/events")
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]
_HOSTS_KEPT = 256
Message = MutableMapping[str, Any]


class Gate:
    """Also what endpoints know as `request.app`: `state` has what they share."""

    def __init__(self, app: Router, options: HttpOptions, metrics: HttpMetrics) -> None:
        self._app = app
        self.routes = app.routes
        self.state = State()
        self._metrics = metrics
        self._slow_seconds = options.slow_request_ms / 1000
        self._allowed_origins = frozenset(options.allowed_origins)
        self._is_local = _is_loopback(options.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started_s = time.perf_counter()
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A new one: an endpoint may send the same message again and again.
                message = {**message, "headers": [*message.get("headers", ()), *_SECURITY_HEADERS]}
            await send(message)

        try:
            self._admit(scope)
            await self._app(scope, receive, send_and_note)
        except Exception as problem:
            answer = _answer_for(problem, scope)
            if status:
                # Too late to say so: the answer had begun, and breaking it off is the only way to tell.
                raise
            await answer(scope, receive, send_and_note)
        finally:
            elapsed_s = time.perf_counter() - started_s
            self._metrics.count(scope["method"], status, elapsed_s)
            if elapsed_s > self._slow_seconds and not scope["path"].endswith(_WAITS):
                slow_log.warning(
                    "%s %r took %.0f ms (status %d)", scope["method"], scope["path"][:200], elapsed_s * 1000, status
                )

    def _admit(self, scope: Scope) -> None:
        """Raises ApiError."""
        host = origin = site = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if self._is_local and host and not _is_this_machine(host):
            raise ApiError(
                421,
                "this server listens on this machine only, and does not go by that name",
                "Ask for localhost or 127.0.0.1; to be reached from elsewhere, start it with --host 0.0.0.0.",
            )
        if origin and origin.decode("latin-1") not in self._allowed_origins:
            if origin.partition(b"://")[2] != host:
                raise _other_site()
        elif site == b"cross-site" and scope["method"] not in ("GET", "HEAD") and not origin:
            raise _other_site()


def _other_site() -> ApiError:
    return ApiError(
        403, "requests from pages of other sites are refused", "Allow the site's origin with --allow-origin."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(_HOSTS_KEPT)
def _is_this_machine(header: bytes) -> bool:
    host = header.decode("latin-1")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.strip("[]").lower()
    if name in ("localhost", "testserver") or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    # An address is no name that somebody else's DNS could turn to us.
    return True


def _answer_for(problem: Exception, scope: Scope) -> Json:
    if isinstance(problem, ApiError):
        return error_answer(problem)
    if isinstance(problem, HTTPException):
        return error_answer(_from_http(problem, scope))
    log.error("%s %r met a defect", scope["method"], scope["path"][:200], exc_info=problem)
    return error_answer(
        ApiError(50001, "the server met a defect of its own", "Try again; the server's log has the details.")
    )


def error_answer(error: ApiError) -> Json:
    headers = {"connection": "close"} if error.status == 413 else None
    return Json(error.as_body(), error.status, headers)


def _from_http(problem: HTTPException, scope: Scope) -> ApiError:
    if problem.status_code == 404:
        return ApiError(404, "there is nothing at this path", "See /openapi for what there is.")
    if problem.status_code == 405:
        allowed = (problem.headers or {}).get("Allow", "")
        return ApiError(405, f"{scope['method']} is not for this path", f"It takes {allowed or 'other methods'}.")
    return ApiError(problem.status_code, str(problem.detail), "See /openapi for what there is.")
