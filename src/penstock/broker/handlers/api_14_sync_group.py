"""SyncGroup (key 14), versions 0-5.

The leader brings the assignment, each member gets its own. All answers come together, once the assignment is on the
disk.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct

# From here on a member must say which protocol it believes was chosen (KIP-559).
_PROTOCOL_FROM = 5


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if context.version >= _PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        return Struct(error_code=ErrorCode.inconsistent_group_protocol)
    try:
        return await ask(broker, context, request.group_id, GroupShard.sync_group, request)
    except Refused as refused:
        return Struct(error_code=refused.code)


API = Api(14, "SyncGroup", 0, 5, handle)
