"""Requests that change something, sent on to the leader; its answer is passed on as it is."""

import asyncio
import http.client
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.http.registry import errors

# Says that a request was sent on already: two that take each other for the leader must not play ball.
FORWARDED_HEADER = "x-forward"
_TIMEOUT_SECONDS = 30.0
_PASSED_ON = ("accept", "authorization", "content-type")


class Forwarded(NamedTuple):
    status: int
    content_type: str
    body: bytes


async def forward(url: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Forwarded:
    """Raises RegistryError 50003. `target` is the path with its query, still encoded."""
    return await asyncio.to_thread(_send, url, method, target, headers, body)


def _send(url: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Forwarded:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
    was_sent = False
    try:
        connection.connect()
        was_sent = True
        passed_on = {name: headers[name] for name in _PASSED_ON if name in headers}
        connection.request(method, parts.path.rstrip("/") + target, body, passed_on | {FORWARDED_HEADER: "false"})
        answer = connection.getresponse()
        return Forwarded(answer.status, answer.getheader("content-type") or "application/json", answer.read())
    except (OSError, http.client.HTTPException) as problem:
        raise errors.forwarding_failed(f"{url}: {problem}", was_sent=was_sent) from None
    finally:
        connection.close()
