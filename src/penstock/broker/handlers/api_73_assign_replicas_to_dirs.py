"""AssignReplicasToDirs (key 73), version 0.

For brokers: one with several directories says where its replicas are (KIP-858). Ours have one, and need not ask.
"""

import uuid
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.directories import DirectoryAssignment
from penstock.protocol.messages import Struct

_NONE = uuid.UUID(int=0)


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    requested = [
        DirectoryAssignment(directory.id or _NONE, topic.topic_id or _NONE, partition.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    try:
        errors = await broker.decide(
            lambda controller: controller.assign_directories(request.broker_id, request.broker_epoch, requested)
        )
    except Refused as refused:
        return Struct(error_code=refused.code, directories=[])
    outcomes = iter(errors)
    directories = [
        Struct(
            id=directory.id,
            topics=[
                Struct(
                    topic_id=topic.topic_id,
                    partitions=[
                        Struct(partition_index=partition.partition_index, error_code=next(outcomes))
                        for partition in topic.partitions
                    ],
                )
                for topic in directory.topics
            ],
        )
        for directory in request.directories
    ]
    return Struct(error_code=ErrorCode.none, directories=directories)


API = Api(73, "AssignReplicasToDirs", 0, 0, handle, is_for_brokers=True)
