"""ListTransactions (key 66), versions 0-2.

All transactional ids of this node (KIP-664): by state, by producer id, by the age of the transaction (KIP-994), by a
pattern of the id (KIP-1152), whose language is RE2's.
"""

import asyncio
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.coordinator.name_pattern_syntax import PatternError
from penstock.coordinator.transaction.views import TransactionFilter
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    try:
        chosen = TransactionFilter(request)
    except PatternError:
        return Struct(error_code=ErrorCode.invalid_regular_expression)
    try:
        answers = await asyncio.gather(
            *(
                runner.handle(lambda shard, token, now_ms: shard.list_transactions(token, chosen, now_ms))
                for runner in broker.transactions.shards.all()
            )
        )
    except Refused as refused:
        return Struct(error_code=refused.code)
    return Struct(
        error_code=ErrorCode.none,
        unknown_state_filters=chosen.unknown_states,
        transaction_states=[state for answer in answers for state in answer.transaction_states],
    )


API = Api(66, "ListTransactions", 0, 2, handle)
