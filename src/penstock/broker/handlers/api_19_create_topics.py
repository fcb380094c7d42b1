"""CreateTopics (key 19), versions 2-7.

The controller decides (penstock.cluster.metadata.topics has the checks). The answer leaves when the new topics are in
the metadata log and on the disk, so the timeout of the request is never needed. -1 for the number of partitions or
replicas means the broker's default (KIP-464); versions 5 and later answer with the settings in force (KIP-525), version
7 with the topic id. There is no create policy, and no controller mutation quota (KIP-599): nothing is ever throttled.
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.topics import CreatedTopic, NewTopic
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    topics = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
            [(config.name, config.value) for config in topic.configs],
        )
        for topic in request.topics
    ]
    try:
        answer = await broker.decide(
            lambda controller: controller.create_topics(topics, validate_only=request.validate_only)
        )
    except Refused as refused:
        answer = [CreatedTopic(topic.name, refused.code, refused.message) for topic in topics]
    return Struct(topics=answer)


API = Api(19, "CreateTopics", 2, 7, handle, on_controller=True)
