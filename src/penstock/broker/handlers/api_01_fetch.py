"""Fetch (key 1), versions 4-18.

Sessions (KIP-227), topic ids from version 13 on (KIP-516), size limits with progress guaranteed (KIP-74), leader epoch
fencing (KIP-320). A fetch that finds less than `min_bytes` waits up to `max_wait_ms` and is woken by appends.

A request with a replica id is a follower's: it reads beyond the high watermark, and what it asks for says how far it
has come. The metadata partition is the quorum's.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.broker.api import Answer, Broker, HotApi
from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred
from penstock.broker.eager import run_eagerly
from penstock.broker.fetch.following import FollowerFetch
from penstock.broker.fetch.nearest import nearest_replica
from penstock.broker.fetch.plan import Plan, plan_fetch
from penstock.broker.fetch.sessions import FetchContext
from penstock.broker.fetch.waiting import WaitingCommittedFetch, WaitingFetch
from penstock.broker.handlers.quorum_calls import ask_quorum
from penstock.cluster.partition.partition import Partition
from penstock.cluster.raft.messages import TOPIC_ID
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
from penstock.protocol.messages import Struct, decode_request, encode_response

_METADATA_TOPIC = TOPIC_ID.bytes


def handle_frame(
    broker: Broker, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
) -> Answer:
    request = decode_fetch_request(version, frame, position)
    uses_topic_ids = version >= TOPIC_IDS_FROM
    if uses_topic_ids and request.topics and request.topics[0][0] == _METADATA_TOPIC:
        return _ask_quorum(broker, version, correlation_id, decode_request(API.key, version, frame, position))
    context = broker.fetch_sessions.open(request, uses_topic_ids, broker.clock.monotonic_ms())
    if context.error:
        return encode_fetch_response(version, correlation_id, context.error, 0, [])
    if request.replica_id >= 0:
        return FollowerFetch(
            broker,
            connection,
            request,
            context,
            lambda plan: _encode(version, correlation_id, context, plan),
            uses_topic_ids=uses_topic_ids,
        ).answer()
    plan = _plan(broker, request, context, uses_topic_ids)
    if plan.bytes_found >= request.bytes_min or request.wait_ms_max <= 0 or plan.must_answer or not context.partitions:
        _count(broker, plan, uses_topic_ids)
        return _encode(version, correlation_id, context, plan)
    return _wait(broker, connection, version, correlation_id, request, context, plan)


def _plan(broker: Broker, request: FetchRequest, context: FetchContext, uses_topic_ids: bool) -> Plan:
    return plan_fetch(
        context.partitions,
        broker.topics_by_id if uses_topic_ids else broker.topics_by_name,
        request,
        bytes_max=min(request.bytes_max, broker.fetch_bytes_max),
        uses_topic_ids=uses_topic_ids,
        nearest=_nearest(broker, request.rack_id) if request.rack_id and broker.sends_to_own_rack else None,
    )


def _nearest(broker: Broker, rack: str) -> Callable[[Partition, int], int]:
    return lambda partition, offset: nearest_replica(partition, offset, rack, broker.node_id, broker.image.brokers)


def _ask_quorum(broker: Broker, version: int, correlation_id: int, request: Any) -> Deferred:
    deferred = Deferred()

    def finish(answer: Struct | None, problem: BaseException | None) -> None:
        if answer is None:
            deferred.fail(f"the metadata quorum could not answer: {problem}")
        else:
            deferred.complete([encode_response(API.key, version, correlation_id, answer)])

    run_eagerly(ask_quorum(broker, API.key, request), finish)
    return deferred


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
    partitions = _partitions(broker, context, uses_topic_ids)

    def finish(is_time_up: bool) -> None:
        final = _plan(broker, request, context, uses_topic_ids)
        if not is_time_up and final.bytes_found < request.bytes_min and not final.must_answer:
            waiting.wait_for(request.bytes_min - final.bytes_found)
            return
        waiting.give_up()
        connection.on_closed.remove(waiting.give_up)
        _count(broker, final, uses_topic_ids)
        deferred.complete(_encode(version, correlation_id, context, final))

    waiting = (WaitingCommittedFetch if request.read_committed else WaitingFetch)(
        asyncio.get_running_loop(),
        partitions,
        request.bytes_min - plan.bytes_found,
        request.wait_ms_max,
        finish,
    )
    connection.on_closed.append(waiting.give_up)
    return deferred


def _partitions(broker: Broker, context: FetchContext, uses_topic_ids: bool) -> list[Partition]:
    topics = broker.topics_by_id if uses_topic_ids else broker.topics_by_name
    return [topics[one.topic][one.request.partition] for one in context.partitions]


def _count(broker: Broker, plan: Plan, uses_topic_ids: bool) -> None:
    """What leaves now for consumers."""
    for partition, length in plan.found:
        partition.bytes_out += length
    if plan.must_answer:
        topics = broker.topics_by_id if uses_topic_ids else broker.topics_by_name
        for one, answer in plan.answers:
            if answer.error_code:
                hosted = topics.get(one.topic, {}).get(answer.partition)
                broker.metrics.failed_fetch_requests["" if hosted is None else hosted.topic] += 1


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
