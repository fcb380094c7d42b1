"""How long the event loop is kept by looking at 1,000 partitions for what is due: python -m bench.retention_scan.

In a process of its own, on a broker without clients. Every partition has two segments and nothing is due, which is how
it nearly always is. Prints the median of several looks.
"""

import asyncio
import json
import sys
import tempfile
import time
from statistics import median
from uuid import UUID

from penstock.base.settings import NodeSettings
from penstock.broker.broker import Broker, Identity
from penstock.broker.ports import RealDisk, SystemClock, SystemRandom
from penstock.broker.router import Router
from penstock.cluster.metadata.topics import NewTopic
from penstock.protocol.records import Record, build_batch

PARTITIONS = 1000
_LOOKS = 7


def command() -> list[str]:
    return [sys.executable, "-m", "bench.retention_scan"]


async def scan(directory: str) -> float:
    """Milliseconds of this process's CPU, which has one thread at work."""
    broker = Broker(
        Identity(1, "bench", UUID(int=1 << 64)),
        data_directory=directory,
        settings=NodeSettings({"node.id": "1"}),
        disk=RealDisk(directory),
        clock=SystemClock(),
        random=SystemRandom(),
    )
    # It asks itself through the router.
    Router(broker)
    broker.join_quorum("127.0.0.1", 1)
    await broker.start("127.0.0.1", 1)
    topic = NewTopic("many", PARTITIONS, 1)
    await broker.decide(lambda controller: controller.create_topics([topic]))
    now_ms = SystemClock().now_ms()
    for partition in broker.topics_by_name[b"many"].values():
        for _ in range(2):
            partition.append_own(build_batch([Record(0, now_ms, b"key", b"value")]), now_ms)
            partition.log.roll(now_ms)
    looks = []
    for _ in range(_LOOKS):
        started_s = time.process_time()
        await broker.log_keeper.drop_what_is_due()
        looks.append((time.process_time() - started_s) * 1000)
    broker.stop()
    return median(looks)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps({"milliseconds": asyncio.run(scan(directory))}))


if __name__ == "__main__":
    main()
