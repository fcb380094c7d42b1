"""OffsetCommit (key 8), versions 2-10.

Commits survive kill -9 and, on a topic with one replica, a power cut: the answer waits for the disk. Topics go by id
from version 10 on (KIP-848 clients by member epoch).
"""

import logging
from functools import partial
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Bytes
from penstock.broker.api import Answer, Broker, HotApi
from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred
from penstock.coordinator.effects import Effect
from penstock.coordinator.group.offset_commits import PartitionOutcome, TopicOutcome
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.requests import RequestContext
from penstock.protocol.messages import Struct, decode_request, encode_response
from penstock.protocol.offset_commit import (
    FLEXIBLE_FROM,
    CommitRequest,
    add_alike,
    alike_bytes,
    read_commit_request,
    write_commit_response,
    write_commit_responses,
)

log = logging.getLogger("penstock.commits")

_KEY, _VERSION_MIN, _VERSION_MAX = 8, 2, 10
# Nobody is told who committed an offset.
_CONTEXTS = {version: RequestContext(version, "", "") for version in range(_VERSION_MIN, _VERSION_MAX + 1)}


def handle_frame(
    broker: Broker, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
) -> Answer:
    # Hot, so it goes without a coroutine and a future.
    correlation_ids = [correlation_id]
    if version >= FLEXIBLE_FROM:
        request = read_commit_request(version, frame, position)
        common_bytes = alike_bytes(version, frame, position)
        if common_bytes is not None:
            correlation_ids += _take_alike(connection, frame, request, common_bytes)
    else:
        request = decode_request(_KEY, version, frame, position)
    commit = _Commit(version, correlation_ids, request)
    if broker.crowd.is_waiting:
        # What the same member asked before may be among those that wait.
        broker.crowd.add(partial(commit.begin, broker), commit)
    else:
        commit.begin(broker)
    return commit


def _take_alike(connection: Connection, frame: memoryview, request: CommitRequest, common_bytes: int) -> list[int]:
    """A member that does not wait for its commits sends several at once: those that follow on the connection for the
    same partition become one request, which names it as often. Their correlation ids."""
    taken = connection.take_alike(frame, common_bytes)
    for number, (_, alike) in enumerate(taken):
        if not add_alike(request, alike, len(frame)):
            connection.give_back(taken[number:])
            del taken[number:]
            break
    return [correlation_id for correlation_id, _ in taken]


class _Commit(Deferred):
    __slots__ = ("_correlation_ids", "_request", "_version")

    def __init__(self, version: int, correlation_ids: list[int], request: Any) -> None:
        Deferred.__init__(self, len(correlation_ids))
        self._version = version
        self._correlation_ids = correlation_ids
        self._request = request

    def begin(self, broker: Broker) -> None:
        try:
            if not broker.is_ready.is_set():
                raise Refused(ErrorCode.coordinator_not_available, "this node is starting")
            broker.groups.shards.runner_of(self._request.group_id).call(self._invoke, self._answered)
        except Refused as refused:
            self._answered(None, refused)

    def _invoke(self, shard: GroupShard, token: int, now_ms: int) -> list[Effect]:
        return shard.offset_commit(token, self._request, _CONTEXTS[self._version], now_ms)

    def _answered(self, body: Struct | None, refusal: Refused | None) -> None:
        version = self._version
        try:
            if body is None:
                assert refusal is not None
                body = _refuse(self._request, refusal.code)
            if self.requests > 1:
                answer: Bytes = write_commit_responses(version, self._correlation_ids, body.topics[0])
            elif version >= FLEXIBLE_FROM:
                answer = write_commit_response(version, self._correlation_ids[0], body.topics)
            else:
                answer = encode_response(_KEY, version, self._correlation_ids[0], body)
            self.complete((answer,))
        except Exception:
            log.exception("OffsetCommit version %d met a defect in the broker", version)
            self.fail("see the error above")


def _refuse(request: Any, code: ErrorCode) -> Struct:
    return Struct(
        topics=[
            TopicOutcome(
                getattr(topic, "name", ""),
                getattr(topic, "topic_id", None),
                [PartitionOutcome(partition.partition_index, code) for partition in topic.partitions],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )


API = HotApi(_KEY, "OffsetCommit", _VERSION_MIN, _VERSION_MAX, handle_frame)
