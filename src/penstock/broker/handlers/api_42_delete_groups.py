"""DeleteGroups (key 42), versions 0-2.

Groups without members, with all their offsets; NON_EMPTY_GROUP for the others.
"""

from typing import Any

from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask_each
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    group_ids = list(dict.fromkeys(request.groups_names))
    results = await ask_each(
        broker,
        context,
        group_ids,
        GroupShard.delete_groups,
        share=lambda positions: Struct(groups_names=[group_ids[position] for position in positions]),
        refuse=lambda position, code: Struct(group_id=group_ids[position], error_code=code),
        answers_of=lambda answer: answer.results,
    )
    return Struct(results=results)


API = Api(42, "DeleteGroups", 0, 2, handle)
