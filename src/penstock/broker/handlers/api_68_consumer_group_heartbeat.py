"""ConsumerGroupHeartbeat (key 68), versions 0-1 (KIP-848).

The one request of the new group protocol: join, leave, report what is owned, hear what to own. Subscriptions by name or
by a regular expression that the broker resolves (version 1).
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    try:
        return await ask(broker, context, request.group_id, GroupShard.consumer_group_heartbeat, request)
    except Refused as refused:
        return Struct(error_code=refused.code, error_message=refused.message)


API = Api(68, "ConsumerGroupHeartbeat", 0, 1, handle)
