"""How a handler meets the broker: one declaration per API key feeds the router, ApiVersions and the support table."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from penstock.broker.broker import Broker
from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred
from penstock.protocol.fetch import Part
from penstock.protocol.messages import Struct

__all__ = ["Answer", "Api", "Broker", "HotApi", "RequestContext"]


class RequestContext(NamedTuple):
    """What a handler may want to know besides the request itself."""

    version: int
    client_id: str | None
    # None for what this node asks itself.
    connection: Connection | None

    @property
    def local_address(self) -> tuple[str, int]:
        """The address at which the client reached this node."""
        assert self.connection is not None
        return self.connection.local_address


Handle = Callable[[Broker, RequestContext, Any], Struct | Coroutine[Any, None, Struct]]
Answer = Deferred | Iterable[Part] | None
# Version, correlation id, the frame and the position of the body in it.
HandleFrame = Callable[[Broker, Connection, int, int, memoryview, int], Answer]


class Api(NamedTuple):
    """An API whose messages go through the kio seam: decoded request in, Struct out."""

    key: int
    name: str
    version_min: int
    version_max: int
    handle: Handle
    # Answered by the active controller: other nodes pass the request on to it.
    on_controller: bool = False
    # Served to the other nodes of the cluster, also before the broker is ready, and not listed to clients.
    is_for_brokers: bool = False


class HotApi(NamedTuple):
    """An API with its own codec: the frame in, parts of a frame out."""

    key: int
    name: str
    version_min: int
    version_max: int
    handle_frame: HandleFrame
