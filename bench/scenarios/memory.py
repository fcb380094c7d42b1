"""Resident memory of the broker's processes after the scenarios before this one."""

from collections.abc import Iterator

from bench import processes
from bench.figures import Figure, Sample, no_more_than
from bench.session import Session

FIGURES = (Figure("memory.after", "resident memory after all that", "", "MB", no_more_than(150)),)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    yield "memory.after", Sample(processes.resident_bytes(session.shared().pids()) / 1e6)
