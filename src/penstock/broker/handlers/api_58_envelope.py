"""Envelope (key 58), version 0: a client's request that another node passes on to the active controller."""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api import Api, Broker, RequestContext
from penstock.protocol.messages import Malformed, Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if not broker.controller.is_active:
        return Struct(response_data=None, error_code=ErrorCode.not_controller)
    try:
        return Struct(response_data=await broker.answer_frame(bytes(request.request_data)), error_code=ErrorCode.none)
    except Malformed:
        return Struct(response_data=None, error_code=ErrorCode.invalid_request)


API = Api(58, "Envelope", 0, 0, handle, is_for_brokers=True)
