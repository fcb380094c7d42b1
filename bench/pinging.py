"""How long a broker lets others wait: ApiVersions round trips on a connection of its own, one after the other.

python -m bench.pinging PORT FILE      writes {"count": ..., "p50_ms": ..., "p99_ms": ..., "max_ms": ...} at SIGTERM
"""

import json
import signal
import sys
import time
from pathlib import Path

from bench import wire
from penstock.protocol.messages import Struct

_PAUSE_SECONDS = 0.002


def command(port: int, output: Path) -> list[str]:
    return [sys.executable, "-m", "bench.pinging", str(port), str(output)]


def main() -> None:
    port, output = int(sys.argv[1]), Path(sys.argv[2])
    is_over = False

    def end(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    round_trips_ms = []
    with wire.Connection(port) as connection:
        while not is_over:
            started_ns = time.perf_counter_ns()
            connection.ask(wire.API_VERSIONS, 0, Struct())
            round_trips_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
            time.sleep(_PAUSE_SECONDS)
    # The first one opens the connection on the broker's side.
    counted = sorted(round_trips_ms[1:])
    result = {
        "count": len(counted),
        "p50_ms": counted[len(counted) // 2],
        "p99_ms": counted[len(counted) * 99 // 100],
        "max_ms": counted[-1],
    }
    output.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
