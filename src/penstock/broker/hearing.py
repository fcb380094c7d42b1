"""Which clients have something to say, and what is done once all of them were heard.

The event loop makes an object of every socket that is ready, and calls each by itself: a twentieth of what a small
request costs. So where the system has epoll, the connections share one of their own, which to the loop is a single
file, and all that are ready are heard in one step. `LoopHearing` does without.
"""

import asyncio
import logging
import select
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("penstock.hearing")

# So many are heard in one step, then it is the turn of everything else that waits for the loop.
_HEARD_MAX = 64


class Hearing(Protocol):
    def listen(self, descriptor: int, hear: Callable[[], None]) -> None:
        """Calls `hear` whenever there is something to read, or the other side has gone."""

    def ignore(self, descriptor: int) -> None: ...

    def when_all_were_heard(self, work: Callable[[], None], *, once_more: bool) -> None:
        """Calls `work` once, when those that have something to say now were heard; `once_more`: and those, too, that
        have something to say by then. It raises nothing."""

    def stop(self) -> None:
        """Everybody is ignored already."""


class LoopHearing:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def listen(self, descriptor: int, hear: Callable[[], None]) -> None:
        self._loop.add_reader(descriptor, hear)

    def ignore(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)

    def when_all_were_heard(self, work: Callable[[], None], *, once_more: bool) -> None:
        if once_more:
            self._loop.call_soon(self._loop.call_soon, work)
        else:
            self._loop.call_soon(work)

    def stop(self) -> None:
        pass


class EpollHearing:
    """On Linux."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._listeners: dict[int, Callable[[], None]] = {}
        self._work: list[Callable[[], None]] = []
        self._is_hearing = False
        self._hears_once_more = False
        loop.add_reader(self._epoll.fileno(), self._hear_all)

    def listen(self, descriptor: int, hear: Callable[[], None]) -> None:
        self._listeners[descriptor] = hear
        self._epoll.register(descriptor, select.EPOLLIN)

    def ignore(self, descriptor: int) -> None:
        del self._listeners[descriptor]
        self._epoll.unregister(descriptor)

    def when_all_were_heard(self, work: Callable[[], None], *, once_more: bool) -> None:
        if self._is_hearing:
            self._work.append(work)
            self._hears_once_more |= once_more
        else:
            self._loop.call_soon(work)

    def stop(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _hear_all(self) -> None:
        self._is_hearing, self._hears_once_more = True, False
        self._hear()
        if self._hears_once_more:
            self._hear()
        self._is_hearing = False
        if self._work:
            work, self._work = self._work, []
            for each in work:
                each()

    def _hear(self) -> None:
        # Hot. Those left over, if there are more, come first the next time.
        listeners = self._listeners
        for descriptor, _ in self._epoll.poll(0, _HEARD_MAX):
            # One that was heard before may have ended another connection.
            hear = listeners.get(descriptor)
            if hear is not None:
                try:
                    hear()
                except Exception:
                    log.exception("a connection met a defect in the broker")


def best_hearing(loop: asyncio.AbstractEventLoop) -> Hearing:
    return EpollHearing(loop) if hasattr(select, "epoll") else LoopHearing(loop)
