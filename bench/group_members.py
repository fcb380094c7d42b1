"""Many members of one group in one process, each with a connection of its own, as cheap for the client as it gets.

    python -m bench.group_members '{"port": 9092, "protocol": "classic", ...}'
        prints {"first_seconds": ..., "again_seconds": ..., "cpu_seconds": ..., "generations": ...}

A group has settled when every member has heard of its part, all of them in the same generation or epoch, and the parts
are the whole topic, each partition once. Classic members are then all told to subscribe to something else at once, and
settle again. Members of the new protocol report as often as the broker tells them to, and at once when they have let
go or taken up something, as Kafka's own do.
"""

import json
import select
import socket
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from itertools import count
from struct import Struct as Packer
from typing import Any, Protocol

from bench import wire
from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct

FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 10, 11, 12, 14, 68
_VERSIONS = {JOIN_GROUP: 9, HEARTBEAT: 4, SYNC_GROUP: 5, CONSUMER_GROUP_HEARTBEAT: 1}
_LENGTH = Packer(">i")
_INT32 = Packer(">i")
_HEARTBEAT_SECONDS = 3.0  # the clients' default
_SESSION_MS = 45_000  # the clients' default
_REBALANCE_MS = 300_000


class Stuck(Exception):
    """The group did not settle, or a member was refused; the message says how."""


@dataclass(frozen=True)
class MembersPlan:
    port: int
    protocol: str
    group_id: str
    topic: str
    topic_id: str
    partitions: int
    members: int
    timeout_seconds: float


class Member(Protocol):
    def start(self) -> None: ...

    def answered(self, api_key: int, body: Any) -> None: ...

    def due(self) -> None:
        """The time that it asked for has come."""

    def has_settled(self) -> bool: ...


