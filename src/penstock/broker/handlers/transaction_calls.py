"""How the handlers of transactional requests reach the coordinator."""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api import Broker, RequestContext
from penstock.broker.handlers.group_calls import caller
from penstock.coordinator import requests
from penstock.coordinator.effects import Effect
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.protocol.messages import Struct

Method = Callable[[TransactionShard, int, Any, requests.RequestContext, int], list[Effect]]


async def ask(broker: Broker, context: RequestContext, transactional_id: str, method: Method, request: Any) -> Struct:
    """The answer of the shard that has the id. Raises Refused."""
    who = caller(context)
    runner = broker.transactions.shards.runner_of(transactional_id)
    return await runner.handle(lambda shard, token, now_ms: method(shard, token, request, who, now_ms))


def fenced_as_known(error: ErrorCode, *, is_known: bool) -> ErrorCode:
    """Older clients know a fenced producer by another name (KIP-588)."""
    return ErrorCode.invalid_producer_epoch if error == ErrorCode.producer_fenced and not is_known else error
