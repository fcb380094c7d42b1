"""UnregisterBroker (key 64), version 0.

Forgets a broker that will not come back. Its replicas stay assigned to it until they are moved.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    try:
        await broker.decide(lambda controller: controller.unregister_broker(request.broker_id))
    except Refused as refused:
        return Struct(error_code=refused.code, error_message=refused.message)
    return Struct(error_code=ErrorCode.none)


API = Api(64, "UnregisterBroker", 0, 0, handle, on_controller=True)
