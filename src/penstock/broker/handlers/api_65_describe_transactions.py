"""DescribeTransactions (key 65), version 0.

What the coordinator knows of each id (KIP-664). Of a transaction whose end is decided, the partitions that still wait
for their marker.
"""

import asyncio
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.transaction_calls import ask
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.coordinator.transaction.views import not_described
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    states = await asyncio.gather(*(_describe(broker, context, one) for one in request.transactional_ids))
    return Struct(transaction_states=states)


async def _describe(broker: Broker, context: RequestContext, transactional_id: str) -> Struct:
    if not transactional_id:
        return not_described(transactional_id, ErrorCode.invalid_request)
    asked = Struct(transactional_ids=[transactional_id])
    try:
        answer = await ask(broker, context, transactional_id, TransactionShard.describe_transactions, asked)
    except Refused as refused:
        return not_described(transactional_id, refused.code)
    (state,) = answer.transaction_states
    described: Struct = state
    return described


API = Api(65, "DescribeTransactions", 0, 0, handle)
