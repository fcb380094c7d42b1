"""ListConfigResources (key 74), versions 0-1 (KIP-1142).

What DescribeConfigs can be asked about. Version 0 was ListClientMetricsResources (KIP-714) and lists only those, of
which there are none here. Groups are listed once they have settings of their own.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from penstock.protocol.messages import Struct

_ALL = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if context.version == 0:
        return Struct(error_code=ErrorCode.none)
    wanted = request.resource_types or _ALL
    if not set(wanted) <= set(_ALL):
        return Struct(error_code=ErrorCode.unsupported_version)
    resources = [
        Struct(resource_name=name, resource_type=resource_type)
        for resource_type in dict.fromkeys(wanted)
        for name in _names(broker, resource_type)
    ]
    return Struct(error_code=ErrorCode.none, config_resources=resources)


def _names(broker: Broker, resource_type: int) -> list[str]:
    if resource_type == RESOURCE_TOPIC:
        return list(broker.image.topics)
    if resource_type in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(broker.image.brokers)]
    return sorted(name for kind, name in broker.image.configs if kind == resource_type)


API = Api(74, "ListConfigResources", 0, 1, handle)
