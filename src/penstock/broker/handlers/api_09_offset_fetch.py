"""OffsetFetch (key 9), versions 1-10.

One group up to version 7, many from 8 on (KIP-709); all topics of a group with a null list. `require_stable` hides
offsets that a transaction has yet to decide (KIP-447). Topics go by id from version 10 on. COORDINATOR_NOT_AVAILABLE,
which Kafka may answer, ends the process of whoever asked by librdkafka's AdminClient (2.16): here such a coordinator is
loading, which has clients ask it again instead of looking for another. Members find the other one by their heartbeats.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.group_calls import ask, ask_each
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.messages import Struct

_MANY_GROUPS_FROM = 8


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if context.version < _MANY_GROUPS_FROM:
        try:
            return await ask(broker, context, request.group_id, GroupShard.offset_fetch, request)
        except Refused as refused:
            return _refuse_one(request, context.version, _survivable(refused.code))
    groups = await ask_each(
        broker,
        context,
        [group.group_id for group in request.groups],
        GroupShard.offset_fetch,
        share=lambda positions: Struct(
            groups=[request.groups[position] for position in positions], require_stable=request.require_stable
        ),
        refuse=lambda position, code: Struct(group_id=request.groups[position].group_id, error_code=_survivable(code)),
        answers_of=lambda answer: answer.groups,
    )
    return Struct(groups=groups)


def _survivable(code: ErrorCode) -> ErrorCode:
    return ErrorCode.coordinator_load_in_progress if code == ErrorCode.coordinator_not_available else code


def _refuse_one(request: Any, version: int, code: ErrorCode) -> Struct:
    topics = []
    if version < 2:
        # Without an error code of its own the answer has it on each partition.
        topics = [
            Struct(
                name=topic.name,
                partitions=[
                    Struct(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return Struct(error_code=code, topics=topics)


API = Api(9, "OffsetFetch", 1, 10, handle)
