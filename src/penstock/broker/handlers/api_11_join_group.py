"""JoinGroup (key 11), versions 0-9.

The answer comes when the rebalance is decided: every member has joined, or its time is up. Static members (KIP-345),
a first round that hands out the member id (KIP-394), reasons (KIP-800), leaders that skip the assignment (KIP-814). In
a group that has moved to the new protocol, classic members take part in it (KIP-848).
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.handlers.member_calls import member_api
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


def _refuse(version: int, request: Any, refused: Refused) -> Struct:
    return Struct(
        error_code=refused.code,
        generation_id=-1,
        protocol_name=None if version >= 7 else "",
        member_id=request.member_id,
    )


API = member_api(11, "JoinGroup", 0, 9, GroupShard.join_group, _refuse)
