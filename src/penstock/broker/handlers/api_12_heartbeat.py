"""Heartbeat (key 12), versions 0-4.

A member is alive, and hears of a rebalance by REBALANCE_IN_PROGRESS. While the coordinator is being loaded it hears
that all is well, as in Kafka: Java's consumers do not know what else that might mean.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.handlers.member_calls import member_api
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


def _refuse(version: int, request: Any, refused: Refused) -> Struct:
    is_loading = refused.code == ErrorCode.coordinator_load_in_progress
    return Struct(error_code=ErrorCode.none if is_loading else refused.code)


API = member_api(12, "Heartbeat", 0, 4, GroupShard.heartbeat, _refuse)
