"""How fast partitions may be copied while they move (KIP-73), so that clients keep their share of the network.

The rate is of all throttled replicas on one node together, sent as a leader or received as a follower, over the last
eleven seconds. Only replicas that are not in sync wait: one that has caught up must not fall behind because
of it.
"""

from collections import deque

_WINDOW_MS = 1_000
_WINDOWS = 11


class Throttle:
    def __init__(self) -> None:
        # None: nothing is held back.
        self.bytes_per_second: int | None = None
        # (when it began, bytes) of each second in which there were any.
        self._windows: deque[tuple[int, int]] = deque()

    def record(self, size: int, now_ms: int) -> None:
        if self._windows and now_ms - self._windows[-1][0] < _WINDOW_MS:
            began_ms, before = self._windows.pop()
            self._windows.append((began_ms, before + size))
        else:
            self._windows.append((now_ms, size))

    def is_exceeded(self, now_ms: int) -> bool:
        if self.bytes_per_second is None:
            return False
        windows = self._windows
        while windows and now_ms - windows[0][0] > _WINDOWS * _WINDOW_MS:
            windows.popleft()
        if not windows:
            return False
        elapsed_ms = max(now_ms - windows[0][0], _WINDOW_MS)
        return sum(size for _, size in windows) * 1000 > self.bytes_per_second * elapsed_ms
