"""AlterConfigs (key 33), versions 0-2.

Replaces all the settings of a topic, broker or group by those in the request; what is not named goes back to its
default. Superseded by IncrementalAlterConfigs, and decided by the same rules (penstock.cluster.metadata.configs).
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
            [Change(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    try:
        answer = await broker.decide(
            lambda controller: controller.alter_configs(resources, validate_only=request.validate_only)
        )
    except Refused as refused:
        answer = [AlteredResource(r.resource_type, r.resource_name, refused.code, refused.message) for r in resources]
    return Struct(responses=answer)


API = Api(33, "AlterConfigs", 0, 2, handle, on_controller=True)
