"""OffsetCommit (key 8), versions 2-10.

Commits survive kill -9 and, on a topic with one replica, a power cut: the answer waits for the disk. Topics go by id
from version 10 on (KIP-848 clients by member epoch).
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask, without_empty_topics
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    try:
        return without_empty_topics(await ask(broker, context, request.group_id, GroupShard.offset_commit, request))
    except Refused as refused:
        return _refuse(request, refused.code)


def _refuse(request: Any, code: ErrorCode) -> Struct:
    return Struct(
        topics=[
            Struct(
                name=getattr(topic, "name", ""),
                topic_id=getattr(topic, "topic_id", None),
                partitions=[
                    Struct(partition_index=partition.partition_index, error_code=code) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(8, "OffsetCommit", 2, 10, handle)
