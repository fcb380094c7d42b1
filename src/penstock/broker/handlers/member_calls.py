"""The requests of group members. A large group's come all at once, and so do its answers: both queue in the crowd.

They go to the shard and back without a coroutine and a future. Of a thousand members that wait for a rebalance to end
each is one object here, rather than a dozen for the garbage collector to look at.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Answer, Broker, HotApi
from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred
from penstock.broker.handlers.group_calls import Method
from penstock.coordinator.effects import Effect
from penstock.coordinator.group.records import RECORD_PARTS
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.record_schema import prepare_writing
from penstock.coordinator.requests import RequestContext
from penstock.protocol.frames import HEADER, read_client_id
from penstock.protocol.messages import Struct, decode_request, encode_response, request_entity, response_entity
from penstock.protocol.schema_reader import reader
from penstock.protocol.schema_writer import writer

# The answer, from version and request, where the shard gives none; a check returns None where it has no objection.
Refuse = Callable[[int, Any, Refused], Struct]
Check = Callable[[int, Any], Struct | None]


# By API key; what today's clients speak.
_newest_versions: dict[int, int] = {}


async def prepare_codecs() -> None:
    """Makes what reads and writes members' requests, their answers and their records, a bit in each turn of the loop:
    each takes milliseconds, and the first members of a group would wait for all of them at once."""
    for key, version in _newest_versions.items():
        reader(request_entity(key, version), make=Struct)
        await asyncio.sleep(0)
        writer(response_entity(key, version))
        await asyncio.sleep(0)
    for part in RECORD_PARTS:
        prepare_writing(part)
        await asyncio.sleep(0)


class MemberRequest(NamedTuple):
    key: int
    name: str
    method: Method
    refuse: Refuse
    check: Check


def _no_objection(version: int, request: Any) -> Struct | None:
    return None


def member_api(
    key: int,
    name: str,
    version_min: int,
    version_max: int,
    method: Method,
    refuse: Refuse,
    check: Check = _no_objection,
) -> HotApi:
    kind = MemberRequest(key, name, method, refuse, check)
    _newest_versions[key] = version_max

    def handle_frame(
        broker: Broker, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
    ) -> Answer:
        call = _Call(kind, broker, connection, version, correlation_id, frame, position)
        if broker.crowd.take():
            call.begin()
        else:
            # The frame's buffer is used again once this returns.
            call.frame = memoryview(bytes(frame))
            broker.crowd.add(call.begin, call.deferred)
        return call.deferred

    return HotApi(key, name, version_min, version_max, handle_frame)


class _Call:
    __slots__ = (
        "_body",
        "_broker",
        "_connection",
        "_correlation_id",
        "_kind",
        "_position",
        "_refusal",
        "_request",
        "_version",
        "deferred",
        "frame",
    )

    def __init__(
        self,
        kind: MemberRequest,
        broker: Broker,
        connection: Connection,
        version: int,
        correlation_id: int,
        frame: memoryview,
        position: int,
    ) -> None:
        self._kind = kind
        self._broker = broker
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._position = position
        self._request: Any = None
        self._body: Struct | None = None
        self._refusal: Refused | None = None
        self.frame: memoryview | None = frame
        self.deferred = Deferred()

    def begin(self) -> None:
        """Raises Malformed."""
        assert self.frame is not None
        request = self._request = decode_request(self._kind.key, self._version, self.frame, self._position)
        self._body = self._kind.check(self._version, request)
        if self._body is None:
            try:
                if not self._broker.is_ready.is_set():
                    raise Refused(ErrorCode.coordinator_not_available, "this node is starting")
                self._broker.groups.shards.runner_of(request.group_id).call(self._invoke, self._answered)
                return
            except Refused as refused:
                self._refusal = refused
        self._send()

    def _invoke(self, shard: GroupShard, token: int, now_ms: int) -> list[Effect]:
        frame, self.frame = self.frame, None
        assert frame is not None
        client_id = read_client_id(frame, HEADER.unpack_from(frame)[3]) or ""
        # The host is written as Kafka's tools show it.
        context = RequestContext(self._version, client_id, f"/{self._connection.peer.rpartition(':')[0]}")
        return self._kind.method(shard, token, self._request, context, now_ms)

    def _answered(self, body: Struct | None, refusal: Refused | None) -> None:
        self._body = body
        self._refusal = refusal
        self._broker.crowd.run(self._send, self.deferred)

    def _send(self) -> None:
        body = self._body
        if self._refusal is not None:
            body = self._kind.refuse(self._version, self._request, self._refusal)
        self.deferred.complete([encode_response(self._kind.key, self._version, self._correlation_id, body)])
