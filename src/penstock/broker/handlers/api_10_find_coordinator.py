"""FindCoordinator (key 10), versions 0-6.

One key up to version 3, many from 4 on (KIP-699). The first question about a group makes `__consumer_offsets`, the
first about a transactional id `__transaction_state`. This node coordinates everything.

Not here yet: share groups, which have no coordinator so far.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.protocol.messages import Struct

_GROUP, _TRANSACTION, _SHARE = range(3)
_MANY_KEYS_FROM = 4


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    keys = request.coordinator_keys if context.version >= _MANY_KEYS_FROM else (request.key,)
    key_type = getattr(request, "key_type", _GROUP)
    refused = await _refusal(broker, key_type)
    answers = [_answer(broker, context, key_type, key, refused) for key in keys]
    # Up to version 3 the fields of the one answer stand in the message itself.
    return answers[0] if context.version < _MANY_KEYS_FROM else Struct(coordinators=answers)


def _answer(broker: Broker, context: RequestContext, key_type: int, key: str, refused: Refused | None) -> Struct:
    try:
        if refused is not None:
            raise refused
        shards = broker.groups.shards if key_type == _GROUP else broker.transactions.shards
        node_id = shards.node_of(key)
    except Refused as problem:
        return Struct(key=key, node_id=-1, host="", port=-1, error_code=problem.code, error_message=problem.message)
    host, port, _ = broker.endpoint_for(context, node_id)
    # The older versions have the name of the error here even where there is none.
    message = "NONE" if context.version < _MANY_KEYS_FROM else ""
    return Struct(key=key, node_id=node_id, host=host, port=port, error_message=message)


async def _refusal(broker: Broker, key_type: int) -> Refused | None:
    if key_type not in (_GROUP, _TRANSACTION):
        return Refused(ErrorCode.invalid_request, f"There is no coordinator of type {key_type} here.")
    try:
        await (broker.groups if key_type == _GROUP else broker.transactions).make_topic()
    except Refused as refused:
        return refused
    return None


API = Api(10, "FindCoordinator", 0, 6, handle)
