"""A Spark cluster of several processes: drivers and executors are killed, and every row is there once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

import penstock.arrow
from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node, free_port, wait_until
from tests.e2e.spark.conftest import REPOSITORY

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),
]

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY))),
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_NO_DAEMONIZE": "1",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
RECORDS = 6_000
WORKERS = 2


class Process:
    """In a session of its own, so that all it started can be ended with it."""

    def __init__(self, command: list[str], output: Path) -> None:
        self._output = output
        with output.open("wb") as stream:
            self.process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, env=ENVIRONMENT, start_new_session=True
            )

    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def spark_cluster(directory: Path) -> Iterator[str]:
    """The address of a master with its workers."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
    worker += ["--cores", "1", "--memory", "600m"]
    started = [Process([str(SPARK_CLASS), *master], directory / "master.out")]
    try:
        wait_until(lambda: "I have been elected leader" in started[0].said(), "there is a master", 120)
        for number in range(WORKERS):
            work = ["--work-dir", str(directory / f"work-{number}"), address]
            started.append(Process([str(SPARK_CLASS), *worker, *work], directory / f"worker-{number}.out"))
        for each in started[1:]:
            wait_until(lambda each=each: "Successfully registered" in each.said(), "a worker is there", 120)  # type: ignore[misc]
        yield address
    finally:
        for each in reversed(started):
            each.kill()


def executors(directory: Path) -> list[int]:
    """Executor processes of the workers that work in this directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            is_ours = (entry / "cwd").readlink().is_relative_to(directory)
        except OSError:
            continue
        if is_ours and b"CoarseGrainedExecutorBackend" in line:
            found.append(int(entry.name))
    return found


def test_killed_drivers_and_executors_cost_no_row_and_double_none(node: Node, topic_name: str, tmp_path: Path) -> None:
    target = f"{topic_name}-copy"
    with Wire(node.port) as wire:
        create_topic(wire, topic_name, 2)
        create_topic(wire, target, 2)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic_name, value=str(number), partition=number % 2)
    assert producer.flush(30) == 0
    chance = random.Random(4)
    with spark_cluster(tmp_path) as master:
        job = [sys.executable, str(Path(__file__).with_name("copy_job.py")), master, node.bootstrap]
        job += [topic_name, target, str(tmp_path / "checkpoint")]

        def attempt(number: int, disturb: Callable[[Process], None]) -> bool:
            driver = Process(job, tmp_path / f"driver-{number}.out")
            try:
                wait_until(lambda: "started" in driver.said() or driver.process.poll() is not None, "it runs", 300)
                disturb(driver)
                driver.process.wait(300)
                return "done" in driver.said()
            finally:
                driver.kill()

        def kill_driver(driver: Process) -> None:
            time.sleep(chance.uniform(2, 6))
            driver.kill()

        def kill_executor(driver: Process) -> None:
            time.sleep(chance.uniform(1, 4))
            for pid in executors(tmp_path)[:1]:
                os.kill(pid, signal.SIGKILL)

        outcomes = [attempt(0, kill_driver), attempt(1, kill_driver), attempt(2, kill_executor)]
        if not outcomes[-1]:
            assert attempt(3, lambda _: None)
    table = penstock.arrow.read(target, bootstrap_servers=node.bootstrap, columns=["value"])
    assert sorted(int(value) for value in table["value"].to_pylist()) == list(range(RECORDS))
