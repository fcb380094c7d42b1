"""Processes of a benchmark run: each in a session of its own, ended by its id whatever happens to the run."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

# What the goals for many partitions are stated with; both brokers get it always.
OPEN_FILES_MAX = 20_000

Process = subprocess.Popen[bytes]

_PR_SET_PDEATHSIG = 1
_CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_libc = ctypes.CDLL(None)
_running: dict[int, Process] = {}


class Failed(Exception):
    """A broker or a client did not do its part; the message says which, and what it printed."""


def _in_the_child() -> None:
    # A run that is killed -9 cannot clean up: its children end with it.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(OPEN_FILES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))


def start(command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Starts `command` with everything it prints in the file `output`."""
    with output.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=_in_the_child,
        )
    _running[process.pid] = process
    return process


def run(command: Sequence[str], output: Path, timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
    """Runs `command` to its end; what it printed. Raises Failed when that was not exit code 0 within the time."""
    output.unlink(missing_ok=True)
    process = start(command, output, environment)
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"{_name(command)} was not done after {timeout_s:.0f} s: {last_lines(output)}") from None
    finally:
        end(process, timeout_s=0)
    if code != 0:
        raise Failed(f"{_name(command)} ended with exit code {code}: {last_lines(output)}")
    return output.read_text(errors="replace")


def end(process: Process, timeout_s: float) -> bool:
    """Ends it with what it started: SIGTERM, then SIGKILL to what is left. Whether SIGTERM was enough."""
    in_time = True
    children: list[int] = []
    if process.poll() is None:
        if timeout_s > 0:
            process.terminate()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                in_time = False
        if process.poll() is None:
            # Penstock's nodes have process groups of their own.
            children = _children(process.pid)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _running.pop(process.pid, None)
    return in_time


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def end_all() -> None:
    for process in list(_running.values()):
        end(process, timeout_s=5)


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time so far, children that were waited for not counted."""
    ticks = 0
    for pid in pids:
        # The second field is the program's name in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _CLOCK_TICKS_PER_SECOND


def ended_children_cpu_seconds() -> float:
    """User and system time of all the processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def resident_bytes(pids: Iterable[int]) -> int:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def last_lines(output: Path, count: int = 4) -> str:
    lines = (
        [line for line in output.read_text(errors="replace").splitlines() if line.strip()] if output.exists() else []
    )
    return " | ".join(lines[-count:]) or "it printed nothing"


def _name(command: Sequence[str]) -> str:
    for word in command:
        if word.startswith(("bench.", "org.apache.", "kafka.")):
            return word
    return command[0]
