"""TxnOffsetCommit (key 28), versions 0-5.

Offsets that a transaction commits together with what it writes: nobody sees them before its marker, and after an abort
nobody ever does. Members of groups are fenced by generation and member id from version 3 on (KIP-447). From version 5
on (transaction version 2) the broker tells the transaction's coordinator of the group's partition itself; of older
clients it is checked that they did (KIP-890).
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import caller, without_empty_topics
from penstock.broker.transaction_verification import BatchOfTransaction, VerifiedWrites, offset_commit_client
from penstock.protocol.messages import Struct

_LOADING_IS_KNOWN_FROM = 2
_NO_SEQUENCE = -1


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if not request.group_id:
        return _refuse(request, ErrorCode.invalid_group_id)
    try:
        return without_empty_topics(await _commit(broker, context, request))
    except Refused as refused:
        if context.version < _LOADING_IS_KNOWN_FROM and refused.code == ErrorCode.coordinator_load_in_progress:
            return _refuse(request, ErrorCode.coordinator_not_available)
        return _refuse(request, refused.code)
    except DiskError:
        return _refuse(request, ErrorCode.not_coordinator)


async def _commit(broker: Broker, context: RequestContext, request: Any) -> Struct:
    runner = broker.groups.shards.runner_of(request.group_id)
    who = caller(context)
    batch = BatchOfTransaction(runner.partition, request.producer_id, request.producer_epoch, _NO_SEQUENCE)
    writes = VerifiedWrites(request.transactional_id, offset_commit_client(context.version), [batch])
    async with broker.verification.verified(writes):
        if error := writes.error_of(runner.partition):
            raise Refused(error, "the coordinator of the transaction did not confirm the partition of the group")
        answer = runner.handle_in_transaction(
            lambda shard, token, now_ms: shard.txn_offset_commit(token, request, who, now_ms),
            request.producer_id,
            request.producer_epoch,
            writes.verification_of(runner.partition),
        )
    return await answer


def _refuse(request: Any, code: ErrorCode) -> Struct:
    return Struct(
        topics=[
            Struct(
                name=topic.name,
                partitions=[
                    Struct(partition_index=partition.partition_index, error_code=code) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(28, "TxnOffsetCommit", 0, 5, handle)
