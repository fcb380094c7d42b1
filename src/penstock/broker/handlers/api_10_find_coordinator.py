"""FindCoordinator (key 10), versions 0-6.

One key up to version 3, many from 4 on (KIP-699). The first question about a group makes `__consumer_offsets`. This
node coordinates everything.

Not here yet: transactions and share groups, which have no coordinator so far.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.protocol.messages import Struct

_GROUP, _TRANSACTION, _SHARE = range(3)
_MANY_KEYS_FROM = 4


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    keys = request.coordinator_keys if context.version >= _MANY_KEYS_FROM else (request.key,)
    refused = await _refusal(broker, getattr(request, "key_type", _GROUP))
    host, port, _ = broker.endpoint_for(context, broker.node_id)
    answers = []
    for key in keys:
        if refused is None:
            # The older versions have the name of the error here even where there is none.
            message = "NONE" if context.version < _MANY_KEYS_FROM else ""
            answers.append(Struct(key=key, node_id=broker.node_id, host=host, port=port, error_message=message))
        else:
            answers.append(
                Struct(key=key, node_id=-1, host="", port=-1, error_code=refused.code, error_message=refused.message)
            )
    # Up to version 3 the fields of the one answer stand in the message itself.
    answer = answers[0] if context.version < _MANY_KEYS_FROM else Struct()
    answer.coordinators = answers
    return answer


async def _refusal(broker: Broker, key_type: int) -> Refused | None:
    if key_type == _TRANSACTION:
        return Refused(ErrorCode.coordinator_not_available, "Transactions are not served yet.")
    if key_type != _GROUP:
        return Refused(ErrorCode.invalid_request, f"There is no coordinator of type {key_type} here.")
    try:
        await broker.groups.make_topic()
    except Refused as refused:
        return refused
    return None


API = Api(10, "FindCoordinator", 0, 6, handle)
