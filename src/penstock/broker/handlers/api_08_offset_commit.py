"""OffsetCommit (key 8), versions 2-10.

Commits survive kill -9 and, on a topic with one replica, a power cut: the answer waits for the disk. Topics go by id
from version 10 on (KIP-848 clients by member epoch).
"""

import logging
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Answer, Broker, HotApi
from penstock.broker.connection import Connection, Deferred
from penstock.broker.handlers.group_calls import without_empty_topics
from penstock.coordinator.requests import RequestContext
from penstock.protocol.fetch import Part
from penstock.protocol.messages import Struct, decode_request, encode_response
from penstock.protocol.offset_commit import FLEXIBLE_FROM, read_commit_request, write_commit_response

log = logging.getLogger("penstock.commits")

_KEY, _VERSION_MIN, _VERSION_MAX = 8, 2, 10
# Nobody is told who committed an offset.
_CONTEXTS = {version: RequestContext(version, "", "") for version in range(_VERSION_MIN, _VERSION_MAX + 1)}


def handle_frame(
    broker: Broker, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
) -> Answer:
    # Hot, so it goes without a coroutine and a future.
    request: Any
    if version >= FLEXIBLE_FROM:
        request = read_commit_request(version, frame, position)
    else:
        request = decode_request(_KEY, version, frame, position)
    context = _CONTEXTS[version]
    deferred = Deferred()

    def answer(body: Struct | None, refusal: Refused | None) -> None:
        try:
            if body is None:
                assert refusal is not None
                body = _refuse(request, refusal.code)
            deferred.complete(_frame(version, correlation_id, body))
        except Exception:
            log.exception("OffsetCommit version %d met a defect in the broker", version)
            deferred.fail("see the error above")

    def commit() -> None:
        try:
            if not broker.is_ready.is_set():
                raise Refused(ErrorCode.coordinator_not_available, "this node is starting")
            runner = broker.groups.shards.runner_of(request.group_id)
            runner.call(lambda shard, token, now_ms: shard.offset_commit(token, request, context, now_ms), answer)
        except Refused as refused:
            deferred.complete(_frame(version, correlation_id, _refuse(request, refused.code)))

    if broker.crowd.is_waiting:
        # What the same member asked before may be among those that wait.
        broker.crowd.add(commit, deferred)
    else:
        commit()
    return deferred


def _frame(version: int, correlation_id: int, body: Struct) -> list[Part]:
    without_empty_topics(body)
    if version >= FLEXIBLE_FROM:
        return [write_commit_response(version, correlation_id, body.topics)]
    return [encode_response(_KEY, version, correlation_id, body)]


def _refuse(request: Any, code: ErrorCode) -> Struct:
    return Struct(
        topics=[
            Struct(
                name=getattr(topic, "name", ""),
                topic_id=getattr(topic, "topic_id", None),
                partitions=[
                    Struct(partition_index=partition.partition_index, error_code=code) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = HotApi(_KEY, "OffsetCommit", _VERSION_MIN, _VERSION_MAX, handle_frame)
