"""Heartbeat (key 12), versions 0-4.

A member is alive, and hears of a rebalance by REBALANCE_IN_PROGRESS.
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    try:
        return await ask(broker, context, request.group_id, GroupShard.heartbeat, request)
    except Refused as refused:
        return Struct(error_code=refused.code)


API = Api(12, "Heartbeat", 0, 4, handle)
