"""Drivers, executors, Python workers and the broker are killed at every step of a micro-batch: rows are there once."""

import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

import penstock.arrow
from penstock.client.errors import ClientError
from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node
from tests.e2e.spark.crashing import STEPS
from tests.e2e.spark.spark_cluster import Process, executors, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("spark")]

VICTIMS = ("driver", "executor", "python worker", "broker")
PARTITIONS = 2
RECORDS_PER_ROUND = 60
# A driver that starts on a busy machine, a query that fails, and a micro-batch that is run again.
ROUND_SECONDS_MAX = 600


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node", "-X", "transaction.two.phase.commit.enable=true").start()
    yield node
    node.close()


class CrashingJob:
    """The job under test, with a supervisor as in production: a driver that ended is started again."""

    def __init__(self, node: Node, topic: str, master: str, directory: Path) -> None:
        self.node = node
        self.topic, self.target = topic, f"{topic}-copy"
        self._directory = directory
        self.meeting_place = directory / "crashes"
        script = str(Path(__file__).with_name("crash_job.py"))
        self._command = [sys.executable, script, master, node.bootstrap, topic, self.target]
        self._command.append(str(directory / "checkpoint"))
        self._drivers = 0
        self._driver: Process | None = None
        self.produced = 0

    def supervise(self) -> None:
        if self._driver is None or self._driver.process.poll() is not None:
            self.stop()
            self._drivers += 1
            output = self._directory / f"driver-{self._drivers}.out"
            self._driver = Process(self._command, output, PENSTOCK_CRASHES=str(self.meeting_place))

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver = None

    def said(self) -> str:
        return "" if self._driver is None else self._driver.said()

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.node.bootstrap})
        for _ in range(RECORDS_PER_ROUND):
            producer.produce(self.topic, value=str(self.produced), partition=self.produced % PARTITIONS)
            self.produced += 1
        assert producer.flush(60) == 0

    def crash(self, step: str, victim: str) -> None:
        """Waits until the step is reached, and kills."""
        (self.meeting_place / "plan").write_text(step)
        self.produce()
        reached = self.meeting_place / "reached"
        self._wait(reached.exists, f"a step '{step}'")
        pid = json.loads(reached.read_text())["pid"]
        if victim == "driver":
            self.stop()
        elif victim == "executor":
            self._kill_executor(pid)
        elif victim == "python worker":
            os.kill(pid, signal.SIGKILL)
        else:
            self.node.kill9()
        (self.meeting_place / "go").touch()
        if victim == "broker":
            self.node.start()

    def _kill_executor(self, task: int) -> None:
        """The one that the process belongs to; any, if it is the driver's."""
        # A driver that has just started may wait for its first one.
        self._wait(lambda: bool(executors(self._directory)), "an executor")
        running = executors(self._directory)
        own = [pid for pid in running if pid in _ancestors(task)]
        os.kill((own or running)[0], signal.SIGKILL)

    def heal(self) -> None:
        """Until every row is there; once, at any moment."""
        self._wait(lambda: len(self.committed()) >= self.produced, f"{self.produced} rows are there")
        found = self.committed()
        assert sorted(found) == list(range(self.produced))
        for name in ("reached", "go"):
            (self.meeting_place / name).unlink(missing_ok=True)

    def committed(self) -> list[int]:
        try:
            table = penstock.arrow.read(self.target, bootstrap_servers=self.node.bootstrap, columns=["value"])
        except ClientError:
            return []
        found = [int(value) for value in table["value"].to_pylist()]
        assert len(found) == len(set(found)), f"doubled: {sorted(each for each in found if found.count(each) > 1)}"
        return found

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + ROUND_SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline_s, f"waited in vain until there is {what}:\n{self.said()}"
            self.supervise()
            time.sleep(0.1)


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


@contextmanager
def crashing_job(node: Node, topic: str, directory: Path) -> Iterator[CrashingJob]:
    meeting_place = directory / "crashes"
    meeting_place.mkdir()
    with spark_cluster(directory, PENSTOCK_CRASHES=str(meeting_place)) as master:
        job = CrashingJob(node, topic, master, directory)
        with Wire(node.port) as wire:
            create_topic(wire, job.topic, PARTITIONS)
            create_topic(wire, job.target, PARTITIONS)
        try:
            yield job
        finally:
            job.stop()


Crash = tuple[str, str]


def _shuffled(crashes: Iterable[Crash]) -> list[Crash]:
    shuffled = list(crashes)
    random.Random(len(shuffled)).shuffle(shuffled)
    return shuffled


EACH_STEP_ONCE = _shuffled((step, VICTIMS[number % len(VICTIMS)]) for number, step in enumerate(STEPS))
HUNDRED = _shuffled(itertools.islice(itertools.cycle(itertools.product(STEPS, VICTIMS)), 100))
# A job lives through so many of the hundred.
PART_ROUNDS = 25


@pytest.mark.timeout(6000)
@pytest.mark.parametrize(
    "crashes",
    [
        pytest.param(EACH_STEP_ONCE, id="each step once"),
        *(
            pytest.param(HUNDRED[first : first + PART_ROUNDS], id=f"rounds {first + 1} to {first + PART_ROUNDS}")
            for first in range(0, len(HUNDRED), PART_ROUNDS)
        ),
    ],
)
def test_rows_are_there_once_whoever_is_killed_at_whichever_step(
    own_node: Node, topic_name: str, tmp_path: Path, crashes: list[Crash]
) -> None:
    with crashing_job(own_node, topic_name, tmp_path) as job:
        for number, (step, victim) in enumerate(crashes):
            print(f"round {number}: {step}: the {victim} is killed", flush=True)
            job.crash(step, victim)
            job.heal()
