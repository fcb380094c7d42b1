"""ControllerRegistration (key 70), version 0.

For controllers: one that starts says where it is and what it can do (KIP-919).
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    incarnation_id = request.incarnation_id
    if incarnation_id is None:
        return Struct(error_code=ErrorCode.invalid_registration, error_message="There is no incarnation id.")
    listeners = [(one.name, one.host, one.port, one.security_protocol) for one in request.listeners]
    features = [(one.name, one.min_supported_version, one.max_supported_version) for one in request.features]
    try:
        await broker.decide(
            lambda controller: controller.register_controller(
                request.controller_id, incarnation_id, listeners, features
            )
        )
    except Refused as refused:
        return Struct(error_code=refused.code, error_message=refused.message)
    return Struct(error_code=ErrorCode.none)


API = Api(70, "ControllerRegistration", 0, 0, handle, is_for_brokers=True)
