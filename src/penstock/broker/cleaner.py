"""Where passes of compaction run: in a helper process, or, for a disk that only this process has, on its own loop.

Hashing keys and rewriting batches would hold the interpreter's lock for seconds. So a process is started for it when
there is first something to do, and ended when there was nothing for a while; its memory goes with it.
"""

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from penstock.base.errors import Refused
from penstock.base.ports import Disk, DiskError
from penstock.broker.cleaner_helper import Assignment, Failed, Report
from penstock.broker.ports import RealDisk
from penstock.log.compaction import Compaction, CompactionJob, Finished

_IDLE_SECONDS_MAX = 120


class Cleaner(Protocol):
    def run(self, job: CompactionJob, bytes_per_second_max: float) -> AsyncGenerator[Report, None]:
        """Everything there is to tell of the pass, ending with Finished or Failed. Leaving it early ends the pass."""

    def stop(self) -> None: ...


def make_cleaner(disk: Disk) -> Cleaner:
    return HelperCleaner(disk) if isinstance(disk, RealDisk) else InlineCleaner(disk)


class InlineCleaner:
    """On the event loop, a chunk at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def run(self, job: CompactionJob, bytes_per_second_max: float) -> AsyncGenerator[Report, None]:
        try:
            for step in Compaction(self._disk, job).steps():
                yield step
                await asyncio.sleep(0)
        except DiskError as problem:
            yield Failed(str(problem), is_corrupt=False)
        except Refused as problem:
            yield Failed(problem.message, is_corrupt=True)

    def stop(self) -> None:
        """Nothing outlives `run`."""


class HelperCleaner:
    def __init__(self, disk: RealDisk) -> None:
        self._root = disk.absolute("")
        self._process: subprocess.Popen[bytes] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        # Talking to the process blocks.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cleaner")

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    async def run(self, job: CompactionJob, bytes_per_second_max: float) -> AsyncGenerator[Report, None]:
        loop = asyncio.get_running_loop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        is_over = False
        try:
            process = await loop.run_in_executor(self._thread, self._assign, Assignment(job, bytes_per_second_max))
            while not is_over:
                report = await loop.run_in_executor(self._thread, _receive, process)
                is_over = isinstance(report, Failed | Finished)
                yield report
        except (OSError, EOFError) as problem:
            yield Failed(f"the process that compacts has ended: {problem}", is_corrupt=False)
        finally:
            if is_over:
                self._idle_timer = loop.call_later(_IDLE_SECONDS_MAX, self._end_process)
            else:
                # It may be in the middle of a pass that nobody wants any more.
                self._end_process()

    def _assign(self, assignment: Assignment) -> "subprocess.Popen[bytes]":
        process = self._process
        if process is None or process.poll() is not None:
            # It finds the code that this process runs; -P keeps modules of the directory we happen to be in out of it.
            process = self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.broker.cleaner_helper", self._root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        assert process.stdin is not None
        pickle.dump(assignment, process.stdin)
        process.stdin.flush()
        return process

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def stop(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._process is not None:
            # The thread may be reading from it, and comes to the end of that.
            self._process.kill()
        self._thread.shutdown(wait=True)
        self._end_process()


def _receive(process: "subprocess.Popen[bytes]") -> Report:
    """Raises EOFError."""
    assert process.stdout is not None
    size = process.stdout.read(4)
    data = process.stdout.read(int.from_bytes(size, "big"))
    if not data:
        raise EOFError(f"its exit status is {process.poll()}")
    # What only our own helper can have written.
    report: Report = pickle.loads(data)
    return report
