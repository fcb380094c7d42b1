"""BrokerRegistration (key 62), versions 0-4.

For brokers: one that starts introduces itself, and gets its epoch. From version 3 on it can say that it was shut down
cleanly (KIP-966). A foreign cluster id, the id of a living broker and missing features are refused.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.brokers import Registration
from penstock.protocol.messages import Struct

_NO_EPOCH = -1


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    log_dirs = getattr(request, "log_dirs", ())
    if request.incarnation_id is None or not log_dirs or None in log_dirs:
        return Struct(error_code=ErrorCode.invalid_registration, broker_epoch=_NO_EPOCH)
    if getattr(request, "is_migrating_zk_broker", False):
        return Struct(error_code=ErrorCode.broker_id_not_registered, broker_epoch=_NO_EPOCH)
    registration = Registration(
        broker_id=request.broker_id,
        cluster_id=request.cluster_id,
        incarnation_id=request.incarnation_id,
        listeners=[(one.name, one.host, one.port, one.security_protocol) for one in request.listeners],
        features=[(one.name, one.min_supported_version, one.max_supported_version) for one in request.features],
        rack=request.rack,
        log_dirs=log_dirs,
        previous_broker_epoch=getattr(request, "previous_broker_epoch", _NO_EPOCH),
    )
    now_ms = broker.clock.monotonic_ms()
    try:
        # A process that registers with itself knows that there is no other incarnation of it.
        is_own = context.connection is None
        epoch = await broker.decide(
            lambda controller: controller.register_broker(registration, now_ms, previous_is_gone=is_own)
        )
    except Refused as refused:
        return Struct(error_code=refused.code, broker_epoch=_NO_EPOCH)
    return Struct(error_code=ErrorCode.none, broker_epoch=epoch)


API = Api(62, "BrokerRegistration", 0, 4, handle, is_for_brokers=True)
