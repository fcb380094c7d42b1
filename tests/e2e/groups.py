"""Members of a group as processes, a producer that feeds them, and what must be true of all they wrote down."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.group_clients import group_settings
from tests.e2e.node import Node, wait_until

MEMBER = Path(__file__).parent / "group_member.py"
SESSION_MS = 700

# What members are evicted by, quickly. The new protocol's session is the broker's affair.
QUICK_SESSIONS = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 150,
    # So that a rebalance waits for nobody's configured pause.
    "group.initial.rebalance.delay.ms": 100,
}


class MemberProcess:
    def __init__(self, node: Node, directory: Path, protocol: str, group_id: str, topic: str, number: int) -> None:
        self.journal = directory / f"member-{number}.txt"
        settings = group_settings(node, group_id, protocol)
        if protocol == "classic":
            settings |= {
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 150,
                "max.poll.interval.ms": 10_000,
                "partition.assignment.strategy": "range" if number % 2 else "range,roundrobin",
            }
        command = [sys.executable, str(MEMBER), str(self.journal), json.dumps(settings), topic]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill9(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill9()

    def lines(self) -> list[list[str]]:
        if not self.journal.exists():
            return []
        # The last line of one that was killed may be cut.
        whole = self.journal.read_text().rpartition("\n")[0]
        return [line.split() for line in whole.splitlines()]

    def records(self) -> int:
        return sum(line[0] == "R" for line in self.lines())


class Feed(threading.Thread):
    """Numbers the records of each partition, from 0: so a value is its offset."""

    def __init__(self, node: Node, topic: str, partitions: int, per_second: int = 400) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._partitions = partitions
        self._pause_s = partitions / per_second
        self._stopped = threading.Event()
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def run(self) -> None:
        while not self._stopped.wait(self._pause_s):
            for index in range(self._partitions):
                self._producer.produce(self._topic, b"%d" % self.sent, partition=index)
            self.sent += 1
            self._producer.poll(0)
        assert self._producer.flush(120) == 0

    def finish(self) -> int:
        """How many records each partition has."""
        self._stopped.set()
        self.join(150)
        assert not self.is_alive()
        return self.sent


def committed_offsets(node: Node, group_id: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group_id, "log_level": 0})
    try:
        asked = [TopicPartition(topic, index) for index in range(partitions)]
        return [max(one.offset, 0) for one in consumer.committed(asked, timeout=60)]
    finally:
        consumer.close()


def wait_until_all_is_committed(node: Node, group_id: str, topic: str, partitions: int, count: int) -> None:
    wait_until(
        lambda: committed_offsets(node, group_id, topic, partitions) == [count] * partitions,
        f"all {count} records of each partition are read and committed",
    )


def check_delivery(members: list[MemberProcess], partitions: int, count: int) -> dict[str, int]:
    """No record was skipped. A member begins where commits told it to, so what is read twice was not committed before:
    between two assignments of a partition each member reads on without a gap, and begins at an offset to which somebody
    had committed, or at the start."""
    seen: list[set[int]] = [set() for _ in range(partitions)]
    commits: list[set[int]] = [{0} for _ in range(partitions)]
    read = 0
    for member in members:
        for line in member.lines():
            if line[0] == "C":
                commits[int(line[1])].add(int(line[2]))
            elif line[0] == "R":
                # A batch that was committed but whose commit was not written down any more ends at a record.
                commits[int(line[1])].add(int(line[2]) + 1)
    for member in members:
        for partition, run in _runs(member):
            assert run == list(range(run[0], run[0] + len(run))), f"a gap in partition {partition}: {run[:1]}..."
            assert run[0] in commits[partition], f"partition {partition} began at {run[0]}, where nothing was committed"
            seen[partition].update(run)
            read += len(run)
    for partition in range(partitions):
        missing = sorted(set(range(count)) - seen[partition])
        assert not missing, f"partition {partition}: {len(missing)} records were skipped, from {missing[0]} on"
    return {"read": read, "twice": read - count * partitions}


def _runs(member: MemberProcess) -> Iterator[tuple[int, list[int]]]:
    """The offsets a member read of a partition, from its assignment until it was taken away."""
    open_runs: dict[int, list[int]] = {}
    for line in member.lines():
        if line[0] == "R":
            partition, offset, value = map(int, line[1:])
            assert value == offset
            open_runs.setdefault(partition, []).append(offset)
        elif line[0] in "AV":
            for partition in map(int, line[1:]):
                if partition in open_runs:
                    yield partition, open_runs.pop(partition)
    yield from open_runs.items()


def describe(members: list[Any]) -> str:
    return ", ".join(str(member.records()) for member in members)
