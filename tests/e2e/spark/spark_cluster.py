"""A Spark standalone cluster of several processes on this machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from penstock.testing.ports import free_port
from tests.e2e.node import wait_until
from tests.e2e.spark.conftest import REPOSITORY

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY))),
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_NO_DAEMONIZE": "1",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
WORKERS = 2


class Process:
    """In a session of its own, so that all it started can be ended with it."""

    def __init__(self, command: list[str], output: Path, **environment: str) -> None:
        self._output = output
        with output.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=ENVIRONMENT | environment,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def kill(self) -> None:
        """With whatever it started: Spark's Python daemons make groups of their own, but stay in the session."""
        for pid in _session_of(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _session_of(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # After the name in brackets: state, parent, group, session.
            if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(entry.name))
    return found


@contextmanager
def spark_cluster(directory: Path, **environment: str) -> Iterator[str]:
    """The address of a master with its workers."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
    worker += ["--cores", "1", "--memory", "600m"]
    started = [Process([str(SPARK_CLASS), *master], directory / "master.out", **environment)]
    try:
        wait_until(lambda: "I have been elected leader" in started[0].said(), "there is a master", 120)
        for number in range(WORKERS):
            work = ["--work-dir", str(directory / f"work-{number}"), address]
            command = [str(SPARK_CLASS), *worker, *work]
            started.append(Process(command, directory / f"worker-{number}.out", **environment))
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
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            is_ours = (entry / "cwd").readlink().is_relative_to(directory)
            if is_ours and b"CoarseGrainedExecutorBackend" in line:
                found.append(int(entry.name))
    return found
