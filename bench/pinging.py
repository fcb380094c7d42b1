"""How long a broker lets others wait: ApiVersions round trips on a connection of its own, one after the other.

    python -m bench.pinging PORT FILE [PID]
        writes {"count": ..., "p50_ms": ..., "p99_ms": ..., "max_ms": ...} at SIGTERM

With the process id of a broker that serves everybody from one event loop also "work_max_ms", the most of its own CPU
time that a round trip saw, and "longest_work_ms", what the longest round trip saw of it: the rest of a wait is the
scheduler's, which had others to run, or the disk's. A turn of the loop is missed by no more than the pause between two
round trips.
"""

import json
import signal
import sys
import time
from pathlib import Path

from bench import wire
from penstock.protocol.messages import Struct

_PAUSE_SECONDS = 0.002


def command(port: int, output: Path, broker_pid: int | None) -> list[str]:
    pid = [] if broker_pid is None else [str(broker_pid)]
    return [sys.executable, "-m", "bench.pinging", str(port), str(output), *pid]


def _cpu_clock(pid: int) -> int:
    """Linux' number of the clock that counts the CPU time of another process; libc has only a function for it."""
    return ~pid << 3 | 2


def main() -> None:
    port, output = int(sys.argv[1]), Path(sys.argv[2])
    clock = _cpu_clock(int(sys.argv[3])) if len(sys.argv) > 3 else None
    is_over = False

    def end(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    # (how long, and how much the broker worked meanwhile)
    round_trips_ms: list[tuple[float, float]] = []
    with wire.Connection(port) as connection:
        while not is_over:
            work_ns = 0 if clock is None else -time.clock_gettime_ns(clock)
            started_ns = time.perf_counter_ns()
            connection.ask(wire.API_VERSIONS, 0, Struct())
            elapsed_ns = time.perf_counter_ns() - started_ns
            work_ns += 0 if clock is None else time.clock_gettime_ns(clock)
            round_trips_ms.append((elapsed_ns / 1e6, work_ns / 1e6))
            time.sleep(_PAUSE_SECONDS)
    # The first one opens the connection on the broker's side.
    counted = sorted(round_trips_ms[1:])
    result = {
        "count": len(counted),
        "p50_ms": counted[len(counted) // 2][0],
        "p99_ms": counted[len(counted) * 99 // 100][0],
        "max_ms": counted[-1][0],
    }
    if clock is not None:
        result |= {"work_max_ms": max(work_ms for _, work_ms in counted), "longest_work_ms": counted[-1][1]}
    output.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
