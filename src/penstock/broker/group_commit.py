"""One fdatasync for everything that waits: the answers to `acks=all` and to metadata changes.

A sync costs milliseconds, so while one is under way all who come are gathered, and the next one serves them together.
The kernel does it where there are several files, else threads; the event loop goes on.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import count

from penstock.base.ports import DiskError, File
from penstock.broker.kernel_syncs import KernelSyncs
from penstock.broker.ports import RealFile, sync_problem

# Called once with None when the bytes are durable, else with what went wrong.
Done = Callable[[DiskError | None], None]

_THREADS = 4


class GroupCommit:
    def __init__(self, threads: Executor | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads or ThreadPoolExecutor(_THREADS, thread_name_prefix="sync")
        self._kernel = KernelSyncs.make(self._loop) if threads is None else None
        self._waiting_files: dict[str, File] = {}
        self._waiting: list[tuple[tuple[str, ...], Done]] = []
        self._is_syncing = False
        self._is_stopped = False

    def submit(self, files: Iterable[File], done: Done) -> None:
        """Calls `done` from the loop once all that was appended to `files` so far is on the disk."""
        paths = []
        for file in files:
            self._waiting_files[file.path] = file
            paths.append(file.path)
        self._waiting.append((tuple(paths), done))
        if not self._is_syncing:
            self._is_syncing = True
            # Not at once: what else arrived in this turn of the loop joins the same sync.
            self._loop.call_soon(self._start)

    async def sync(self, files: Iterable[File]) -> None:
        """The same for coroutines. Raises DiskError."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done(problem: DiskError | None) -> None:
            if future.cancelled():
                return
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)

        self.submit(files, done)
        await future

    def stop(self) -> None:
        """Finishes the syncs under way. Who came too late for one gets no answer, and so no promise."""
        self._is_stopped = True
        self._threads.shutdown(wait=True)
        if self._kernel is not None:
            self._kernel.stop()
            self._kernel = None

    def _start(self) -> None:
        if self._is_stopped:
            return
        files, self._waiting_files = self._waiting_files, {}
        waiting, self._waiting = self._waiting, []
        if not files:
            self._finish(waiting, {})
            return
        sync = _Round(len(files), lambda problems: self._finish(waiting, problems), self._loop)
        left = list(files.values())
        if self._kernel is not None and len(left) > 1:
            # One alone is quicker in a thread where all cores are busy: the kernel's stay on the core that asked.
            left = self._start_in_kernel(self._kernel, sync, left)
        for file in left:
            self._threads.submit(sync.run_in_thread, file)

    def _start_in_kernel(self, kernel: KernelSyncs, sync: "_Round", files: list[File]) -> list[File]:
        """The files that are left for the threads."""
        left, syncs, syncing = [], [], []
        for file in files:
            descriptor = file.descriptor_to_sync() if isinstance(file, RealFile) else None
            if descriptor is None:
                left.append(file)
            else:
                syncing.append(file)
                syncs.append((descriptor, partial(sync.synced, file)))
        return left + syncing[kernel.submit(syncs) :]

    def _finish(self, waiting: list[tuple[tuple[str, ...], Done]], problems: dict[str, DiskError]) -> None:
        if problems:
            # The kernel may have dropped what came while the sync ran, and call the next one a success.
            came_meanwhile, self._waiting = self._waiting, []
            for paths, done in came_meanwhile:
                (self._waiting if problems.keys().isdisjoint(paths) else waiting).append((paths, done))
        for paths, done in waiting:
            done(next((problems[path] for path in paths if path in problems), None) if problems else None)
        if self._waiting:
            self._start()
        else:
            self._is_syncing = False


class _Round:
    """The files of one sync. The thread that is the last to be done wakes the loop, once for all of them."""

    def __init__(
        self, files: int, finish: Callable[[dict[str, DiskError]], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._files = files
        self._finish = finish
        self._loop = loop
        # One step of a counter cannot be interrupted by another thread.
        self._synced = count(1)
        self._problems: dict[str, DiskError] = {}

    def run_in_thread(self, file: File) -> None:
        try:
            file.sync()
        except DiskError as problem:
            self._problems[file.path] = problem
        if next(self._synced) == self._files:
            self._loop.call_soon_threadsafe(self._finish, self._problems)

    def synced(self, file: File, error_number: int) -> None:
        """By the kernel."""
        if error_number:
            self._problems[file.path] = sync_problem(error_number, file.path)
        if next(self._synced) == self._files:
            self._finish(self._problems)
