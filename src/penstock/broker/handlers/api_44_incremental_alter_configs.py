"""IncrementalAlterConfigs (key 44), versions 0-1 (KIP-339).

SET, DELETE, and for lists APPEND and SUBTRACT; what is not named stays. A resource is altered as a whole or not at all.
Topics, one broker, all brokers (the one named ""), groups. Broker loggers and client metrics cannot be altered.
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.configs import AlteredResource, Change, ResourceChanges
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    resources = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [Change(config.name, config.value, config.config_operation) for config in resource.configs],
        )
        for resource in request.resources
    ]
    try:
        answer = await broker.decide(
            lambda controller: controller.incremental_alter_configs(resources, validate_only=request.validate_only)
        )
    except Refused as refused:
        answer = [AlteredResource(r.resource_type, r.resource_name, refused.code, refused.message) for r in resources]
    return Struct(responses=answer)


API = Api(44, "IncrementalAlterConfigs", 0, 1, handle, on_controller=True)
