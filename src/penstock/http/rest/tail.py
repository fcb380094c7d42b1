"""GET /topics/{topic}/tail: messages as server-sent events, as they come.

Each event's id says where every partition stands, so that a browser that reconnects goes on where it was. A client that
reads slowly makes us read slowly: nothing is skipped here. (/api/topics/{topic}/tail samples instead.)
"""

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.errors import bad_request
from penstock.http.formats import Format, format_of_accept
from penstock.http.names import topic_of
from penstock.http.reading import Reader, places, wanted_partitions
from penstock.http.records import messages_as_json, plain_presenter
from penstock.http.services import Services, services_of
from penstock.http.streams import COMMENT, KEEP_ALIVE_SECONDS, EventStream, event

_SLICE_RECORDS = 500
_WAIT_SECONDS = 0.25


async def tail(request: Request) -> Response:
    services = services_of(request)
    topic = topic_of(request)
    # EventSource cannot set headers, so the format may be in the query.
    named = request.query_params.get("value")
    format = format_of_accept(f"application/json; value={named}" if named else None, Format.TEXT)
    view = await services.administration.cluster()
    partitions = wanted_partitions(request.query_params.get("partition"), len(view.partitions_of(topic)), topic)
    cursor = request.headers.get("last-event-id")
    if cursor:
        positions = parse_cursor(cursor, partitions)
    else:
        place = request.query_params.get("from", "end")
        positions = await places(services.administration, topic, partitions, place)
    return EventStream(services, _events(services, topic, positions, format))


def cursor_of(positions: dict[int, int]) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items()))


def parse_cursor(text: str, partitions: list[int]) -> dict[int, int]:
    """Raises ApiError."""
    positions = {}
    for piece in text.split(","):
        number, _, offset = piece.partition(":")
        if not (
            number.isdecimal() and offset.isdecimal() and number.isascii() and offset.isascii() and len(piece) < 32
        ):
            raise bad_request(f"{text[:40]!r} is no place in a topic", "Take the id of an event as it was.")
        positions[int(number)] = int(offset)
    return {number: offset for number, offset in positions.items() if number in partitions}


async def _events(services: Services, topic: str, positions: dict[int, int], format: Format) -> AsyncIterator[bytes]:
    options = services.options
    loop = asyncio.get_running_loop()
    threads = services.consumers.threads
    yield COMMENT
    reader = Reader(options.bootstrap, options.client_properties, topic, positions)
    last_s = time.monotonic()
    try:
        while True:
            found = await loop.run_in_executor(threads, reader.take, _SLICE_RECORDS, _WAIT_SECONDS)
            if found:
                if format.needs_registry:
                    present = await services.schema_values().presenter_for([one.value() for one in found])
                else:
                    present = plain_presenter(format)
                for message, raw in zip(messages_as_json(found, present), found, strict=True):
                    positions[raw.partition()] = raw.offset() + 1
                    yield event(message, id=cursor_of(positions))
                last_s = time.monotonic()
            elif time.monotonic() - last_s > KEEP_ALIVE_SECONDS:
                last_s = time.monotonic()
                yield COMMENT
    finally:
        await loop.run_in_executor(threads, reader.close)


ROUTES = [Route("/topics/{topic}/tail", tail, methods=["GET"])]
