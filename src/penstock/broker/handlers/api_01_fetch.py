"""Fetch (key 1), versions 4-18.

Sessions (KIP-227), topic ids from version 13 on (KIP-516), size limits with progress guaranteed (KIP-74), leader epoch
fencing (KIP-320). A fetch that finds less than `min_bytes` waits up to `max_wait_ms` and is woken by appends.

Not here yet: followers. A request with a replica id gets NOT_LEADER_OR_FOLLOWER, since no partition has other replicas.
"""

import asyncio

from penstock.base.errors import ErrorCode
from penstock.broker.api import Answer, Broker, HotApi
from penstock.broker.connection import Connection, Deferred
from penstock.broker.fetch.plan import Plan, plan_fetch
from penstock.broker.fetch.sessions import FetchContext, SessionPartition
from penstock.broker.fetch.waiting import WaitingFetch
from penstock.cluster.partition.partition import Partition
from penstock.protocol.fetch import (
    TOPIC_IDS_FROM,
    VERSION_MAX,
    VERSION_MIN,
    FetchRequest,
    Part,
    PartitionAnswer,
    decode_fetch_request,
    encode_fetch_response,
)


def handle_frame(
    broker: Broker, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
) -> Answer:
    request = decode_fetch_request(version, frame, position)
    uses_topic_ids = version >= TOPIC_IDS_FROM
    context = broker.fetch_sessions.open(request, uses_topic_ids, broker.clock.monotonic_ms())
    if context.error:
        return encode_fetch_response(version, correlation_id, context.error, 0, [])
    if request.replica_id >= 0:
        plan = _refuse_replica(context.partitions)
    else:
        plan = _plan(broker, request, context, uses_topic_ids)
    if plan.bytes_found >= request.bytes_min or request.wait_ms_max <= 0 or plan.has_error or not context.partitions:
        return _encode(version, correlation_id, context, plan)
    return _wait(broker, connection, version, correlation_id, request, context, plan)


def _plan(broker: Broker, request: FetchRequest, context: FetchContext, uses_topic_ids: bool) -> Plan:
    return plan_fetch(
        context.partitions,
        broker.topics_by_id if uses_topic_ids else broker.topics_by_name,
        bytes_max=min(request.bytes_max, broker.fetch_bytes_max),
        read_committed=request.read_committed,
        uses_topic_ids=uses_topic_ids,
    )


def _refuse_replica(wanted: list[SessionPartition]) -> Plan:
    refused = ErrorCode.not_leader_or_follower
    return Plan([(one, PartitionAnswer(one.request.partition, refused)) for one in wanted], 0, True)


def _wait(
    broker: Broker,
    connection: Connection,
    version: int,
    correlation_id: int,
    request: FetchRequest,
    context: FetchContext,
    plan: Plan,
) -> Deferred:
    deferred = Deferred()
    uses_topic_ids = version >= TOPIC_IDS_FROM

    def finish() -> None:
        connection.on_closed.remove(waiting.give_up)
        final = _plan(broker, request, context, uses_topic_ids)
        deferred.complete(_encode(version, correlation_id, context, final))

    waiting = WaitingFetch(
        asyncio.get_running_loop(),
        _partitions(broker, context, uses_topic_ids),
        request.bytes_min - plan.bytes_found,
        request.wait_ms_max,
        finish,
    )
    connection.on_closed.append(waiting.give_up)
    return deferred


def _partitions(broker: Broker, context: FetchContext, uses_topic_ids: bool) -> list[Partition]:
    topics = broker.topics_by_id if uses_topic_ids else broker.topics_by_name
    return [topics[one.topic][one.request.partition] for one in context.partitions]


def _encode(version: int, correlation_id: int, context: FetchContext, plan: Plan) -> list[Part]:
    session = context.session
    topics: list[tuple[bytes, list[PartitionAnswer]]] = []
    filled = []
    for one, answer in plan.answers:
        if session is not None:
            is_news = one.is_news(answer)
            if context.is_incremental and not is_news:
                continue
            if answer.records is not None:
                filled.append((one.topic, answer.partition))
        if topics and topics[-1][0] == one.topic:
            topics[-1][1].append(answer)
        else:
            topics.append((one.topic, [answer]))
    if session is not None:
        session.move_behind_others(filled)
    return encode_fetch_response(version, correlation_id, 0, context.session_id, topics)


API = HotApi(1, "Fetch", VERSION_MIN, VERSION_MAX, handle_frame)
