"""A fetch that found fewer bytes than it asked for: woken by the append that brings enough, or by its deadline."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.cluster.partition.partition import Listeners, Partition

# An append of so many bytes wakes any fetch: what is told to those that wait on a partition that goes away.
WAKE_BYTES = 1 << 62


class WaitingFetch:
    """Counts down the bytes that appends bring and calls `finish` when there are enough, or the time is up. `finish`
    may ask for more by `wait_for`, unless it is told that the time is up."""

    __slots__ = ("_bytes_missing", "_finish", "_listeners", "_partitions", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        bytes_missing: int,
        wait_ms_max: int,
        finish: Callable[[bool], None],
    ) -> None:
        self._partitions = partitions
        self._bytes_missing = bytes_missing
        self._finish = finish
        self._timer = loop.call_later(wait_ms_max / 1000, self._expire)
        self._listeners: Sequence[Callable[[int], None]] = [self._listener(partition) for partition in partitions]
        for partition, listener in zip(partitions, self._listeners, strict=True):
            partition.append_listeners = partition.append_listeners or {}
            partition.append_listeners[listener] = None

    def _listener(self, partition: Partition) -> Callable[[int], None]:
        return self.on_append

    def on_append(self, size: int) -> None:
        self._bytes_missing -= size
        if self._bytes_missing <= 0:
            self._finish(size >= WAKE_BYTES)

    def wait_for(self, bytes_missing: int) -> None:
        self._bytes_missing = bytes_missing

    def give_up(self) -> None:
        """The answer is given, or the client is gone and nobody wants it.

        What refers to this and is referred to by it is let go. Left to the garbage collector, which needs milliseconds
        for what some hundred fetches leave, it was most of what a slow answer took."""
        self._timer.cancel()
        for partition, listener in zip(self._partitions, self._listeners, strict=True):
            partition.append_listeners = _without(partition.append_listeners, listener)
        self._partitions = self._listeners = ()
        self._finish = _is_finished

    def _expire(self) -> None:
        self._finish(True)


class WaitingCommittedFetch(WaitingFetch):
    """For those who read committed records only: not an append counts, but what the last stable offset lets through."""

    __slots__ = ()

    def _listener(self, partition: Partition) -> Callable[[int], None]:
        stable_offset = partition.last_stable_offset

        def on_append(size: int) -> None:
            nonlocal stable_offset
            if size >= WAKE_BYTES:
                self.on_append(size)
                return
            before, stable_offset = stable_offset, partition.last_stable_offset
            if stable_offset > before:
                # What a marker lets through came in many appends; how much it is, looking tells.
                self.on_append(WAKE_BYTES - 1)

        return on_append


def _is_finished(is_time_up: bool) -> None:
    """Told again, by an append to a partition that was asked for twice."""


def _without(listeners: Listeners | None, listener: Callable[[int], None]) -> Listeners | None:
    if listeners is not None:
        listeners.pop(listener, None)
    return listeners or None
