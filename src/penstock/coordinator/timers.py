"""The timers of one shard: by key, each with what to do when it is due.

Putting a deadline off is the common case (every heartbeat does), so it costs one dictionary write: the heap keeps the
older, earlier entry, which is put back in its new place when it comes up.
"""

from collections.abc import Callable, Hashable
from heapq import heappop, heappush

from penstock.coordinator.effects import Effect

Action = Callable[[int], list[Effect]]
"""Called with the time; what it wants done leaves the shard."""


class Timers:
    __slots__ = ("_counter", "_heap", "_timers")

    def __init__(self) -> None:
        self._timers: dict[Hashable, tuple[int, Action]] = {}
        # (deadline, tie breaker, key). A key may have several entries; only its timer says when it is really due.
        self._heap: list[tuple[int, int, Hashable]] = []
        self._counter = 0

    def schedule(self, key: Hashable, at_ms: int, action: Action) -> None:
        """Replaces the key's timer. A time that is past means: at once, after what was decided has been replayed."""
        known = self._timers.get(key)
        self._timers[key] = (at_ms, action)
        if known is None or at_ms < known[0]:
            self._push(at_ms, key)

    def cancel(self, key: Hashable) -> None:
        self._timers.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    def next_deadline_ms(self) -> int | None:
        while self._heap:
            entry_at_ms, _, key = self._heap[0]
            timer = self._timers.get(key)
            if timer is not None and timer[0] <= entry_at_ms:
                return entry_at_ms
            heappop(self._heap)
            if timer is not None:
                self._push(timer[0], key)
        return None

    def pop_due(self, now_ms: int) -> Action | None:
        """Takes out the timer with the earliest deadline that has come."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        _, _, key = heappop(self._heap)
        return self._timers.pop(key)[1]

    def _push(self, at_ms: int, key: Hashable) -> None:
        self._counter += 1
        heappush(self._heap, (at_ms, self._counter, key))
