"""CreatePartitions (key 37), versions 0-3.

`count` is the new total, never fewer than there are. Replicas go where the request says, or where the controller puts
them. A count out of all reason is refused with POLICY_VIOLATION before anything is allocated, as in CreateTopics.
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.topics import MorePartitions, PartitionsResult
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    topics = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]
    try:
        answer = await broker.decide(
            lambda controller: controller.create_partitions(topics, validate_only=request.validate_only)
        )
    except Refused as refused:
        answer = [PartitionsResult(topic.name, refused.code, refused.message) for topic in topics]
    return Struct(results=answer)


API = Api(37, "CreatePartitions", 0, 3, handle, on_controller=True)
