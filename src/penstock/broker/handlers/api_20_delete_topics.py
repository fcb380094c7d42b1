"""DeleteTopics (key 20), versions 1-6.

By name, or from version 6 by id (KIP-516). Where `delete.topic.enable` is false every topic is refused with
TOPIC_DELETION_DISABLED, which versions before 3 know as INVALID_REQUEST. The answer leaves when the topic is gone from
the metadata log on the disk; its files go later.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.topics import DeletedTopic
from penstock.protocol.messages import Struct

_VERSION_WITH_TOPIC_IDS = 6
_VERSION_WITH_DELETION_DISABLED = 3


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if context.version >= _VERSION_WITH_TOPIC_IDS:
        topics = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        topics = [(name, None) for name in request.topic_names]
    try:
        answer = await broker.decide(lambda controller: controller.delete_topics(topics))
    except Refused as refused:
        answer = [DeletedTopic(name, topic_id, refused.code, refused.message) for name, topic_id in topics]
    if context.version < _VERSION_WITH_DELETION_DISABLED and not broker.settings["delete.topic.enable"]:
        answer = [DeletedTopic(topic.name, topic.topic_id, ErrorCode.invalid_request) for topic in answer]
    return Struct(responses=answer)


API = Api(20, "DeleteTopics", 1, 6, handle, on_controller=True)
