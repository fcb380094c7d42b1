"""InitProducerId (key 22), versions 0-6.

For an idempotent producer (no transactional id): a producer id that nobody was given before, with epoch 0. The id and
epoch that a client says it has (KIP-360) matter only to transactions; here it gets a new id, as from Kafka.

For a transactional one: its id with a new epoch, once whatever the producer before it left open is aborted. Two-phase
commits (KIP-939, version 6) have to be allowed by `transaction.two.phase.commit.enable`. With KeepPreparedTxn the open
transaction stays, to be ended by this producer; Kafka 4.3 has the field but answers it with UNSUPPORTED_VERSION.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.transaction_calls import ask, fenced_as_known
from penstock.coordinator.transaction.initialisation import has_half_a_claim, refused
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.protocol.messages import Struct

_FENCED_KNOWN_FROM = 4


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if has_half_a_claim(request) or request.transactional_id == "":
        return refused(ErrorCode.invalid_request)
    try:
        if request.transactional_id is None:
            return Struct(error_code=ErrorCode.none, producer_id=await broker.producer_ids.next(), producer_epoch=0)
        await broker.producer_ids.wait()
        method = TransactionShard.init_producer_id
        answer = await ask(broker, context, request.transactional_id, method, request)
    except Refused as problem:
        return refused(problem.code)
    answer.error_code = fenced_as_known(answer.error_code, is_known=context.version >= _FENCED_KNOWN_FROM)
    return answer


API = Api(22, "InitProducerId", 0, 6, handle)
