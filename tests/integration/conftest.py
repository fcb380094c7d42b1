"""A node of ours, started the way people start it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.testing.ports import free_port
from tests.e2e.node import KEEPS_EVERYTHING

PENSTOCK = str(Path(sys.executable).parent / "penstock")
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 30


@dataclass
class Up:
    """A running `penstock up` and what it printed."""

    process: "subprocess.Popen[str]"
    data: Path
    address: str
    lines: list[str] = field(default_factory=list)
    is_ready: threading.Event = field(default_factory=threading.Event)

    def node_pid(self) -> int:
        return int((self.data / "node-1.pid").read_text())

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        self.process.send_signal(signal_number)
        return self.process.wait(STOP_SECONDS_MAX)


def start_up(data: Path, *arguments: str, port: int | None = None) -> Up:
    """Starts it and returns at once; `wait_until_ready` waits."""
    port = port or free_port()
    command = [PENSTOCK, "up", "--data", str(data), "--port", str(port), "--no-http", "--no-demo"]
    command += ["-X", "=".join(KEEPS_EVERYTHING), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    up = Up(process, data, f"127.0.0.1:{port}")
    threading.Thread(target=_read, args=(up,), daemon=True).start()
    return up


def _read(up: Up) -> None:
    assert up.process.stdout is not None
    with up.process.stdout as output:
        for line in output:
            up.lines.append(line)
            if line.startswith("ready "):
                up.is_ready.set()
    up.is_ready.set()


def wait_until_ready(up: Up) -> Up:
    assert up.is_ready.wait(START_SECONDS_MAX), "penstock up printed nothing"
    assert f"ready {up.address}\n" in up.lines, "".join(up.lines)
    return up


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a node that all tests of the session share."""
    up = wait_until_ready(start_up(tmp_path_factory.mktemp("node") / "data"))
    yield up.address
    assert up.stop() == 0, "".join(up.lines)


Penstock = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def penstock(node: str) -> Penstock:
    """Runs a `penstock` command against the shared node and expects its exit code."""

    def run(*arguments: str, stdin: str = "", exit_code: int = 0) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {"PENSTOCK_BROKERS": node, "COLUMNS": "120", "NO_COLOR": "1"}
        command = [PENSTOCK, *arguments]
        result = subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=environment, timeout=60, check=False
        )
        assert result.returncode == exit_code, f"{arguments} ended with {result.returncode}: {result.stderr}"
        assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture
def topic(penstock: Penstock) -> str:
    """A topic of three partitions of the test's own."""
    name = f"cli-{os.urandom(6).hex()}"
    penstock("topic", "create", name, "-p", "3")
    return name
