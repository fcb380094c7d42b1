"""The process that compacts logs for a node: python -m penstock.broker.cleaner_helper DATA_DIRECTORY.

It takes jobs on its standard input and tells on its standard output what it has done, as pickled objects. It reads
segments and writes `.cleaned` files, nothing else; putting them in place is the node's. It ends with its node: when the
input is at its end, there is nobody left to work for.
"""

import os
import pickle
import queue
import sys
import threading
import time
from typing import BinaryIO, NamedTuple

from penstock.base.errors import Refused
from penstock.base.ports import DiskError
from penstock.broker.ports import RealDisk
from penstock.log.compaction import Compaction, CompactionJob, Finished, Replacement, Step
from penstock.log.compaction_native import compile_kernels

_NICENESS = 10
_REPORT_SECONDS = 0.1


class Assignment(NamedTuple):
    job: CompactionJob
    bytes_per_second_max: float


class Failed(NamedTuple):
    """The pass could not be finished. `is_corrupt`: trying again will not help."""

    reason: str
    is_corrupt: bool


Report = Step | Replacement | Finished | Failed


class Throttle:
    """Sleeps so that no more than so many bytes a second are read and written."""

    def __init__(self, bytes_per_second_max: float) -> None:
        self._rate = bytes_per_second_max
        self._bytes = 0
        self._started_s = time.monotonic()

    def spend(self, count: int) -> None:
        self._bytes += count
        ahead_s = self._started_s + self._bytes / self._rate - time.monotonic()
        if ahead_s > 0.001:
            time.sleep(ahead_s)


def work(root: str, assignment: Assignment, output: BinaryIO) -> None:
    """One pass, told of as it goes on. Steps are gathered: the node need not hear of every megabyte."""
    # A disk of its own for each pass: files of an earlier one may have been replaced since.
    disk = RealDisk(root)
    throttle = Throttle(assignment.bytes_per_second_max)
    bytes_read = bytes_written = 0
    told_s = time.monotonic()
    try:
        for step in Compaction(disk, assignment.job).steps():
            if not isinstance(step, Step):
                _tell(output, Step(bytes_read, bytes_written))
                _tell(output, step)
                bytes_read = bytes_written = 0
                continue
            bytes_read += step.bytes_read
            bytes_written += step.bytes_written
            throttle.spend(step.bytes_read + step.bytes_written)
            if time.monotonic() - told_s > _REPORT_SECONDS:
                _tell(output, Step(bytes_read, bytes_written))
                bytes_read = bytes_written = 0
                told_s = time.monotonic()
    except DiskError as problem:
        _tell(output, Failed(str(problem), is_corrupt=False))
    except Refused as problem:
        _tell(output, Failed(problem.message, is_corrupt=True))
    finally:
        disk.close()


def _tell(output: BinaryIO, report: Report) -> None:
    data = pickle.dumps(report)
    output.write(len(data).to_bytes(4, "big") + data)
    output.flush()


def main() -> None:
    os.nice(_NICENESS)
    assignments: queue.SimpleQueue[Assignment] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(assignments,), daemon=True).start()
    compile_kernels()
    while True:
        work(sys.argv[1], assignments.get(), sys.stdout.buffer)


def _receive(assignments: "queue.SimpleQueue[Assignment]") -> None:
    """In a thread of its own, so that the end of the node is noticed at once: a successor may be about to start, and
    must not find somebody else writing in its directory."""
    try:
        while True:
            assignments.put(pickle.load(sys.stdin.buffer))
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    # What is pickled must have the module's own name, not that of the program which it is here.
    from penstock.broker.cleaner_helper import main as main_of_module

    main_of_module()
