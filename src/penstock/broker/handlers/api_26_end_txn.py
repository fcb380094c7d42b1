"""EndTxn (key 26), versions 0-5.

The answer leaves when the decision is on the disk; the markers follow. From version 5 on every end gives the producer a
new epoch, and at the end of the epochs a new id (KIP-890), which the answer tells.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.transaction_calls import ask, fenced_as_known
from penstock.coordinator.transaction.ending import refused
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.protocol.messages import Struct

_FENCED_KNOWN_FROM = 2


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if not request.transactional_id:
        return refused(ErrorCode.invalid_request)
    try:
        answer = await ask(broker, context, request.transactional_id, TransactionShard.end_txn, request)
    except Refused as problem:
        return refused(problem.code)
    answer.error_code = fenced_as_known(answer.error_code, is_known=context.version >= _FENCED_KNOWN_FROM)
    return answer


API = Api(26, "EndTxn", 0, 5, handle)
