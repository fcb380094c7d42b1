"""AlterPartitionReassignments (key 45), versions 0-1.

Moves a partition's replicas, or cancels a move that is under way (KIP-455). Version 1 can forbid that their number
changes (KIP-860).
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.reassignments import ReassignedPartition, Reassignment
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    asked = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        answer = await broker.decide(
            lambda controller: controller.alter_reassignments(asked, may_change_factor=may_change_factor)
        )
    except Refused as refused:
        return Struct(
            error_code=refused.code, error_message=refused.message, allow_replication_factor_change=may_change_factor
        )
    by_topic: dict[str, list[ReassignedPartition]] = {topic.name: [] for topic in request.topics}
    for one in answer:
        by_topic[one.topic].append(one)
    return Struct(
        error_code=ErrorCode.none,
        allow_replication_factor_change=may_change_factor,
        responses=[Struct(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    )


API = Api(45, "AlterPartitionReassignments", 0, 1, handle, on_controller=True)
