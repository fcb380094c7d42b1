"""Requests of real clients, changed, against a node within this process: server, router and handlers as they are in a
node's own process, clients and node on one event loop.

What may come back is an answer of the right shape without UNKNOWN_SERVER_ERROR, the end of the connection, or nothing
yet, where a request may wait. Stalls are measured in processor time: how busy the machine is does not count.

Some of it makes topics, rightly, and sometimes of thousands of partitions. These are deleted now and then, so that what
they take is no growth, and answers that name them all do not take the time of the others.
"""

import asyncio
import gc
import itertools
import logging
import random
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from penstock.broker.node import NodeConfig, serve
from penstock.protocol.messages import Struct
from penstock.protocol.schema import kind_of
from tests.conformance.wire import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    PRODUCE,
    create_topic_of,
    decode_answer,
    request_payload,
)
from tests.fuzz.corpus import recorded_frames
from tests.fuzz.mutation import mutated

STALL_MS_MAX = 200
GROWTH_BYTES_MAX = 64 << 20
_CLIENTS = 24
_FRAMES_OF_A_CONNECTION = 50
_WAIT_SECONDS = 0.25
_CORRELATION_AT = 4
_BEAT_SECONDS = 0.01
_HEADER_BYTES = 8
_CREATE_PARTITIONS = 37
_FRAMES_BETWEEN_TIDYING = 1000
_TIDYING_SECONDS_MAX = 60
_PING_NUMBER = b"\xff\xff\xff\xff"
_PING_PAYLOAD = request_payload(API_VERSIONS, 0, Struct(), correlation_id=-1)
_PING = len(_PING_PAYLOAD).to_bytes(4) + _PING_PAYLOAD
_HOST = "127.0.0.1"
_SETTINGS = {
    "log.flush.mode": "none",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Nonsense has no limits: names and ids that clients make up would fill the memory rightly.
    "max.incremental.fetch.session.cache.slots": "100",
}


@dataclass
class FrameFigures:
    frames: int = 0
    answers: int = 0
    closed: int = 0
    waiting: int = 0
    stall_ms_max: float = 0.0
    growth_bytes: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(text)


class _Listener(logging.Handler):
    """What a node logs as a defect of its own is a finding."""

    def __init__(self, figures: FrameFigures) -> None:
        super().__init__(logging.ERROR)
        self._figures = figures

    def emit(self, record: logging.LogRecord) -> None:
        self._figures.problem(f"logged: {self.format(record)}")


async def fire(seed: int, *, frames: int, seconds_max: float) -> FrameFigures:
    """Until there were so many frames, or the time is up."""
    figures = FrameFigures()
    listener = _Listener(figures)
    logging.getLogger("penstock").addHandler(listener)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: figures.problem(f"unhandled: {context}"))
    ready: asyncio.Future[str] = loop.create_future()
    stopped = asyncio.Event()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        config = NodeConfig(1, str(Path(directory) / "node-1"), _HOST, 0, _SETTINGS)
        # As in a process of its own: what is measured are the node's stalls, not those of pytest's garbage.
        node = loop.create_task(serve(config, ready.set_result, stopped, owns_process=True))
        port = int((await ready).rpartition(":")[2])
        beat = loop.create_task(_measure_stalls(figures))
        firing = _Firing(port, random.Random(seed), figures, frames, time.monotonic() + seconds_max)
        try:
            await firing.run()
        finally:
            beat.cancel()
            stopped.set()
            await node
            logging.getLogger("penstock").removeHandler(listener)
    return figures


async def _measure_stalls(figures: FrameFigures) -> None:
    while True:
        before_s = time.thread_time()
        await asyncio.sleep(_BEAT_SECONDS)
        figures.stall_ms_max = max(figures.stall_ms_max, (time.thread_time() - before_s) * 1000)


