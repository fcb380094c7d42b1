"""InitProducerId (key 22), versions 0-5.

For an idempotent producer (no transactional id): a producer id that nobody was given before, with epoch 0. The id and
epoch that a client says it has (KIP-360) matter only to transactions; here it gets a new id, as from Kafka.

Not here yet: transactions. A transactional id is answered with COORDINATOR_NOT_AVAILABLE, which clients retry until
they give up; an empty one with INVALID_REQUEST. Version 6 (two-phase commit, KIP-939), which Kafka 4.3 does not offer
by default either, comes with them.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.protocol.messages import Struct

_NO_PRODUCER_ID = -1
_NO_PRODUCER_EPOCH = -1


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if request.transactional_id is not None:
        return _refuse(ErrorCode.coordinator_not_available if request.transactional_id else ErrorCode.invalid_request)
    producer_id = getattr(request, "producer_id", _NO_PRODUCER_ID)
    producer_epoch = getattr(request, "producer_epoch", _NO_PRODUCER_EPOCH)
    if (producer_id == _NO_PRODUCER_ID) != (producer_epoch == _NO_PRODUCER_EPOCH):
        return _refuse(ErrorCode.invalid_request)
    try:
        return Struct(error_code=ErrorCode.none, producer_id=await broker.next_producer_id(), producer_epoch=0)
    except Refused as refused:
        return _refuse(refused.code)


def _refuse(error_code: ErrorCode) -> Struct:
    return Struct(error_code=error_code, producer_id=_NO_PRODUCER_ID, producer_epoch=_NO_PRODUCER_EPOCH)


API = Api(22, "InitProducerId", 0, 5, handle)
