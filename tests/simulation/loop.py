"""Time and turns: a scheduler in virtual time, and an asyncio event loop for each simulated process on it.

Production code needs no seam to run here: the loop is its seam. While a callback of a process runs, that process's loop
is the running one, so its tasks, timers, connections and executor jobs stay its own. A process can be held (SIGSTOP) or
ended between two callbacks (kill -9): what it had planned then waits, or never happens. Nothing here looks at the real
clock or at real sockets, so the order of callbacks is a function of the seed.
"""

import asyncio
import random
import traceback
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.sockets import SimSocket

T = TypeVar("T")


class Stalled(Exception):
    """The simulated processes keep each other busy without time going on."""


_CALLBACKS_PER_INSTANT_MAX = 200_000


class Turn:
    """One callback that is due, of one process. What asyncio's handles have besides, contexts, nobody here uses."""

    __slots__ = ("args", "callback", "is_cancelled", "owner", "when_s")

    def __init__(self, owner: "ProcessLoop", callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.owner = owner
        self.callback = callback
        self.args = args
        self.is_cancelled = False
        # By the owner's clock, if it has a time.
        self.when_s = 0.0

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class Scheduler:
    """What happens next, in the whole world."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.network: Network | None = None
        self.callbacks = 0
        # Exceptions that no simulated code has caught, with the process they ended in.
        self.defects: list[tuple[str, str]] = []
        self.ready: deque[Turn] = deque()
        self._timers: list[tuple[float, int, Turn]] = []
        self._number = 0
        # Events of the world itself: deliveries, faults.
        self.world = make_loop(self, "world", clock_rate=1.0)

    def at(self, when_s: float, turn: Turn) -> None:
        self._number += 1
        now_s = self.now_s
        heappush(self._timers, (when_s if when_s > now_s else now_s, self._number, turn))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """For the world's own events."""
        self._number += 1
        heappush(self._timers, (self.now_s + delay_s, self._number, Turn(self.world, callback, args)))

    def run(self, until_s: float) -> None:
        """Runs the world up to that time."""
        # Hot: everything that happens comes through here.
        ready, timers = self.ready, self._timers
        next_ready, make_ready = ready.popleft, ready.append
        set_running, next_timer = events._set_running_loop, heappop
        instant_ends = self.callbacks + _CALLBACKS_PER_INSTANT_MAX
        running: ProcessLoop | None = None
        try:
            while True:
                while ready:
                    turn = next_ready()
                    if turn.is_cancelled:
                        continue
                    owner = turn.owner
                    if owner.is_away:
                        if not owner.is_dead:
                            owner.held.append(turn)
                        continue
                    self.callbacks += 1
                    if owner is not running:
                        set_running(owner)
                        running = owner
                    try:
                        turn.callback(*turn.args)
                    except Exception as problem:
                        owner.call_exception_handler({"exception": problem})
                if self.callbacks > instant_ends:
                    raise Stalled(f"{_CALLBACKS_PER_INSTANT_MAX} callbacks at {self.now_s:.3f} s")
                instant_ends = self.callbacks + _CALLBACKS_PER_INSTANT_MAX
                if not timers or timers[0][0] > until_s:
                    self.now_s = until_s
                    return
                now_s = self.now_s = timers[0][0]
                while timers and timers[0][0] <= now_s:
                    turn = next_timer(timers)[2]
                    if not turn.is_cancelled:
                        make_ready(turn)
        finally:
            set_running(None)

    def run_until(self, is_done: Callable[[], bool], seconds_max: float, step_s: float = 0.05) -> bool:
        """Runs until the condition holds, looking at it now and then. Whether it came to hold in time."""
        deadline_s = self.now_s + seconds_max
        while not is_done():
            if self.now_s >= deadline_s:
                return False
            self.run(min(self.now_s + step_s, deadline_s))
        return True


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process, with a monotonic clock that may run a little fast or slow."""

    def __init__(self, scheduler: Scheduler, name: str, *, clock_rate: float) -> None:
        self.scheduler = scheduler
        self._make_ready = scheduler.ready.append
        self.name = name
        self.clock_rate = clock_rate
        self.is_dead = False
        self.is_held = False
        # Dead or held.
        self.is_away = False
        self.held: list[Turn] = []
        self.sockets: dict[SimSocket, None] = {}
        self._numbers = count(3)
        self._sockets_by_number: WeakValueDictionary[int, SimSocket] = WeakValueDictionary()
        self._jobs = SimExecutor(self)
        # How long the job that is running at the moment may take to tell of its result.
        self.job_seconds_max: float | None = None
        # asyncio keeps weak references only.
        self._tasks: dict[asyncio.Future[Any], None] = {}

    # Mishaps

    def hold(self) -> None:
        self.is_held = self.is_away = True

    def release(self) -> None:
        self.is_held = False
        self.is_away = self.is_dead
        held, self.held = self.held, []
        self.scheduler.ready.extend(held)

    def kill(self) -> None:
        """Nothing of this process happens any more. What it is made of stays in memory, so that no `finally` of it runs
        at a moment that the garbage collector would choose."""
        self.is_dead = self.is_away = True
        self.held.clear()

    # Time

    def time(self) -> float:
        return self.scheduler.now_s * self.clock_rate

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Turn:
        turn = Turn(self, callback, args)
        self._make_ready(turn)
        return turn

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Turn:
        if self.job_seconds_max is None:
            return self.call_soon(callback, *args)
        # A job tells what it has come to: the loop hears of it a moment later, if it still lives then.
        return self.call_later(self.scheduler.random.random() * self.job_seconds_max, callback, *args)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Turn:
        scheduler, rate = self.scheduler, self.clock_rate
        turn = Turn(self, callback, args)
        turn.when_s = when = scheduler.now_s * rate + delay
        scheduler.at(when / rate, turn)
        return turn

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Turn:
        turn = Turn(self, callback, args)
        turn.when_s = when
        self.scheduler.at(when / self.clock_rate, turn)
        return turn

    # Futures and tasks

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.pop(task, None)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        return asyncio.wrap_future((executor or self._jobs).submit(func, *args), loop=self)

    # The network

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        assert self.scheduler.network is not None
        return await self.scheduler.network.connect(self, protocol_factory, host, port)

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        self._watched(fd).watch_reading(self, callback, args)

    def remove_reader(self, fd: Any) -> bool:
        self._watched(fd).watch_reading(self, None, ())
        return True

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        self._watched(fd).watch_writing(self, callback, args)

    def remove_writer(self, fd: Any) -> bool:
        self._watched(fd).watch_writing(self, None, ())
        return True

    def number_socket(self, made: "SimSocket") -> int:
        """Its file descriptor."""
        number = next(self._numbers)
        self._sockets_by_number[number] = made
        return number

    def _watched(self, fd: Any) -> Any:
        return self._sockets_by_number[fd] if isinstance(fd, int) else fd

    # What asyncio asks

    # False. Every future and task asks, and this way Python is not needed for the answer.
    get_debug = staticmethod(bool)

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if self.is_dead or isinstance(problem, ConnectionError):
            return
        if problem is None:
            self.scheduler.defects.append((self.name, str(context.get("message"))))
            return
        self.scheduler.defects.append((self.name, "".join(traceback.format_exception(problem))))


def make_loop(scheduler: Scheduler, name: str, *, clock_rate: float) -> ProcessLoop:
    """What asyncio's interface has besides (signals, subprocesses, datagrams) no node of a simulation uses."""
    return ProcessLoop(scheduler, name, clock_rate=clock_rate)  # type: ignore[abstract]


class SimExecutor(Executor):
    """Threads of a process: a job is done at once or a little later, and its result is known later still. A crash may
    come before, between or after."""

    def __init__(self, loop: ProcessLoop, seconds_max: float = 0.004) -> None:
        self._loop = loop
        self._random = loop.scheduler.random
        self.seconds_max = seconds_max

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()

        def work() -> None:
            if future.cancelled():
                return
            self._loop.job_seconds_max = self.seconds_max
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as problem:
                future.set_exception(problem)
            finally:
                self._loop.job_seconds_max = None

        self._loop.call_later(self._random.choice((0.0, self._random.random())) * self.seconds_max, work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """There are no threads to end."""