class _Firing:
    def __init__(
        self, port: int, chance: random.Random, figures: FrameFigures, frames_max: int, deadline_s: float
    ) -> None:
        self._port, self._chance, self._figures = port, chance, figures
        self._frames_max, self._deadline_s = frames_max, deadline_s
        self._corpus = [frame for _, frame in recorded_frames()]
        self._all = b"".join(self._corpus)
        self._numbers = itertools.count(1)
        # As they were at first: names and how many partitions.
        self._topics: dict[str, int] = {}
        self._tidy_at = _FRAMES_BETWEEN_TIDYING

    async def run(self) -> None:
        await self._warm_up()
        self._topics = await self._list_topics()
        gc.collect()
        before_bytes = resident_bytes()
        started_s = time.monotonic()
        self._figures.stall_ms_max = 0.0
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CLIENTS):
                tasks.create_task(self._fire())
        self._figures.seconds = time.monotonic() - started_s
        gc.collect()
        self._figures.growth_bytes = resident_bytes() - before_bytes

    async def _warm_up(self) -> None:
        """What a first use of each kind of request costs (schemas are read then) is not growth."""
        for frame in self._corpus:
            await self._connection([frame])
        self._figures.frames = self._figures.answers = self._figures.closed = self._figures.waiting = 0

    async def _fire(self) -> None:
        while self._figures.frames < self._frames_max and time.monotonic() < self._deadline_s:
            if self._figures.frames >= self._tidy_at:
                self._tidy_at += _FRAMES_BETWEEN_TIDYING
                try:
                    await self._tidy()
                except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as problem:
                    self._figures.problem(f"requests in which nothing was wrong were not answered: {problem!r}")
            await self._connection(self._frame() for _ in range(_FRAMES_OF_A_CONNECTION))

    async def _tidy(self) -> None:
        """Topics are again as they were at first."""
        made = await self._list_topics()
        changed = [name for name, partitions in made.items() if self._topics.get(name) != partitions]
        if changed:
            topics = [Struct(name=name, topic_id=None) for name in changed]
            await self._ask(DELETE_TOPICS, 6, Struct(topics=topics, timeout=_TIDYING_SECONDS_MAX * 1000))
        for name, partitions in self._topics.items():
            if name not in made or name in changed:
                await self._ask(CREATE_TOPICS, 7, create_topic_of(name, partitions))

    async def _list_topics(self) -> dict[str, int]:
        """Those of clients."""
        answer = await self._ask(METADATA, 12, Struct(topics=None, allow_auto_topic_creation=False))
        return {topic.name: len(topic.partitions) for topic in answer.topics if not topic.is_internal}

    async def _ask(self, api_key: int, version: int, body: Struct) -> Any:
        """The answer to a request in which nothing is wrong."""
        payload = request_payload(api_key, version, body)
        async with asyncio.timeout(_TIDYING_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(_HOST, self._port)
            try:
                writer.write(len(payload).to_bytes(4) + payload)
                return decode_answer(api_key, version, await self._answer(reader))
            finally:
                writer.transport.abort()

    def _frame(self) -> bytes:
        """Mostly the body is changed: a wrong key or version is soon refused. Requests that make and delete topics stay
        about the one there is, for what clients may rightly make without end is no finding."""
        chance = self._chance
        frame = chance.choice(self._corpus)
        if int.from_bytes(frame[:2]) in (CREATE_TOPICS, DELETE_TOPICS, _CREATE_PARTITIONS) and chance.random() < 0.9:
            frame = chance.choice(self._corpus)
        return mutated(frame, chance, 0 if chance.random() < 0.05 else _HEADER_BYTES, self._all)

    async def _connection(self, frames: Iterable[bytes]) -> None:
        """Sends one after the other, as long as the node does not close."""
        figures = self._figures
        try:
            reader, writer = await asyncio.open_connection(_HOST, self._port)
        except OSError as problem:
            figures.problem(f"nobody listens: {problem}")
            raise
        try:
            for frame in frames:
                number = next(self._numbers).to_bytes(4)
                asked = frame[:_CORRELATION_AT] + number + frame[_HEADER_BYTES:]
                # Some writes get no answer of their own.
                ping = _PING if int.from_bytes(asked[:2]) == PRODUCE else b""
                writer.write(len(asked).to_bytes(4) + asked + ping)
                figures.frames += 1
                async with asyncio.timeout(_WAIT_SECONDS):
                    while (answer := await self._answer(reader))[:4] != _PING_NUMBER:
                        self._check(asked, answer)
                        if not ping:
                            break
        except TimeoutError:
            figures.waiting += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            figures.closed += 1
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        size = int.from_bytes(await reader.readexactly(4))
        return await reader.readexactly(size)

    def _check(self, asked: bytes, answer: bytes) -> None:
        figures = self._figures
        figures.answers += 1
        if asked[_CORRELATION_AT:_HEADER_BYTES] != answer[:4]:
            figures.problem(f"{asked.hex()} was answered by another's answer: {answer[:40].hex()}")
            return
        api_key, version = int.from_bytes(asked[:2]), int.from_bytes(asked[2:4])
        try:
            decoded = decode_answer(api_key, version, answer)
        except Exception as problem:
            # Of an ApiVersions that is newer than ours, the answer is of version 0.
            if api_key != API_VERSIONS:
                figures.problem(f"{asked.hex()} was answered by what is no answer: {problem!r}")
            return
        if _has_unknown_error(decoded):
            figures.problem(f"{asked.hex()} was answered by UNKNOWN_SERVER_ERROR")


def _has_unknown_error(message: Any) -> bool:
    if getattr(message, "error_code", 0) == -1:
        return True
    entity: type = type(message)
    for name in _names_of_parts(entity):
        found = getattr(message, name)
        parts = found if isinstance(found, tuple) else (found,)
        if any(part is not None and _has_unknown_error(part) for part in parts):
            return True
    return False


@cache
def _names_of_parts(entity: type) -> list[str]:
    """Of the fields that hold other messages."""
    return [field.name for field in fields(entity) if kind_of(field).is_struct]


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")
