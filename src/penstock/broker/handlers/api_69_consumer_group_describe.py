"""ConsumerGroupDescribe (key 69), versions 0-1 (KIP-848).

Groups of the new protocol: epochs, members, what they own and what they are to own. Why a member was last put out
stands in the error message of a group that has no error; clients that know nothing of it do not look there.
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
        request.group_ids,
        telling_evictions(GroupShard.consumer_group_describe),
        share=lambda positions: Struct(group_ids=[request.group_ids[position] for position in positions]),
        refuse=lambda position, code: Struct(group_id=request.group_ids[position], error_code=code),
        answers_of=lambda answer: answer.groups,
    )
    tell_operations(groups, request)
    return Struct(groups=groups)


API = Api(69, "ConsumerGroupDescribe", 0, 1, handle)
