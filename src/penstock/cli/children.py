"""The processes of `penstock up` as it sees them: started, listened to, stopped, and asked why they died."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LAST_LOG_LINES = 12


@dataclass(frozen=True)
class NodeOptions:
    """What `penstock.broker.node.NodeConfig` takes, as JSON can carry it."""

    node_id: int
    data_directory: str
    host: str
    port: int
    overrides: dict[str, str] = field(default_factory=dict)
    metrics_port: int | None = None


class Child:
    """A process of `module`, which takes JSON and says over a socket that it is ready, or why it refuses to start."""

    def __init__(
        self, name: str, module: str, options: dict[str, Any], address: str, directory: Path, log_format: str
    ) -> None:
        self.name = name
        self.address = address
        file_name = name.replace(" ", "-")
        self.log_path = directory / f"{file_name}.log"
        self.pid_path = directory / f"{file_name}.pid"
        self.is_ready = False
        self.refusal: str | None = None
        self.metrics_address: str | None = None
        self._received = b""
        self.channel, child_end = socket.socketpair()
        arguments = (
            options | {"channel_fd": child_end.fileno(), "log_path": str(self.log_path)} | {"log_format": log_format}
        )
        # -P keeps modules of the directory we happen to be in out of it. A session of its own keeps the
        # terminal's Ctrl-C from it: `up` alone decides when nodes stop.
        with self.log_path.open("ab") as log, child_end:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, json.dumps(arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[child_end.fileno()],
                start_new_session=True,
            )

    def receive(self) -> bool:
        """Takes what it said; False once it is gone."""
        try:
            data = self.channel.recv(65536)
        except ConnectionResetError:
            data = b""
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.refusal = message.get("refused", self.refusal)
            self.metrics_address = message.get("metrics", self.metrics_address)
            if "ready" in message:
                self.address = message["ready"]
                self.is_ready = True
                # Written only now: by then a node owns its data directory, so this is no other node's file.
                self.pid_path.write_text(f"{self.process.pid}\n")
        return bool(data)

    def obituary(self) -> str:
        """Why it ended, for people."""
        code = self.process.wait()
        if self.refusal is not None:
            return f"{self.name} did not start: {self.refusal}"
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lines = "".join(f"\n  | {line}" for line in _last_lines(self.log_path, self._log_start))
        return f"{self.name} {how}. The end of {self.log_path}:{lines or ' empty'}"

    def ended_as_asked(self) -> bool:
        """After a SIGTERM: ended cleanly, or before it had begun anything that needs an end."""
        code = self.process.wait()
        return code == 0 or (code == -signal.SIGTERM and not self.is_ready)

    def stop(self, signal_number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal_number)

    def forget(self) -> None:
        """After it ended."""
        self.channel.close()
        if self.is_ready:
            self.pid_path.unlink(missing_ok=True)


class NodeChild(Child):
    def __init__(self, options: NodeOptions, directory: Path, log_format: str = "text") -> None:
        self.options = options
        address = f"{options.host}:{options.port}"
        name = f"node {options.node_id}"
        super().__init__(name, "penstock.cli.node", asdict(options), address, directory, log_format)


def _last_lines(path: Path, start: int) -> list[str]:
    """The end of a log, but nothing that an earlier run wrote before `start`."""
    with path.open("rb") as log:
        size = os.fstat(log.fileno()).st_size
        # Smaller than at the start: it was rotated meanwhile.
        log.seek(max(start if start <= size else 0, size - 16384))
        return log.read().decode(errors="replace").splitlines()[-LAST_LOG_LINES:]
