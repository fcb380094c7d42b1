"""BrokerHeartbeat (key 63), versions 0-2.

For brokers: one that lives says so, how far it has read the metadata, and whether it wants to stop. Version 2 can name
directories that take no new partitions; we have one directory per node, and nothing to choose.
"""

from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.brokers import Heartbeat
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    heartbeat = Heartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        offline_log_dirs=getattr(request, "offline_log_dirs", ()),
    )
    if context.connection is not None:
        broker.controller.watch_connection(context.connection, request.broker_id, request.broker_epoch)
    now_ms = broker.clock.monotonic_ms()
    try:
        answer = await broker.decide(lambda controller: controller.heartbeat(heartbeat, now_ms))
    except Refused as refused:
        return Struct(error_code=refused.code, is_caught_up=False, is_fenced=True, should_shut_down=False)
    return Struct(
        error_code=answer.error_code,
        is_caught_up=answer.is_caught_up,
        is_fenced=answer.is_fenced,
        should_shut_down=answer.should_shut_down,
    )


API = Api(63, "BrokerHeartbeat", 0, 2, handle, is_for_brokers=True)
