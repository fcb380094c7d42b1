"""One fdatasync for everything that waits: the answers to `acks=all` and to metadata changes.

A sync costs milliseconds, so while one is under way all who come are gathered, and the next one serves them together.
It runs in a thread; the event loop goes on.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor

from penstock.base.ports import DiskError, File

# Called once with None when the bytes are durable, else with what went wrong.
Done = Callable[[DiskError | None], None]

_THREADS = 4


class GroupCommit:
    def __init__(self, threads: Executor | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads or ThreadPoolExecutor(_THREADS, thread_name_prefix="sync")
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

    def _start(self) -> None:
        if self._is_stopped:
            return
        files, self._waiting_files = self._waiting_files, {}
        waiting, self._waiting = self._waiting, []
        problems: dict[str, DiskError] = {}
        left = len(files)

        def synced(path: str, problem: DiskError | None) -> None:
            nonlocal left
            left -= 1
            if problem is not None:
                problems[path] = problem
            if not left:
                self._finish(waiting, problems)

        for path, file in files.items():
            self._threads.submit(self._sync_in_thread, path, file, synced)
        if not files:
            self._finish(waiting, problems)

    def _sync_in_thread(self, path: str, file: File, synced: Callable[[str, DiskError | None], None]) -> None:
        problem = None
        try:
            file.sync()
        except DiskError as error:
            problem = error
        self._loop.call_soon_threadsafe(synced, path, problem)

    def _finish(self, waiting: list[tuple[tuple[str, ...], Done]], problems: dict[str, DiskError]) -> None:
        for paths, done in waiting:
            done(next((problems[path] for path in paths if path in problems), None) if problems else None)
        if self._waiting:
            self._start()
        else:
            self._is_syncing = False
