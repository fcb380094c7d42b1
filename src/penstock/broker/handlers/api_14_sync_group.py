"""SyncGroup (key 14), versions 0-5.

The leader brings the assignment, each member gets its own. All answers come together, once the assignment is on the
disk.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.handlers.member_calls import member_api
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct

# From here on a member must say which protocol it believes was chosen (KIP-559).
_PROTOCOL_FROM = 5


def _check(version: int, request: Any) -> Struct | None:
    if version >= _PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        return Struct(error_code=ErrorCode.inconsistent_group_protocol)
    return None


def _refuse(version: int, request: Any, refused: Refused) -> Struct:
    return Struct(error_code=refused.code)


API = member_api(14, "SyncGroup", 0, 5, GroupShard.sync_group, _refuse, _check)
