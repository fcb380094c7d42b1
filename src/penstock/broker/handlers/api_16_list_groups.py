"""ListGroups (key 16), versions 0-5.

All groups of this node, by state (KIP-518) and by type (KIP-848) if asked for.
"""

import asyncio
from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import caller
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    who = caller(context)
    try:
        answers = await asyncio.gather(
            *(
                runner.handle(lambda shard, token, now_ms: shard.list_groups(token, request, who, now_ms))
                for runner in broker.groups.shards.all()
            )
        )
    except Refused as refused:
        return Struct(error_code=refused.code)
    return Struct(groups=[group for answer in answers for group in answer.groups])


API = Api(16, "ListGroups", 0, 5, handle)
