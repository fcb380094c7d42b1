"""/api/topics/{topic}/messages and /tail: looking at messages, decoded and filtered.

Looking is bounded by messages found, messages scanned and time; the answer says how much of the topic that was, and has
a cursor for the rest. The live tail shows a sample of what comes: as many a second as a person can look at, the newest
first, with "scanned X of Y" beside it, so that a flood costs no more than a trickle.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.bodies import Json, query_int
from penstock.http.errors import bad_request, from_kafka
from penstock.http.names import topic_of
from penstock.http.reading import Range, Reader, places, wanted_partitions
from penstock.http.services import Services, services_of
from penstock.http.shown import Filter, ShownMessage, decoder_for, shown
from penstock.http.streams import COMMENT, EventStream, event

_TICK_SECONDS = 0.25
_FILTER_SECONDS_PER_TICK = 0.1
_TAIL_SLICE_RECORDS = 50_000
# A reader that is further behind than this leaves out what it has no time for.
_BEHIND_MAX = 200_000
_FIRST_CHUNK = 500


class _Search:
    """Messages that pass, and how many were looked at."""

    def __init__(self, services: Services, topic: str, filter: Filter | None, limit: int, scan_max: int) -> None:
        self._services = services
        self._topic = topic
        self._filter = filter
        self._scan_max = scan_max
        self.limit = limit
        self.found: list[ShownMessage] = []
        self.scanned = 0

    @property
    def is_over(self) -> bool:
        return len(self.found) >= self.limit or self.scanned >= self._scan_max

    async def look_at(self, messages: list[Any]) -> None:
        data = [one.value() for one in messages] + [one.key() for one in messages]
        decode = await decoder_for(self._services.values, data)
        for one in messages:
            self.scanned += 1
            seen = shown(one, decode)
            if self._filter is None or self._filter.passes(self._topic, seen):
                self.found.append(seen)


async def messages(request: Request) -> Response:
    services = services_of(request)
    topic = topic_of(request)
    limit = query_int(request, "limit", 50, 1, 1000)
    scan_max = query_int(request, "scan_max", 100_000, 1, 5_000_000)
    deadline_s = time.monotonic() + query_int(request, "timeout_ms", 5_000, 1, 30_000) / 1000
    text = request.query_params.get("filter", "").strip()
    search = _Search(services, topic, Filter(text) if text else None, limit, scan_max)
    view = await services.administration.cluster()
    partitions = wanted_partitions(request.query_params.get("partition"), len(view.partitions_of(topic)), topic)
    starts = await places(services.administration, topic, partitions, "start")
    ends = await places(services.administration, topic, partitions, "end")
    place = request.query_params.get("from", "newest")
    cursor = _parsed_cursor(request.query_params.get("cursor"))
    from_s = time.monotonic()
    if place == "newest":
        positions = await _backwards(search, topic, starts, cursor or ends, deadline_s)
        left = sum(max(0, positions[number] - starts.get(number, 0)) for number in positions)
    else:
        begin = cursor or await places(services.administration, topic, partitions, place)
        positions = await _forwards(search, topic, begin, ends, deadline_s)
        left = sum(max(0, ends.get(number, 0) - positions[number]) for number in positions)
    answer = {
        "topic": topic,
        "messages": search.found,
        "scanned": search.scanned,
        "total": sum(ends[number] - starts.get(number, 0) for number in ends),
        "left": left,
        "cursor": ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items())) if left else None,
        "elapsed_ms": round((time.monotonic() - from_s) * 1000),
        "filter_errors": search._filter.errors if search._filter else 0,
        "filter_error": search._filter.first_error if search._filter else "",
    }
    return Json(answer)


def _parsed_cursor(text: str | None) -> dict[int, int] | None:
    if not text:
        return None
    positions = {}
    for piece in text.split(","):
        number, _, offset = piece.partition(":")
        if not (number.isdecimal() and offset.isdecimal() and piece.isascii() and len(piece) < 32):
            raise bad_request(f"{text[:40]!r} is no cursor", "Take the cursor of an answer as it was.")
        positions[int(number)] = int(offset)
    return positions


async def _read(search: _Search, topic: str, ranges: Mapping[int, Range], deadline_s: float) -> dict[int, int]:
    """Reads the ranges, looks at everything, and tells how far it came."""
    from confluent_kafka import KafkaException

    options = search._services.options
    loop = asyncio.get_running_loop()
    threads = search._services.consumers.threads
    positions = {number: one.first for number, one in ranges.items()}
    opened = Reader(options.bootstrap, options.client_properties, topic, positions)
    try:
        slices = opened.read_ranges(ranges, deadline_s)
        while True:
            found = await loop.run_in_executor(threads, next, slices, None)
            if found is None:
                return opened.positions
            await search.look_at(found)
            if search.is_over:
                return opened.positions
    except KafkaException as problem:
        raise from_kafka(problem.args[0]) from problem
    finally:
        await loop.run_in_executor(threads, opened.close)


async def _forwards(
    search: _Search, topic: str, begin: Mapping[int, int], ends: Mapping[int, int], deadline_s: float
) -> dict[int, int]:
    """The oldest first. What was read beyond the limit is left for the next time."""
    ranges = {number: Range(begin[number], ends[number]) for number in begin if number in ends}
    positions = await _read(search, topic, ranges, deadline_s) if ranges else {}
    search.found.sort(key=lambda one: (one.timestamp, one.partition, one.offset))
    for extra in search.found[search.limit :]:
        positions[extra.partition] = min(positions[extra.partition], extra.offset)
    kept = search.found[: search.limit]
    # A message that comes again with the next page must not be on this one too.
    search.found = [one for one in kept if one.offset < positions[one.partition]]
    return positions


async def _backwards(
    search: _Search, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], deadline_s: float
) -> dict[int, int]:
    """The newest first: pieces from the end, each larger than the one before it, until enough has been found."""
    positions = {number: end for number, end in ends.items() if number in starts}
    chunk = _FIRST_CHUNK if search._filter is not None else search.limit
    while not search.is_over and time.monotonic() < deadline_s:
        ranges = {
            number: Range(max(starts[number], end - chunk), end)
            for number, end in positions.items()
            if end > starts[number]
        }
        if not ranges:
            break
        read_to = await _read(search, topic, ranges, deadline_s)
        if any(read_to[number] < one.end for number, one in ranges.items()) and not search.is_over:
            # The time was up in the middle of a piece: it counts as not read.
            break
        positions |= {number: one.first for number, one in ranges.items()}
        chunk *= 4
    search.found.sort(key=lambda one: (-one.timestamp, one.partition, -one.offset))
    for extra in search.found[search.limit :]:
        positions[extra.partition] = max(positions[extra.partition], extra.offset + 1)
    kept = search.found[: search.limit]
    search.found = [one for one in kept if one.offset >= positions[one.partition]]
    return positions


async def tail(request: Request) -> Response:
    services = services_of(request)
    topic = topic_of(request)
    text = request.query_params.get("filter", "").strip()
    filter = Filter(text) if text else None
    per_second = query_int(request, "per_second", 40, 1, 1000)
    view = await services.administration.cluster()
    partitions = wanted_partitions(request.query_params.get("partition"), len(view.partitions_of(topic)), topic)
    positions = await places(services.administration, topic, partitions, request.query_params.get("from", "end"))
    return EventStream(services, _sampled(services, topic, positions, filter, per_second))


async def _sampled(
    services: Services, topic: str, positions: dict[int, int], filter: Filter | None, per_second: int
) -> AsyncIterator[bytes]:
    options = services.options
    loop = asyncio.get_running_loop()
    threads = services.consumers.threads
    shown_max = max(1, round(per_second * _TICK_SECONDS))
    yield COMMENT
    opened = Reader(options.bootstrap, options.client_properties, topic, positions)
    total = scanned = 0
    try:
        while True:
            tick_s = time.monotonic()
            found = await loop.run_in_executor(threads, opened.take, _TAIL_SLICE_RECORDS, _TICK_SECONDS)
            skipped = await loop.run_in_executor(threads, opened.skip_to_end, _BEHIND_MAX) if found else 0
            sample, looked_at = await _sample(services, topic, found, filter, shown_max)
            total += len(found) + skipped
            scanned += looked_at
            data = {
                "messages": sample,
                "arrived": len(found) + skipped,
                "scanned": scanned,
                "total": total,
                "filter_errors": filter.errors if filter else 0,
                "filter_error": filter.first_error if filter else "",
            }
            yield event(data, "messages")
            await asyncio.sleep(max(0.0, _TICK_SECONDS - (time.monotonic() - tick_s)))
    finally:
        await loop.run_in_executor(threads, opened.close)


async def _sample(
    services: Services, topic: str, found: list[Any], filter: Filter | None, shown_max: int
) -> tuple[list[ShownMessage], int]:
    """The newest that pass, newest first, and how many were looked at for them."""
    until_s = time.monotonic() + _FILTER_SECONDS_PER_TICK
    sample: list[ShownMessage] = []
    looked_at = 0
    step = shown_max if filter is None else 200
    for end in range(len(found), 0, -step):
        part = found[max(0, end - step) : end]
        decode = await decoder_for(services.values, [one.value() for one in part] + [one.key() for one in part])
        for one in reversed(part):
            looked_at += 1
            seen = shown(one, decode)
            if filter is None or filter.passes(topic, seen):
                sample.append(seen)
        if len(sample) >= shown_max or time.monotonic() > until_s:
            break
        # Others want their turn between two pieces.
        await asyncio.sleep(0)
    return sample[:shown_max], looked_at


ROUTES = [
    Route("/api/topics/{topic}/messages", messages, methods=["GET"]),
    Route("/api/topics/{topic}/tail", tail, methods=["GET"]),
]
