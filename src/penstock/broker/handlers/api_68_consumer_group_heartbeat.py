"""ConsumerGroupHeartbeat (key 68), versions 0-1 (KIP-848).

The one request of the new group protocol: join, leave, report what is owned, hear what to own. Subscriptions by name or
by a regular expression that the broker resolves (version 1).
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.handlers.member_calls import member_api
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


def _refuse(version: int, request: Any, refused: Refused) -> Struct:
    return Struct(error_code=refused.code, error_message=refused.message)


API = member_api(68, "ConsumerGroupHeartbeat", 0, 1, GroupShard.consumer_group_heartbeat, _refuse)
