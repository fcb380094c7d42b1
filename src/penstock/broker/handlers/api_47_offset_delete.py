"""OffsetDelete (key 47), version 0.

Takes back offsets of topics that no member of the group is subscribed to (KIP-496).
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask, without_empty_topics
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    try:
        return without_empty_topics(await ask(broker, context, request.group_id, GroupShard.offset_delete, request))
    except Refused as refused:
        return Struct(error_code=refused.code)


API = Api(47, "OffsetDelete", 0, 0, handle)
