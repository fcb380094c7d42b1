"""A fetch that found fewer bytes than it asked for: woken by the append that brings enough, or by its deadline."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.cluster.partition.partition import Partition


class WaitingFetch:
    """Counts down the bytes that appends bring and calls `finish` exactly once."""

    __slots__ = ("_bytes_missing", "_finish", "_partitions", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        bytes_missing: int,
        wait_ms_max: int,
        finish: Callable[[], None],
    ) -> None:
        self._partitions = partitions
        self._bytes_missing = bytes_missing
        self._finish = finish
        self._timer = loop.call_later(wait_ms_max / 1000, self._expire)
        for partition in partitions:
            if partition.append_listeners is None:
                partition.append_listeners = set()
            partition.append_listeners.add(self.on_append)

    def on_append(self, size: int) -> None:
        self._bytes_missing -= size
        if self._bytes_missing <= 0:
            self._expire()

    def give_up(self) -> None:
        """The client is gone; nobody wants the answer."""
        self._timer.cancel()
        for partition in self._partitions:
            if partition.append_listeners is not None:
                partition.append_listeners.discard(self.on_append)
                if not partition.append_listeners:
                    partition.append_listeners = None

    def _expire(self) -> None:
        self.give_up()
        self._finish()
