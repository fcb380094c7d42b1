"""Fuzzes for as long as it is told to, and says what it found.

    python -m tests.fuzz.run MINUTES [SEED]

Half of the time goes to requests, a quarter each to files of logs and to files of metadata.
"""

import asyncio
import random
import sys
import time
import traceback
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from tests.fuzz.files import try_damaged_log
from tests.fuzz.frames import GROWTH_BYTES_MAX, STALL_MS_MAX, FrameFigures, fire
from tests.fuzz.metadata import try_damaged_metadata

_FRAMES_SHARE, _FILES_SHARE = 0.5, 0.25


def try_cases(case: Callable[[random.Random], None], seed: int, seconds: float) -> tuple[int, list[str]]:
    """How many there were, and what those found that failed."""
    findings = []
    count = 0
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        try:
            case(random.Random(seed + count))
        except Exception:
            findings.append(f"{case.__name__} with the seed {seed + count}: {traceback.format_exc()}")
        count += 1
    return count, findings


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(32)
    console = Console(highlight=False)
    console.print(f"{minutes:g} minutes with the seed {seed}")
    seconds = minutes * 60
    figures = asyncio.run(fire(seed, frames=1 << 62, seconds_max=seconds * _FRAMES_SHARE))
    findings = [*figures.problems, *_beyond_bounds(figures)]
    table = Table("what", "count")
    for name in ("frames", "answers", "closed", "waiting"):
        table.add_row(name, f"{getattr(figures, name):,}")
    table.add_row("longest stall of the event loop", f"{figures.stall_ms_max:.0f} ms of processor time")
    table.add_row("growth of the memory", f"{figures.growth_bytes / 2**20:.1f} MiB")
    for case in (try_damaged_log, try_damaged_metadata):
        count, found = try_cases(case, seed, seconds * _FILES_SHARE)
        findings += found
        table.add_row(case.__name__.replace("try_", "").replace("_", " "), f"{count:,}")
    table.add_row("findings", f"{len(findings):,}", style="red" if findings else "green")
    console.print(table)
    for finding in findings[:20]:
        console.print(finding, style="red", markup=False)
    return 1 if findings else 0


def _beyond_bounds(figures: FrameFigures) -> list[str]:
    found = []
    if figures.stall_ms_max >= STALL_MS_MAX:
        found.append(f"the event loop stood still for {figures.stall_ms_max:.0f} ms")
    if figures.growth_bytes >= GROWTH_BYTES_MAX:
        found.append(f"the memory grew by {figures.growth_bytes / 2**20:.0f} MiB")
    return found


if __name__ == "__main__":
    sys.exit(main())