class Crowd:
    """The connections and the clock of all members."""

    def __init__(self, plan: MembersPlan) -> None:
        self.plan = plan
        self._epoll = select.epoll()
        self._members: dict[int, Member] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._received: dict[int, bytearray] = {}
        # Each connection has one request on its way at most.
        self._asked: dict[int, int] = {}
        self._timers: list[tuple[float, int, int]] = []
        self._timer_numbers = count()

    def add(self, member: Member) -> int:
        connection = socket.create_connection(("127.0.0.1", self.plan.port), 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        descriptor = connection.fileno()
        self._sockets[descriptor] = connection
        self._members[descriptor] = member
        self._received[descriptor] = bytearray()
        self._epoll.register(descriptor, select.EPOLLIN)
        return descriptor

    def is_waiting(self, descriptor: int) -> bool:
        return descriptor in self._asked

    def ask(self, descriptor: int, api_key: int, body: Struct) -> None:
        assert descriptor not in self._asked
        self._asked[descriptor] = api_key
        # Blocking: only a leader's SyncGroup is larger than a socket's buffer, and the broker takes that at once.
        self._sockets[descriptor].sendall(wire.request_frame(api_key, _VERSIONS[api_key], body))

    def call_later(self, seconds: float, descriptor: int) -> None:
        heappush(self._timers, (time.monotonic() + seconds, next(self._timer_numbers), descriptor))

    def run_until_settled(self) -> float:
        """The seconds it took."""
        started_s = time.perf_counter()
        deadline_s = time.monotonic() + self.plan.timeout_seconds
        while not self._has_settled():
            now_s = time.monotonic()
            if now_s > deadline_s:
                settled = sum(member.has_settled() for member in self._members.values())
                raise Stuck(f"only {settled} of {len(self._members)} members had settled in time")
            while self._timers and self._timers[0][0] <= now_s:
                self._members[heappop(self._timers)[2]].due()
            wait_s = self._timers[0][0] - now_s if self._timers else 1.0
            for descriptor, _ in self._epoll.poll(max(0.0, min(wait_s, 1.0))):
                self._read(descriptor)
        return time.perf_counter() - started_s

    def _has_settled(self) -> bool:
        # The first that has not ends the search, so this is cheap while it matters.
        return all(member.has_settled() for member in self._members.values())

    def _read(self, descriptor: int) -> None:
        data = self._received[descriptor]
        part = self._sockets[descriptor].recv(1 << 20)
        if not part:
            raise Stuck("the broker closed a member's connection")
        data += part
        if len(data) < 4 or len(data) < 4 + _LENGTH.unpack_from(data)[0]:
            return
        api_key = self._asked.pop(descriptor)
        body = wire.response_body(api_key, _VERSIONS[api_key], bytes(data[4:]))
        data.clear()
        self._members[descriptor].answered(api_key, body)


class ClassicMember:
    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._plan = crowd.plan
        self._descriptor = crowd.add(self)
        self._member_id = ""
        self._leader_assignments: list[Struct] = []
        self._subscription = _subscription(crowd.plan.topic, b"1")
        self.generation = -1
        self.partitions: list[int] | None = None
        self._wants_to_join = False

    def start(self) -> None:
        self._join()

    def change_subscription(self) -> None:
        self._subscription = _subscription(self._plan.topic, b"2")
        self.partitions = None
        if self._crowd.is_waiting(self._descriptor):
            self._wants_to_join = True
        else:
            self._join()

    def has_settled(self) -> bool:
        return self.partitions is not None

    def due(self) -> None:
        if not self._crowd.is_waiting(self._descriptor):
            body = Struct(group_id=self._plan.group_id, generation_id=self.generation, member_id=self._member_id)
            self._crowd.ask(self._descriptor, HEARTBEAT, body)
        self._crowd.call_later(_HEARTBEAT_SECONDS, self._descriptor)

    def _join(self) -> None:
        self._wants_to_join = False
        self.partitions = None
        body = Struct(
            group_id=self._plan.group_id,
            session_timeout=_SESSION_MS,
            rebalance_timeout=_REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[Struct(name="range", metadata=self._subscription)],
        )
        self._crowd.ask(self._descriptor, JOIN_GROUP, body)

    def answered(self, api_key: int, body: Any) -> None:
        if body.error_code == ErrorCode.member_id_required:
            self._member_id = body.member_id
            self._join()
        elif body.error_code == ErrorCode.rebalance_in_progress:
            self._join()
        elif body.error_code != ErrorCode.none:
            raise Stuck(f"a member was answered {body.error_code.name}")
        elif api_key == JOIN_GROUP:
            self._joined(body)
        elif api_key == SYNC_GROUP:
            self.partitions = _assigned_partitions(body.assignment, self._plan.topic)
        if self._wants_to_join and not self._crowd.is_waiting(self._descriptor):
            self._join()

    def _joined(self, body: Any) -> None:
        if self.generation < 0:
            self._crowd.call_later(_HEARTBEAT_SECONDS, self._descriptor)
        self._member_id = body.member_id
        self.generation = body.generation_id
        assignments = []
        if body.leader == body.member_id:
            members = [member.member_id for member in body.members]
            for index, member_id in enumerate(members):
                partitions = list(range(index, self._plan.partitions, len(members)))
                assignments.append(Struct(member_id=member_id, assignment=_assignment(self._plan.topic, partitions)))
        asked = Struct(
            group_id=self._plan.group_id,
            generation_id=self.generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        self._crowd.ask(self._descriptor, SYNC_GROUP, asked)


class ReportingMember:
    """Of the new protocol."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._plan = crowd.plan
        self._topic_id = uuid.UUID(crowd.plan.topic_id)
        self._descriptor = crowd.add(self)
        self._member_id = str(uuid.uuid4())
        self.generation = 0
        self.partitions: list[int] = []
        self._is_acknowledged = False

    def start(self) -> None:
        self._report()

    def has_settled(self) -> bool:
        return self._is_acknowledged and len(self.partitions) == self._plan.partitions // self._plan.members

    def due(self) -> None:
        self._report()

    def _report(self) -> None:
        is_first = self.generation == 0
        owned = [Struct(topic_id=self._topic_id, partitions=self.partitions)] if self.partitions else []
        body = Struct(
            group_id=self._plan.group_id,
            member_id=self._member_id,
            member_epoch=self.generation,
            rebalance_timeout=_REBALANCE_MS if is_first else -1,
            subscribed_topic_names=[self._plan.topic] if is_first else None,
            topic_partitions=None if self._is_acknowledged else owned,
        )
        self._crowd.ask(self._descriptor, CONSUMER_GROUP_HEARTBEAT, body)

    def answered(self, api_key: int, body: Any) -> None:
        if body.error_code != ErrorCode.none:
            raise Stuck(f"a member was answered {body.error_code.name}: {body.error_message}")
        self.generation = body.member_epoch
        if body.assignment is None:
            self._is_acknowledged = True
            self._crowd.call_later(body.heartbeat_interval.total_seconds(), self._descriptor)
            return
        self.partitions = [index for topic in body.assignment.topic_partitions for index in topic.partitions]
        self._is_acknowledged = False
        self._report()


def _subscription(topic: str, user_data: bytes) -> bytes:
    name = topic.encode()
    return b"\0\0" + _INT32.pack(1) + Packer(">h").pack(len(name)) + name + _INT32.pack(len(user_data)) + user_data


def _assignment(topic: str, partitions: list[int]) -> bytes:
    name = topic.encode()
    head = b"\0\0" + _INT32.pack(1) + Packer(">h").pack(len(name)) + name + _INT32.pack(len(partitions))
    return head + b"".join(_INT32.pack(index) for index in partitions) + _INT32.pack(-1)


def _assigned_partitions(data: bytes, topic: str) -> list[int]:
    start = 2 + 4 + 2 + len(topic.encode())
    (partitions,) = _INT32.unpack_from(data, start)
    return [_INT32.unpack_from(data, start + 4 + 4 * index)[0] for index in range(partitions)]


def _check(members: list[ClassicMember] | list[ReportingMember], plan: MembersPlan) -> None:
    owned = sorted(index for member in members for index in member.partitions or ())
    if owned != list(range(plan.partitions)):
        raise Stuck(f"{len(owned)} parts were given out, {len(set(owned))} different ones, of {plan.partitions}")


def _wait_for_coordinator(plan: MembersPlan) -> None:
    with wire.Connection(plan.port) as connection:
        for _ in range(600):
            answer = connection.ask(FIND_COORDINATOR, 4, Struct(coordinator_keys=[plan.group_id]))
            asked = Struct(group_id=plan.group_id, generation_id=1, member_id="nobody")
            beat = connection.ask(HEARTBEAT, 4, asked)
            if not answer.coordinators[0].error_code and beat.error_code == ErrorCode.unknown_member_id:
                return
            time.sleep(0.05)
    raise Stuck("there was no coordinator")


def run(plan: MembersPlan) -> dict[str, float]:
    _wait_for_coordinator(plan)
    crowd = Crowd(plan)
    started_cpu_s = time.process_time()
    if plan.protocol == "consumer":
        reporting = [ReportingMember(crowd) for _ in range(plan.members)]
        for reporter in reporting:
            reporter.start()
        result = {"first_seconds": crowd.run_until_settled()}
        _check(reporting, plan)
        result["generations"] = max(reporter.generation for reporter in reporting)
    else:
        members = [ClassicMember(crowd) for _ in range(plan.members)]
        for member in members:
            member.start()
        result = {"first_seconds": crowd.run_until_settled()}
        _check(members, plan)
        for member in members:
            member.change_subscription()
        result["again_seconds"] = crowd.run_until_settled()
        _check(members, plan)
        result["generations"] = max(member.generation for member in members)
    result["cpu_seconds"] = time.process_time() - started_cpu_s
    return result


def command(plan: MembersPlan) -> list[str]:
    return [sys.executable, "-m", "bench.group_members", json.dumps(asdict(plan))]


if __name__ == "__main__":
    print(json.dumps(run(MembersPlan(**json.loads(sys.argv[1])))))
