"""A node of ours as a process, started the way people start it: `penstock up` on a free port."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from penstock.testing.ports import free_port

PENSTOCK = str(Path(sys.executable).parent / "penstock")
# Generous: the machine may be busy with other things.
# Many tests write records of long ago, and a node looks for what is too old after half a minute.
KEEPS_EVERYTHING = ("log.retention.ms", "-1")
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
# What must never be in a node's log, whatever clients do.
DEFECTS = ("Traceback", "defect in the broker", "exception was never retrieved", "was never awaited", "Exception in")


def wait_until(condition: Callable[[], bool], what: str, seconds_max: float = 60) -> None:
    deadline_s = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {seconds_max} s in vain until {what}"
        time.sleep(0.01)


class Node:
    """`start` and `stop` as often as wanted; `close` at the end says whether all was well."""

    def __init__(self, data: Path, *arguments: str, has_demo: bool = False) -> None:
        self.data = data
        self.has_demo = has_demo
        self.port = free_port()
        self.arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._is_ready = threading.Event()
        self._reader: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def directory(self) -> Path:
        """Where the node keeps its log segments."""
        return self.data / "node-1"

    @property
    def pid(self) -> int:
        """Of the node itself, which is a child of `penstock up`."""
        return int((self.data / "node-1.pid").read_text())

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> "Node":
        assert self._process is None, "it runs already"
        command = [PENSTOCK, "up", "--data", str(self.data), "--port", str(self.port), "--no-http"]
        command += [*([] if self.has_demo else ["--no-demo"]), "-X", "=".join(KEEPS_EVERYTHING)]
        self._lines = []
        self._is_ready = threading.Event()
        self._process = subprocess.Popen(
            [*command, *self.arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        assert self._is_ready.wait(START_SECONDS_MAX), f"penstock up said nothing:\n{self.output}\n{self.log}"
        assert f"ready {self.bootstrap}\n" in self._lines, f"it did not start:\n{self.output}\n{self.log}"
        return self

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._lines.append(line)
                if line.startswith("ready "):
                    self._is_ready.set()
        self._is_ready.set()

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Ends it cleanly, and checks that it was."""
        assert self._process is not None
        self._process.send_signal(signal_number)
        assert self._end() == 0, f"the end was not clean:\n{self.output}\n{self.log}"

    def kill9(self) -> None:
        """kill -9 of the node. `penstock up` notices, says so and ends."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGKILL)
        assert self._end() == 1, self.output

    def _end(self) -> int:
        assert self._process is not None
        assert self._reader is not None
        process, self._process = self._process, None
        try:
            return process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return -1
        finally:
            self._reader.join(10)

    def restart(self) -> "Node":
        if self.is_running:
            self.stop()
        return self.start()

    def close(self) -> None:
        if self.is_running:
            self.stop()
        for defect in DEFECTS:
            assert defect not in self.log, self.log
            assert defect not in self.output, self.output

    @property
    def output(self) -> str:
        """What `penstock up` printed since it was last started."""
        return "".join(self._lines)

    @property
    def log(self) -> str:
        """What the node logged, over all its lives."""
        path = self.data / "node-1.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def resident_bytes(self) -> int:
        return self._status_bytes("VmRSS:")

    @property
    def resident_bytes_peak(self) -> int:
        """Since it was last forgotten."""
        return self._status_bytes("VmHWM:")

    def forget_peak(self) -> None:
        reset_peak = "5"
        Path(f"/proc/{self.pid}/clear_refs").write_text(reset_peak)

    @property
    def loop_seconds(self) -> float:
        """The processor time of its main thread, which the event loop runs in."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def _status_bytes(self, field: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {field}")

    def open_files(self) -> list[str]:
        paths = []
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                paths.append(str(link.readlink()))
            except FileNotFoundError:
                continue
        return paths
