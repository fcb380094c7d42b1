"""AlterPartition (key 56), versions 2-3.

For brokers: the leader of a partition proposes another ISR (KIP-497); from version 3 on with the epochs of the members
as it knows them (KIP-903).
"""

import uuid
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.alter_partition import ANY_BROKER_EPOCH, AlteredPartition, IsrProposal
from penstock.protocol.messages import Struct

_NO_TOPIC = uuid.UUID(int=0)


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    proposals = [
        IsrProposal(
            topic.topic_id or _NO_TOPIC,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            _members(partition),
            partition.leader_recovery_state,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        answer = await broker.decide(
            lambda controller: controller.alter_partitions(request.broker_id, request.broker_epoch, proposals)
        )
    except Refused as refused:
        return Struct(error_code=refused.code)
    by_topic: dict[uuid.UUID, list[AlteredPartition]] = {}
    for one in answer:
        by_topic.setdefault(one.topic_id, []).append(one)
    topics = [Struct(topic_id=topic_id, partitions=partitions) for topic_id, partitions in by_topic.items()]
    return Struct(error_code=ErrorCode.none, topics=topics)


def _members(partition: Any) -> list[tuple[int, int]]:
    if hasattr(partition, "new_isr"):
        return [(broker_id, ANY_BROKER_EPOCH) for broker_id in partition.new_isr]
    return [(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs]


API = Api(56, "AlterPartition", 2, 3, handle, is_for_brokers=True)
