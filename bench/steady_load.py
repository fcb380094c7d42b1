"""A producer that writes at a steady rate through whatever happens to a cluster, and what it noticed of it.

confluent-kafka with acks=all, idempotent, linger.ms=0; in turns to all partitions of a topic. A node that it found dead
it tries again after half a second: a node killed in one round leads in the next, and by default it would wait for up to
ten. A thread of the benchmark's process, because the benchmark has nothing to do meanwhile.
"""

import threading
import time
from typing import Any, NamedTuple

from confluent_kafka import Producer

from bench import processes

_PROGRESS_SECONDS_MAX = 120.0
_FLUSH_SECONDS_MAX = 130.0
# Shorter ones are everyday life.
_GAP_SECONDS_MIN = 0.02


class Gap(NamedTuple):
    """A time without an acknowledgement from a partition to which records are on their way all the time."""

    partition: int
    began_s: float
    seconds: float


class SteadyLoad(threading.Thread):
    def __init__(
        self, address: str, topic: str, partitions: int, records_per_second: int, record_bytes: int, **settings: Any
    ) -> None:
        """`settings` are confluent-kafka's, with underscores for dots."""
        super().__init__(daemon=True)
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / records_per_second
        self._value = bytes(record_bytes)
        self._ended = threading.Event()
        self._last_s = [time.monotonic()] * partitions
        self._gaps: list[Gap] = []
        self._counts = [0] * partitions
        self.errors: list[str] = []
        # (when it was acknowledged, seconds that took)
        self.latencies: list[tuple[float, float]] = []
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
            | {name.replace("_", "."): value for name, value in settings.items()}
        )

    def run(self) -> None:
        sent = 0
        due_s = time.monotonic()
        while not self._ended.is_set():
            try:
                self._producer.produce(
                    self._topic, self._value, partition=sent % self._partitions, on_delivery=self._delivered
                )
            except BufferError:
                # Nothing was acknowledged for long: what is waiting keeps the partitions busy.
                self._producer.poll(self._pause_s)
                continue
            sent += 1
            due_s = max(due_s + self._pause_s, time.monotonic() - 1)
            while (left_s := due_s - time.monotonic()) > 0:
                self._producer.poll(left_s)
        self._producer.flush(_FLUSH_SECONDS_MAX)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        now_s = time.monotonic()
        partition = message.partition()
        seconds = now_s - self._last_s[partition]
        if seconds >= _GAP_SECONDS_MIN:
            self._gaps.append(Gap(partition, self._last_s[partition], seconds))
        self._last_s[partition] = now_s
        self._counts[partition] += 1
        self.latencies.append((now_s, message.latency()))

    def await_progress(self, count: int = 20) -> None:
        """Until so many more records are acknowledged in each partition. Raises Failed."""
        wanted = [one + count for one in self._counts]
        deadline_s = time.monotonic() + _PROGRESS_SECONDS_MAX
        while any(one < enough for one, enough in zip(self._counts, wanted, strict=True)):
            if time.monotonic() > deadline_s:
                raise processes.Failed(f"no acknowledgement in {_PROGRESS_SECONDS_MAX:.0f} s: {self.errors[:1]}")
            time.sleep(0.01)

    def longest_gap_s(self, since_s: float) -> float:
        """Of those that ended after `since_s`; of all partitions the one that had to wait for longest."""
        return max((gap.seconds for gap in self._gaps if gap.began_s + gap.seconds >= since_s), default=0.0)

    def finish(self) -> None:
        self._ended.set()
        self.join()
