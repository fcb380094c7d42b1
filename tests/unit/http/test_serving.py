"""What every request goes through: the gate, the routes by their first word, the connection."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock.http.connection import JoinedWrites
from penstock.http.gate import Gate
from penstock.http.metrics import HttpMetrics
from penstock.http.options import HttpOptions
from penstock.http.routing import RoutesByFirstWord

KEPT: list[dict[str, Any]] = [
    {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]},
    {"type": "http.response.body", "body": b"ok"},
]


class Kept:
    """An endpoint that sends the same messages every time."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        for message in KEPT:
            await send(message)


async def echo(request: Request) -> Response:
    return PlainTextResponse(f"{request.method} {request.path_params}")


def gate() -> Gate:
    routes = [
        Route("/kept", Kept(), methods=["GET"]),
        Route("/things", echo, methods=["GET"]),
        Route("/things/{name:path}/parts/{part}", echo, methods=["GET"]),
        Route("/things/{name:path}", echo, methods=["GET", "POST"]),
        Route("/", echo, methods=["GET"]),
    ]
    return Gate(RoutesByFirstWord(routes, None), HttpOptions("nowhere:1"), HttpMetrics())


def ask(method: str, path: str, **headers: str) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(gate())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(asked())


def test_messages_that_an_endpoint_keeps_stay_as_they_are() -> None:
    for _ in range(3):
        answer = ask("GET", "/kept")
        assert answer.headers.get_list("x-frame-options") == ["DENY"]
    assert KEPT[0]["headers"] == [(b"content-length", b"2")]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/", "GET {}"),
        ("/things", "GET {}"),
        ("/things/a", "GET {'name': 'a'}"),
        ("/things/a/b/parts/1", "GET {'name': 'a/b', 'part': '1'}"),
        ("/things/%2Fa", "GET {'name': '/a'}"),
    ],
)
def test_a_path_finds_the_first_route_that_fits(path: str, answer: str) -> None:
    assert ask("GET", path).text == answer


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/thing", 404),
        ("GET", "/nothing/at/all", 404),
        ("POST", "/things", 405),
        ("DELETE", "/things/a", 405),
    ],
)
def test_what_fits_no_route_is_refused(method: str, path: str, status: int) -> None:
    assert ask(method, path).status_code == status


def test_a_route_that_could_begin_with_anything_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="begins with a parameter"):
        RoutesByFirstWord([Route("/{anything}", echo)], None)


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("a.localhost", 200), ("evil.example", 421)]
)
def test_only_this_machines_names_are_answered_to_however_often(host: str, status: int) -> None:
    assert [ask("GET", "/things", host=host).status_code for _ in range(2)] == [status] * 2


class Written:
    """A transport that remembers what was written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.pieces.append(data)

    def close(self) -> None:
        self.is_closed = True

    def get_extra_info(self, name: str) -> str:
        return name

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def written(*steps: bytes | None) -> Written:
    """None: the event loop's next turn."""

    async def write() -> Written:
        transport = Written()
        joined = JoinedWrites(transport, asyncio.get_running_loop())  # type: ignore[arg-type]
        for step in steps:
            if step is None:
                await asyncio.sleep(0)
            else:
                joined.write(step)
        joined.close()
        return transport

    return asyncio.run(write())


def test_a_head_leaves_together_with_its_body() -> None:
    assert written(HEAD, b"body", b"more").pieces == [HEAD + b"body", b"more"]
    assert written(HEAD, b"one", HEAD, b"two", None).pieces == [HEAD + b"one", HEAD + b"two"]


def test_a_head_does_not_wait_for_a_body_that_takes_its_time() -> None:
    assert written(HEAD, None, b"late").pieces == [HEAD, b"late"]


def test_a_head_without_a_body_leaves_before_the_connection_closes() -> None:
    assert written(HEAD).pieces == [HEAD]
