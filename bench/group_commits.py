"""Offset commits as fast as they are answered: pre-encoded requests, pipelined, a group for each connection.

python -m bench.group_commits '{"port": 9092, ...}'     prints {"requests": ..., "seconds": ..., "cpu_seconds": ...}
"""

import json
import socket
import sys
import time
from dataclasses import asdict, dataclass

from bench import replay, wire
from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct, encode_response

OFFSET_COMMIT, OFFSET_COMMIT_VERSION = 8, 9
FIND_COORDINATOR = 10


@dataclass(frozen=True)
class CommitReplay:
    port: int
    topic: str
    offsets_per_request: int
    requests: int
    connections: int
    in_flight_max: int


class CommitStream:
    def __init__(self, plan: CommitReplay, group_id: str, requests: int) -> None:
        partitions = [
            Struct(partition_index=index, committed_offset=12_345, committed_leader_epoch=-1, committed_metadata="")
            for index in range(plan.offsets_per_request)
        ]
        body = Struct(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[Struct(name=plan.topic, partitions=partitions)],
        )
        _wait_until_served(plan.port, group_id, body)
        frame = wire.request_frame(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body)
        self._frame_bytes = len(frame)
        self._frames = bytes(frame) * plan.in_flight_max
        answered = [Struct(partition_index=index, error_code=0) for index in range(plan.offsets_per_request)]
        answer = Struct(topics=[Struct(name=plan.topic, partitions=answered)])
        # All answers are the same bytes: every correlation id is 0, and so is every error code.
        self._answer = bytes(encode_response(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, 0, answer))
        self._received = bytearray()
        self._unsent = memoryview(b"")
        self._in_flight = 0
        self._in_flight_max = plan.in_flight_max
        self._to_send = requests
        self.socket = socket.create_connection(("127.0.0.1", plan.port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    def wants_to_write(self) -> bool:
        return bool(self._unsent) or (self._to_send > 0 and self._in_flight <= self._in_flight_max // 2)

    def is_done(self) -> bool:
        return self._to_send == 0 and self._in_flight == 0 and not self._unsent

    def write(self) -> None:
        if not self._unsent:
            count = min(self._in_flight_max - self._in_flight, self._to_send)
            self._unsent = memoryview(self._frames)[: count * self._frame_bytes]
            self._in_flight += count
            self._to_send -= count
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return

    def read(self) -> None:
        part = self.socket.recv(1 << 16)
        if not part:
            raise replay.BadAnswer("the broker closed the connection")
        self._received += part
        size = len(self._answer)
        while len(self._received) >= size:
            if not self._received.startswith(self._answer):
                raise replay.BadAnswer(f"a commit was answered {bytes(self._received[:size])!r}")
            del self._received[:size]
            self._in_flight -= 1


def _wait_until_served(port: int, group_id: str, body: Struct) -> None:
    with wire.Connection(port) as connection:
        for _ in range(600):
            connection.ask(FIND_COORDINATOR, 4, Struct(coordinator_keys=[group_id]))
            (topic,) = connection.ask(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body).topics
            if all(partition.error_code == ErrorCode.none for partition in topic.partitions):
                return
            time.sleep(0.05)
    raise replay.BadAnswer(f"the commits of {group_id} were refused")


def run(plan: CommitReplay) -> dict[str, float]:
    share, rest = divmod(plan.requests, plan.connections)
    streams: list[replay.Stream] = [
        CommitStream(plan, f"commits-{index}", share + (index < rest)) for index in range(plan.connections)
    ]
    return {"requests": plan.requests, **replay.drive(streams)}


def command(plan: CommitReplay) -> list[str]:
    return [sys.executable, "-m", "bench.group_commits", json.dumps(asdict(plan))]


if __name__ == "__main__":
    print(json.dumps(run(CommitReplay(**json.loads(sys.argv[1])))))
