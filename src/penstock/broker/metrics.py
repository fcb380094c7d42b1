"""What the node counts: request times by API, the lag of the event loop, failures. Plain integers, always on.

Counters of partitions are attributes of the partitions; `metrics_page` puts all of it into Prometheus' format.
"""

import asyncio
import logging
from collections import Counter, deque
from time import perf_counter_ns

from penstock.base.metrics import BUCKETS, bucket_of, since

slow_log = logging.getLogger("penstock.slow")

_LAG_PERIOD_SECONDS = 0.5
# Percentiles are of the last one to two minutes.
_WINDOW_SECONDS = 60
# They wait by their nature, for data or for other members.
_WAITING_APIS = frozenset({1, 11, 14, 78})
_NEVER_US = 1 << 62


class RequestTimes:
    """Of one API. `counts` are for all time; `recent` are those of the window."""

    __slots__ = ("_deferred_slow_us", "_earlier", "_slow_us", "counts", "name", "sum_us")

    def __init__(self, name: str, slow_us: int, deferred_slow_us: int) -> None:
        self.name = name
        self.counts = [0] * BUCKETS
        self.sum_us = 0
        self._slow_us = slow_us
        self._deferred_slow_us = deferred_slow_us
        self._earlier: deque[list[int]] = deque([[0] * BUCKETS], maxlen=2)

    def record(self, started_ns: int, requests: int = 1) -> None:
        """Of so many requests that were served together."""
        elapsed_us = (perf_counter_ns() - started_ns) // 1000
        self.counts[bucket_of(elapsed_us)] += requests
        self.sum_us += requests * elapsed_us
        if elapsed_us > self._slow_us:
            slow_log.warning("%s kept the node busy for %d ms", self.name, elapsed_us // 1000)

    def record_deferred(self, started_ns: int, requests: int) -> None:
        """Of answers that had to wait for something."""
        elapsed_us = (perf_counter_ns() - started_ns) // 1000
        self.counts[bucket_of(elapsed_us)] += requests
        self.sum_us += requests * elapsed_us
        if elapsed_us > self._deferred_slow_us:
            slow_log.warning("%s was answered after %d ms", self.name, elapsed_us // 1000)

    def recent(self) -> list[int]:
        return since(self.counts, self._earlier[0])

    def next_window(self) -> None:
        self._earlier.append(self.counts.copy())


class BrokerMetrics:
    def __init__(self, slow_request_ms: int) -> None:
        self._slow_us = slow_request_ms * 1000
        self.times: dict[int, RequestTimes] = {}
        # By topic; "" for what is not here.
        self.failed_produce_requests: Counter[str] = Counter()
        self.failed_fetch_requests: Counter[str] = Counter()
        self.loop_lag = RequestTimes("loop", _NEVER_US, _NEVER_US)
        self.loop_lag_max_us = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0

    def times_of(self, api_key: int, name: str) -> RequestTimes:
        waits = api_key in _WAITING_APIS
        return self.times.setdefault(api_key, RequestTimes(name, self._slow_us, _NEVER_US if waits else self._slow_us))

    def start(self) -> None:
        """Watches the event loop from now on."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + _LAG_PERIOD_SECONDS

        def tick() -> None:
            nonlocal due_s
            lag_us = max(0, int((loop.time() - due_s) * 1e6))
            self.loop_lag.counts[bucket_of(lag_us)] += 1
            self.loop_lag.sum_us += lag_us
            self.loop_lag_max_us = max(self.loop_lag_max_us, lag_us)
            self._ticks += 1
            if self._ticks % int(_WINDOW_SECONDS / _LAG_PERIOD_SECONDS) == 0:
                for times in (*self.times.values(), self.loop_lag):
                    times.next_window()
            due_s = loop.time() + _LAG_PERIOD_SECONDS
            self._timer = loop.call_at(due_s, tick)

        self._timer = loop.call_at(due_s, tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def take_loop_lag_max_us(self) -> int:
        """Since it was last taken."""
        lag_us, self.loop_lag_max_us = self.loop_lag_max_us, 0
        return lag_us
