"""What this process counts of itself: requests, their times, records, consumers."""

from collections import Counter

from penstock.base.metrics import Histogram


class HttpMetrics:
    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.times: dict[str, Histogram] = {}

    def count(self, method: str, status: int, elapsed_s: float) -> None:
        self.requests[method, status] += 1
        times = self.times.get(method)
        if times is None:
            # Anybody can make up methods, but not our memory.
            method = method if method in _METHODS else "other"
            times = self.times.setdefault(method, Histogram())
        times.record_us(int(elapsed_s * 1e6))


_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
