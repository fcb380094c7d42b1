"""Log records to a topic: a handler for Python's logging that never makes the program wait.

    logging.getLogger().addHandler(PenstockHandler("127.0.0.1:9092", "logs"))

Each record is one JSON object: time, level, logger, message, process, thread, where it was, the exception where there
is one, and what was given by `extra=`. Records wait in memory for the cluster; if it stays away and the memory given
for them is full, the newest are dropped, counted, said once on stderr, and told in the topic itself as soon as it takes
records again. What is waiting when the program ends is sent first, for a limited time.
"""

import atexit
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
# Ours and our libraries' own records would go round in circles.
_OWN_LOGGERS = ("confluent_kafka", "penstock.logging")
_POLL_SECONDS = 0.1
_CONFIG: Mapping[str, Any] = {
    "client.id": "penstock-logging",
    "log_level": 0,
    "linger.ms": 50,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "message.timeout.ms": 300_000,
}


class PenstockHandler(logging.Handler):
    """`properties` are librdkafka's; `flush_seconds_max` is how long the end of the program may wait."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        level: int = logging.NOTSET,
        properties: Mapping[str, Any] | None = None,
        flush_seconds_max: float = 5.0,
    ) -> None:
        from confluent_kafka import Producer

        super().__init__(level)
        self.topic = topic
        self._flush_seconds_max = flush_seconds_max
        self._producer = Producer({**_CONFIG, **(properties or {}), "bootstrap.servers": bootstrap_servers})
        self._host = socket.gethostname()
        # Records that were given up, in all; and those of them that the topic has not been told of yet.
        self.lost = 0
        self._untold = 0
        self._counting = threading.Lock()
        self._is_closed = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="penstock-logging", daemon=True)
        self._poller.start()
        # Before logging's own end, which comes later and would find the interpreter half gone.
        atexit.register(self.close)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_OWN_LOGGERS):
            return
        try:
            value = json.dumps(self._as_dict(record), default=str, ensure_ascii=False).encode(errors="replace")
        except Exception:
            self.handleError(record)
            return
        self._send(value, record.name)

    def _send(self, value: bytes, key: str) -> None:
        if self._is_closed.is_set():
            self._lose(1, "the handler is closed")
            return
        try:
            self._producer.produce(self.topic, value, key.encode(errors="replace"), on_delivery=self._delivered)
        except BufferError:
            self._lose(1, "the cluster takes no records and the memory for them is full")
        except Exception as problem:
            self._lose(1, str(problem))

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._lose(1, error.str())
        elif self._untold:
            self._tell()

    def _lose(self, count: int, why: str) -> None:
        with self._counting:
            is_first = not self._untold
            self.lost += count
            self._untold += count
        if is_first:
            print(f"penstock.logging: records for topic '{self.topic}' are being lost: {why}", file=sys.stderr)

    def _tell(self) -> None:
        """The topic takes records again: it learns how many it did not get."""
        with self._counting:
            count, self._untold = self._untold, 0
        record = logging.LogRecord(
            "penstock.logging", logging.WARNING, __file__, 0, "%d log records were lost", (count,), None
        )
        value = json.dumps(self._as_dict(record) | {"lost": count}).encode()
        try:
            self._producer.produce(self.topic, value, record.name, on_delivery=self._delivered)
        except Exception:
            # No room for it yet: with one of the next deliveries.
            with self._counting:
                self._untold += count

    def _as_dict(self, record: logging.LogRecord) -> dict[str, Any]:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "host": self._host,
            "process": record.process,
            "thread": record.threadName,
            "file": record.pathname,
            "line": record.lineno,
            "function": record.funcName,
        }
        if record.exc_info:
            line["exception"] = (self.formatter or _FORMATTER).formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if extra:
            line["extra"] = extra
        return line

    def _poll(self) -> None:
        """Fetches what became of records, in a thread of its own, so that no log call has to."""
        while not self._is_closed.is_set():
            self._producer.poll(_POLL_SECONDS)

    def flush(self) -> None:
        """Waits, for a limited time, until all is sent. What is left then is not lost yet: it is still being tried."""
        self._producer.flush(self._flush_seconds_max)

    def close(self) -> None:
        """Sends what is waiting, for a limited time. What is left is lost, and that is said."""
        if self._is_closed.is_set():
            return
        atexit.unregister(self.close)
        left = self._producer.flush(self._flush_seconds_max)
        self._is_closed.set()
        self._poller.join(_POLL_SECONDS * 5)
        if left:
            self._untold = 0
            self._lose(left, f"{left} were still waiting when the program ended")
        super().close()


_FORMATTER = logging.Formatter()
