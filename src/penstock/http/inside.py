"""Asking our own app, in this process, by the same paths and shapes that a client uses."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from penstock.http.errors import ApiError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from penstock.http.schema_values import Ask


def ask_inside(app: "ASGIApp") -> "Ask":
    async def ask(method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and decoded answer."""
        path, _, query = path.partition("?")
        data = b"" if body is None else msgspec.json.encode(body)
        status = 0
        pieces: list[bytes] = []
        is_read = False

        async def receive() -> dict[str, Any]:
            nonlocal is_read
            if is_read:
                return {"type": "http.disconnect"}
            is_read = True
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                pieces.append(message.get("body", b""))

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))],
            "client": None,
            "server": None,
            "state": {},
        }
        try:
            await app(scope, receive, send)
        except ApiError as problem:
            return problem.status, problem.as_body()
        return status, msgspec.json.decode(b"".join(pieces)) if pieces and pieces[0] else None

    return ask
