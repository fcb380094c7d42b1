"""AllocateProducerIds (key 67), version 0.

For brokers: a block of producer ids that nobody was given before.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    try:
        block = await broker.decide(
            lambda controller: controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        )
    except Refused as refused:
        return Struct(error_code=refused.code, producer_id_start=0, producer_id_len=0)
    return Struct(error_code=ErrorCode.none, producer_id_start=block.start, producer_id_len=len(block))


API = Api(67, "AllocateProducerIds", 0, 0, handle, is_for_brokers=True)
