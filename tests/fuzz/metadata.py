"""Files of a node's metadata, changed, and then the node started on them.

It starts, or refuses to with one of the errors that a disk has. With a damaged snapshot it may not start as if topics
had been deleted.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from functools import cache
from uuid import UUID

from penstock.base.errors import Refused
from penstock.base.ports import DiskError
from penstock.base.settings import NodeSettings
from penstock.broker.broker import Broker, Identity
from penstock.broker.ports import SystemClock, SystemRandom
from penstock.broker.router import Router
from penstock.cluster.raft.stored_log import DIRECTORY
from penstock.log.checkpoints import BadCheckpoint
from penstock.testing.sim_disk import SimDisk
from tests.conformance.wire import CREATE_TOPICS, create_topic_of, decode_answer, request_payload
from tests.fuzz.files import Files, bounded, contents, disk_with
from tests.fuzz.mutation import mutated

_TOLD = (DiskError, BadCheckpoint, Refused)
_START_SECONDS_MAX = 60
_CREATE_TOPICS_VERSION = 7
_HOST, _PORT = "127.0.0.1", 1
TOPICS = tuple(f"topic-{number}" for number in range(6))


@contextlib.asynccontextmanager
async def _node(disk: SimDisk) -> AsyncIterator[Broker]:
    settings = {
        "node.id": "1",
        "metadata.log.max.record.bytes.between.snapshots": "200",
    }
    broker = Broker(
        Identity(1, "fuzzed", UUID(int=1 << 64)),
        data_directory="/",
        settings=NodeSettings(settings),
        disk=disk,
        clock=SystemClock(),
        random=SystemRandom(),
    )
    Router(broker)
    try:
        broker.join_quorum(_HOST, _PORT)
        async with asyncio.timeout(_START_SECONDS_MAX):
            await broker.start(_HOST, _PORT)
        yield broker
    finally:
        # Not all of it may have begun.
        with contextlib.suppress(AttributeError, *_TOLD):
            broker.stop()
        broker.group_commit.stop()


@cache
def good_metadata() -> Files:
    """Snapshots and the log behind them."""
    disk = SimDisk()

    async def make() -> None:
        async with _node(disk) as broker:
            for name in TOPICS:
                payload = request_payload(CREATE_TOPICS, _CREATE_TOPICS_VERSION, create_topic_of(name, 2))
                answer = decode_answer(CREATE_TOPICS, _CREATE_TOPICS_VERSION, await broker.answer_frame(payload))
                assert answer.topics[0].error_code == 0

            while not any(name.endswith(".checkpoint") for name in disk.list(DIRECTORY)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(make())
    return contents(disk)


class _Told(logging.Handler):
    """Ends the start of a node that has said that its metadata is of no use: it would wait for people."""

    start: "asyncio.Task[object] | None" = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.CRITICAL and self.start is not None:
            self.start.cancel()


def try_damaged_metadata(chance: random.Random) -> None:
    """One case. Raises whatever a start may not raise."""
    files = dict(good_metadata())
    path = chance.choice(sorted(name for name in files if name.startswith(DIRECTORY)))
    files[path] = mutated(files[path], chance, others=files[path])
    disk = disk_with(files)
    problems: list[str] = []

    told = _Told()

    async def start() -> set[str]:
        told.start = asyncio.current_task()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(str(context)))
        async with _node(disk) as broker:
            return {topic.name for topic in broker.image.topics.values()}

    found: set[str] | None = None
    logging.getLogger("penstock").addHandler(told)
    try:
        with bounded(10), contextlib.suppress(*_TOLD, asyncio.CancelledError):
            found = asyncio.run(start())
    except TimeoutError:
        raise AssertionError(f"with a damaged {path} it waits, and does not say for what: {problems}") from None
    finally:
        logging.getLogger("penstock").removeHandler(told)
    assert not problems, f"with a damaged {path}: {problems}"
    if found is not None and path.endswith(".checkpoint"):
        assert found >= set(TOPICS), f"with a damaged {path} there are only {sorted(found)}"
