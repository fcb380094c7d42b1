"""Server-sent events: a stream that ends when the client goes, and says now and then that it is still there."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from penstock.http.errors import ApiError
from penstock.http.services import Services

KEEP_ALIVE_SECONDS = 15.0
_encode = msgspec.json.Encoder().encode


def event(data: Any, name: str = "", id: str = "") -> bytes:
    """One event. JSON has no line breaks, so that nothing in a message can end it early."""
    return b"".join(
        [
            b"event: %s\n" % name.encode() if name else b"",
            b"id: %s\n" % id.encode() if id else b"",
            b"data: " + _encode(data) + b"\n\n",
        ]
    )


COMMENT = b": still here\n\n"


class EventStream(StreamingResponse):
    media_type = "text/event-stream"

    def __init__(self, services: Services, events: AsyncIterator[bytes]) -> None:
        """Raises ApiError where too many are open."""
        if services.tails >= services.options.tails_max:
            raise ApiError(429, f"there are {services.tails} streams open already", "Close some of them.")
        services.tails += 1
        super().__init__(
            self._counted(services, events), headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )

    @staticmethod
    async def _counted(services: Services, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for one in events:
                yield one
        finally:
            services.tails -= 1
            await asyncio.shield(_closed(events))


async def _closed(events: Any) -> None:
    await events.aclose()
