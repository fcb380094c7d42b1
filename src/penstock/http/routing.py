"""Which endpoint a path belongs to, found by the path's first word: a request is held against a few patterns, not all.

Endpoints are called straight away. Starlette would put its own handling of exceptions around each; the gate has that.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send


class RoutesByFirstWord(Router):
    def __init__(self, routes: Iterable[BaseRoute], lifespan: Any) -> None:
        super().__init__(routes=list(routes), lifespan=lifespan)
        by_word: dict[str, list[BaseRoute]] = {}
        for route in self.routes:
            path: str = getattr(route, "path", "")
            word = _first_word(path)
            assert "{" not in word, f"{path} begins with a parameter, so it may be anything"
            by_word.setdefault(word, []).append(route)
            if isinstance(route, Route) and inspect.iscoroutinefunction(route.endpoint):
                route.app = _called_directly(route.endpoint)
        self._by_word = {word: Router(routes=some) for word, some in by_word.items()}
        self._nothing = Router()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.lifespan(scope, receive, send)
            return
        scope.setdefault("router", self)
        await self._by_word.get(_first_word(scope["path"]), self._nothing).app(scope, receive, send)


def _first_word(path: str) -> str:
    return path[1:].partition("/")[0]


def _called_directly(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return app
