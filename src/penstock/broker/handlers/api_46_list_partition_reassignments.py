"""ListPartitionReassignments (key 46), version 0.

The moves of replicas that are under way: of the partitions named, or of all.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.reassignments import OngoingReassignment
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    asked = None
    if request.topics is not None:
        asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    try:
        # What it tells of may not be committed yet: so it waits like a decision.
        ongoing = await broker.decide(lambda controller: Decision(controller.list_reassignments(asked)))
    except Refused as refused:
        return Struct(error_code=refused.code, error_message=refused.message)
    by_topic: dict[str, list[OngoingReassignment]] = {}
    for one in ongoing:
        by_topic.setdefault(one.topic, []).append(one)
    topics = [Struct(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]
    return Struct(error_code=ErrorCode.none, topics=topics)


API = Api(46, "ListPartitionReassignments", 0, 0, handle, on_controller=True)
