"""LeaveGroup (key 13), versions 0-5.

One member up to version 2, several from 3 on, by member id or by instance id (KIP-345); with a reason from 5 on.
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.handlers.member_calls import member_api
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


def _refuse(version: int, request: Any, refused: Refused) -> Struct:
    return Struct(error_code=refused.code)


API = member_api(13, "LeaveGroup", 0, 5, GroupShard.leave_group, _refuse)
