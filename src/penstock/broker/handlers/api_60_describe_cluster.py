"""DescribeCluster (key 60), versions 0-2.

The brokers clients can use; from version 2 also the fenced ones, if asked for (KIP-1073). This is a broker's listener:
a question for the controllers (KIP-919) gets MISMATCHED_ENDPOINT_TYPE.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.partition_view import CLUSTER_OPERATIONS, NO_OPERATIONS
from penstock.protocol.messages import Struct

_BROKERS = 1
_CONTROLLERS = 2


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    endpoint_type = getattr(request, "endpoint_type", _BROKERS)
    if endpoint_type == _CONTROLLERS:
        return _refuse(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != _BROKERS:
        return _refuse(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}")
    with_fenced = getattr(request, "include_fenced_brokers", False)
    brokers = []
    for other in sorted(broker.image.brokers.values(), key=lambda other: other.id):
        if with_fenced or not other.fenced:
            host, port, rack = broker.endpoint_for(context, other.id)
            brokers.append(Struct(broker_id=other.id, host=host, port=port, rack=rack, is_fenced=other.fenced))
    return Struct(
        error_code=ErrorCode.none,
        endpoint_type=_BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        brokers=brokers,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NO_OPERATIONS,
    )


def _refuse(error_code: ErrorCode, message: str) -> Struct:
    return Struct(error_code=error_code, error_message=message, controller_id=-1)


API = Api(60, "DescribeCluster", 0, 2, handle)
