"""DescribeLogDirs (key 35), versions 1-5.

There is one log directory per node. Asking for sizes opens the logs concerned, so a question about thousands of them
lets other requests pass in between.
"""

import asyncio
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import Struct

_PARTITIONS_PER_TURN = 50


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    topics = []
    opened = 0
    for name, partitions in _wanted(broker, request.topics):
        sizes = []
        for partition in partitions:
            try:
                size = partition.log.size
            except DiskError:
                size = -1
            sizes.append(Struct(partition_index=partition.index, partition_size=size))
            opened += 1
            if opened % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        topics.append(Struct(name=name, partitions=sizes))
    total_bytes, usable_bytes = broker.disk_space()
    directory = Struct(
        error_code=ErrorCode.none,
        log_dir=broker.data_directory,
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return Struct(results=[directory])


def _wanted(broker: Broker, asked: Any) -> list[tuple[str, list[Partition]]]:
    """Topics with their partitions; None asks for all, and what is not here is left out, as in Kafka."""
    if asked is None:
        return [(name.decode(), list(hosted.values())) for name, hosted in broker.topics_by_name.items()]
    wanted = []
    for topic in asked:
        hosted = broker.topics_by_name.get(topic.topic.encode())
        partitions = [] if hosted is None else [hosted[index] for index in topic.partitions if index in hosted]
        if partitions:
            wanted.append((topic.topic, partitions))
    return wanted


API = Api(35, "DescribeLogDirs", 1, 5, handle)
