"""How the handlers of the quorum's requests reach it."""

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.base.errors import Refused
from penstock.broker.api import Broker, RequestContext
from penstock.cluster.raft.messages import read_request, refusal, write_response
from penstock.protocol.messages import Struct

Handle = Callable[[Broker, RequestContext, Any], Coroutine[Any, None, Struct]]


def asking_quorum(api_key: int) -> Handle:
    """The handler of one of its APIs."""

    async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
        return await ask_quorum(broker, api_key, request)

    return handle


async def ask_quorum(broker: Broker, api_key: int, request: Any) -> Struct:
    try:
        return write_response(await broker.quorum.ask(read_request(api_key, request)))
    except Refused as refused:
        return refusal(api_key, request, refused.code)
