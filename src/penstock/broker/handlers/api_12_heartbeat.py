"""Heartbeat (key 12), versions 0-4.

A member is alive, and hears of a rebalance by REBALANCE_IN_PROGRESS.
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.handlers.member_calls import member_api
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


def _refuse(version: int, request: Any, refused: Refused) -> Struct:
    return Struct(error_code=refused.code)


API = member_api(12, "Heartbeat", 0, 4, GroupShard.heartbeat, _refuse)
