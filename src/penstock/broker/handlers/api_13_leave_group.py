"""LeaveGroup (key 13), versions 0-5.

One member up to version 2, several from 3 on, by member id or by instance id (KIP-345); with a reason from 5 on.
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    try:
        return await ask(broker, context, request.group_id, GroupShard.leave_group, request)
    except Refused as refused:
        return Struct(error_code=refused.code)


API = Api(13, "LeaveGroup", 0, 5, handle)
