"""Answers that come later, and how those of one client leave together."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker.metrics import RequestTimes
from penstock.protocol.fetch import Part

if TYPE_CHECKING:
    from penstock.broker.connection import Connection

# While answers are gathered: the connections that have some.
_gathering: "dict[Connection, None] | None" = None


class answers_gathered:
    """Deferred answers that are completed in here leave at the end, those of one client in one system call."""

    __slots__ = ("_is_outermost",)

    def __enter__(self) -> None:
        global _gathering
        self._is_outermost = _gathering is None
        if self._is_outermost:
            _gathering = {}

    def __exit__(self, *raised: object) -> None:
        global _gathering
        if self._is_outermost:
            gathered, _gathering = _gathering, None
            for connection in gathered or ():
                connection.release()


class Deferred:
    """An answer that comes later. The handler returns it and completes it once, from the event loop."""

    __slots__ = ("_connection", "_parts", "requests", "timed")

    def __init__(self, requests: int = 1) -> None:
        # How many it is the answer to.
        self.requests = requests
        # Whose times it is counted among, and since when.
        self.timed: tuple[RequestTimes, int] | None = None
        self._connection: Connection | None = None
        self._parts: Iterable[Part] | None = None

    @property
    def is_done(self) -> bool:
        return self._parts is not None

    def complete(self, parts: Iterable[Part]) -> None:
        self._parts = parts
        if self.timed is not None:
            times, started_ns = self.timed
            times.record_deferred(started_ns, self.requests)
        connection = self._connection
        if connection is not None:
            if _gathering is None:
                connection.release()
            else:
                _gathering[connection] = None

    def fail(self, why: str) -> None:
        """No answer can be given: the client learns by the closed connection."""
        if self._connection is not None:
            self._connection.close(why)


def note_time(answer: "Deferred | Iterable[Part] | None", times: RequestTimes, started_ns: int) -> None:
    """Counts what was answered, now or once it is."""
    if isinstance(answer, Deferred) and answer._parts is None:
        answer.timed = times, started_ns
    else:
        times.record(started_ns)
