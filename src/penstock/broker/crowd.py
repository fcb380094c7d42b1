"""Requests that come from thousands of clients at once, a few in each turn of the event loop.

When a large group rebalances, all its members ask at the same moment and all their answers are due at the same moment.
Taken as they come they would fill one turn, and whoever else asks would wait until the last of them is served. So a
turn takes a number of them, and the others queue, in the order of their coming. The number is one of requests rather
than of milliseconds, so that a simulation repeats itself.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from penstock.broker.deferred import Deferred
from penstock.protocol.messages import Malformed

log = logging.getLogger("penstock.crowd")

# One or two milliseconds of work.
TAKEN_PER_TURN = 16


class Crowd:
    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], None], Deferred]] = deque()
        self._taken = 0
        self._is_turn_due = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def take(self) -> bool:
        """Whether the caller may go on at once; otherwise it is to be added."""
        if self._waiting or self._taken >= TAKEN_PER_TURN:
            return False
        self._taken += 1
        self._end_turn()
        return True

    def add(self, work: Callable[[], None], answer: Deferred) -> None:
        """Calls `work` in its turn; if that raises there will be no answer."""
        self._waiting.append((work, answer))
        self._end_turn()

    def run(self, work: Callable[[], None], answer: Deferred) -> None:
        """Calls `work` at once or, if this turn has taken enough, in its turn; it raises nothing."""
        if self.take():
            _do(work, answer)
        else:
            self.add(work, answer)

    def _end_turn(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_turn_due = False
        self._taken = 0
        while self._waiting and self._taken < TAKEN_PER_TURN:
            self._taken += 1
            _do(*self._waiting.popleft())
        if self._taken:
            self._end_turn()


def _do(work: Callable[[], None], answer: Deferred) -> None:
    try:
        work()
    except Malformed as problem:
        answer.fail(f"{problem}")
    except Exception:
        log.exception("a request met a defect in the broker")
        answer.fail("see the error above")
