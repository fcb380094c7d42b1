"""DescribeGroups (key 15), versions 0-6.

Classic groups, with their members' metadata and assignments. A group that is not there is dead up to version 5 and
GROUP_ID_NOT_FOUND from 6 on (KIP-1043). Why a member was last put out stands in the error message of a group that has
no error, from version 6 on; clients that know nothing of it do not look there.
"""

from typing import Any

from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask_each, tell_operations, telling_evictions
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    groups = await ask_each(
        broker,
        context,
        request.groups,
        telling_evictions(GroupShard.describe_groups),
        share=lambda positions: Struct(groups=[request.groups[position] for position in positions]),
        refuse=lambda position, code: Struct(group_id=request.groups[position], error_code=code),
        answers_of=lambda answer: answer.groups,
    )
    tell_operations(groups, request)
    return Struct(groups=groups)


API = Api(15, "DescribeGroups", 0, 6, handle)
