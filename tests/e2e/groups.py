"""Members of a group as processes, a producer that feeds them, and what must be true of all they wrote down."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from penstock.base.errors import ErrorCode
from tests.conformance.cases.group_requests import OFFSET_FETCH, fetch_offsets_of
from tests.conformance.group_clients import group_settings
from tests.conformance.wire import Wire
from tests.e2e.node import Node, wait_until

MEMBER = Path(__file__).parent / "group_member.py"
SESSION_MS = 700
# Enough for the last few batches of a journal.
_TAIL_BYTES = 8192
_HISTORY_LINES = 60
# While the coordinator of a group is being made, or reads its log.
_NOT_YET = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)

# What members are evicted by, quickly. The new protocol's session is the broker's affair.
QUICK_SESSIONS = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 150,
    # So that a rebalance waits for nobody's configured pause.
    "group.initial.rebalance.delay.ms": 100,
}


class Event(NamedTuple):
    """A line of a member's journal."""

    time_ns: int
    kind: str
    numbers: tuple[int, ...]


class Run(NamedTuple):
    """What a member read of a partition, from its assignment until it was taken away."""

    assigned_ns: int
    offsets: list[int]


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

    def events(self) -> list[Event]:
        if not self.journal.exists():
            return []
        # The last line of one that was killed may be cut.
        whole = self.journal.read_text().rpartition("\n")[0]
        lines = [line.split() for line in whole.splitlines()]
        return [Event(int(words[0]), words[1], tuple(map(int, words[2:]))) for words in lines]

    def has_committed_since(self, time_ns: int) -> bool:
        """It has partitions then, and not only in its own mind."""
        if not self.journal.exists():
            return False
        with self.journal.open("rb") as journal:
            journal.seek(max(0, self.journal.stat().st_size - _TAIL_BYTES))
            lines = [line.split() for line in journal.read().split(b"\n")[1:-1]]
        return any(words[1] == b"C" and int(words[0]) > time_ns for words in lines)


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
                "max.in.flight.requests.per.connection": 1,
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
    """By partition, 0 where nothing was committed; what the coordinator says once it has loaded them."""
    asked = fetch_offsets_of(group_id, topics=[(topic, None, range(partitions))])
    with Wire(node.port) as wire:
        while True:
            (group,) = wire.ask(OFFSET_FETCH, 9, asked).groups
            if group.error_code == 0:
                by_partition = {one.partition_index: one.committed_offset for one in group.topics[0].partitions}
                return [max(0, by_partition[index]) for index in range(partitions)]
            assert group.error_code in _NOT_YET, group.error_code


def wait_for_progress(
    node: Node, group_id: str, topic: str, partitions: int, members: Sequence[MemberProcess] = ()
) -> None:
    """Every partition is read on, and committed, by somebody."""
    before = committed_offsets(node, group_id, topic, partitions)

    def has_moved() -> bool:
        now = committed_offsets(node, group_id, topic, partitions)
        for partition, (old, new) in enumerate(zip(before, now, strict=True)):
            assert new >= old, f"a commit went back: {before} {now}\n{_history(members, partition)}"
        return all(new > old for old, new in zip(before, now, strict=True))

    wait_until(has_moved, "every partition is read on")


def _history(members: Sequence[MemberProcess], partition: int) -> str:
    """The last that members wrote down of a partition, but for what they read."""
    told = []
    for number, member in enumerate(members):
        for event in member.events():
            concerned = event.numbers if event.kind in "AV" else event.numbers[:1]
            if event.kind != "R" and partition in concerned:
                told.append((event.time_ns, f"member {number}: {event.kind} {event.numbers}"))
    return "\n".join(f"{time_ns / 1e9:.3f} {line}" for time_ns, line in sorted(told)[-_HISTORY_LINES:])


def wait_until_all_is_committed(node: Node, group_id: str, topic: str, partitions: int, count: int) -> None:
    wait_until(
        lambda: committed_offsets(node, group_id, topic, partitions) == [count] * partitions,
        f"all {count} records of each partition are read and committed",
    )


def check_delivery(members: Sequence[MemberProcess], partitions: int, count: int) -> int:
    """No record was skipped, and nothing was read again that had been committed before its reader got the partition.
    How many were read more than once."""
    commits: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
    for member in members:
        for event in member.events():
            if event.kind == "C":
                partition, offset = event.numbers
                commits[partition].append((event.time_ns, offset))
    read = 0
    seen: list[set[int]] = [set() for _ in range(partitions)]
    for member in members:
        for partition, run in _that_read(_runs(member)):
            start, end = run.offsets[0], run.offsets[-1]
            assert run.offsets == list(range(start, end + 1)), f"partition {partition}: gaps between {start} and {end}"
            known = max((offset for time_ns, offset in commits[partition] if time_ns < run.assigned_ns), default=0)
            assert start >= known, f"partition {partition} was read from {start} on, but {known} had been committed"
            seen[partition].update(run.offsets)
            read += len(run.offsets)
    for partition in range(partitions):
        missing = sorted(set(range(count)) - seen[partition])
        assert not missing, f"partition {partition}: {len(missing)} records were skipped, from {missing[0]} on"
    return read - count * partitions


def _runs(member: MemberProcess) -> Iterator[tuple[int, Run]]:
    runs: dict[int, Run] = {}
    for event in member.events():
        if event.kind == "R":
            partition, offset, value = event.numbers
            assert value == offset
            runs[partition].offsets.append(offset)
        elif event.kind in "AV":
            for partition in event.numbers:
                if partition in runs:
                    yield partition, runs.pop(partition)
                if event.kind == "A":
                    runs[partition] = Run(event.time_ns, [])
    yield from runs.items()


def _that_read(runs: Iterator[tuple[int, Run]]) -> Iterator[tuple[int, Run]]:
    return (one for one in runs if one[1].offsets)
