"""The HTTP server as a client of the cluster: single and batched produce, poll, metrics, looking up schemas.

It is the same server for both brokers, so the ratio shows the broker and the absolute goals show the server. Produce is
acknowledged as the server does by default: acks=all, idempotent; Penstock has synced it then.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import processes, wire
from bench.figures import Figure, Goal, Sample, no_more_than
from bench.http_load import HttpLoad
from bench.session import TOPIC_PARTITIONS, Session
from penstock.testing.ports import free_port

_BATCH_RECORDS = 1_000
_POLL_RECORDS = 5_000
_TIMEOUT_S = 60.0


def _at_least(rate: float) -> Goal:
    return Goal(rate, is_lower_bound=True, is_absolute=True)


FIGURES = (
    Figure("http.batch", "REST produce, batches of 1,000 x 100 B", "HTTP", "records/s", _at_least(100_000)),
    Figure("http.single", "REST produce, one of 100 B a request", "HTTP", "records/s", _at_least(3_000)),
    Figure("http.poll", "REST poll, 100 B", "HTTP", "records/s", _at_least(100_000)),
    Figure("http.schema", "schema by id", "HTTP", "requests/s", _at_least(5_000)),
    Figure("http.metrics", "scrape of the HTTP server, 10,000 partitions", "HTTP", "ms", no_more_than(200)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    broker = session.shared()
    broker_port = broker.port
    wire.make_topic(broker_port, "http", TOPIC_PARTITIONS)
    port = free_port()
    program = str(Path(sys.executable).parent / "penstock")
    command = [program, "http", "--bootstrap", f"127.0.0.1:{broker_port}", "--http-port", str(port)]
    if broker.metrics_port is not None:
        command += ["--broker-metrics", f"1=127.0.0.1:{broker.metrics_port}"]
    server = processes.start(command, session.directory / "http.out")
    try:
        _wait_until_served(port)
        yield "http.batch", _batches(session, port, server.pid)
        yield "http.single", _singles(session, port, server.pid)
        yield "http.poll", _polls(session, port, server.pid)
        yield "http.schema", _schemas(session, port, server.pid)
        yield "http.metrics", _scrapes(session, port)
    finally:
        processes.end(server, timeout_s=15)


def _wait_until_served(port: int) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            _ask(port, "/v3/clusters")
            return
        except OSError:
            time.sleep(0.05)
    raise processes.Failed("the HTTP server did not start")


def _ask(port: int, path: str, body: Any = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"} if data else {}
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        read: bytes = answer.read()
        return read


def _batches(session: Session, port: int, server_pid: int) -> Sample:
    plan = HttpLoad(
        port=port,
        method="POST",
        path="/topics/http/messages/batch",
        connections=8,
        requests=max(40, session.sizes.http_records // _BATCH_RECORDS),
        batch_records=_BATCH_RECORDS,
        record_bytes=100,
        counted='"offset":',
    )
    return session.http_loaded(plan, server_pid)


def _singles(session: Session, port: int, server_pid: int) -> Sample:
    plan = HttpLoad(
        port=port,
        method="POST",
        path="/topics/http/messages",
        connections=64,
        requests=session.sizes.http_requests,
        record_bytes=100,
        counted='"offset":',
    )
    return session.http_loaded(plan, server_pid)


def _polls(session: Session, port: int, server_pid: int) -> Sample:
    _ask(port, "/consumers/bench/subscribe", {"topics": ["http"]})
    _ask(port, "/consumers/bench/poll?timeout_ms=10000&max_records=1")
    plan = HttpLoad(
        port=port,
        method="GET",
        path=f"/consumers/bench/poll?max_records={_POLL_RECORDS}&timeout_ms=500",
        connections=2,
        requests=session.sizes.http_records // 100,
        counted='"offset":',
        records_max=session.sizes.http_records * 9 // 10,
    )
    return session.http_loaded(plan, server_pid)


def _schemas(session: Session, port: int, server_pid: int) -> Sample:
    try:
        schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
        answer = json.loads(_ask(port, "/subjects/bench-value/versions", {"schema": schema}))
    except urllib.error.HTTPError:
        return Sample(None, note="there is no schema registry")
    plan = HttpLoad(
        port=port,
        method="GET",
        path=f"/schemas/ids/{answer['id']}",
        connections=32,
        requests=session.sizes.http_requests,
    )
    return session.http_loaded(plan, server_pid)


def _scrapes(session: Session, port: int) -> Sample:
    topics = session.sizes.many_topics
    with wire.Connection(session.shared().port, timeout_s=_TIMEOUT_S) as connection:
        for first in range(0, topics, 50):
            names = [f"scraped-{number:04}" for number in range(first, min(first + 50, topics))]
            wire.create_topics(connection, names, 10, {})
    _ask(port, "/metrics")
    times_ms = []
    for _ in range(5):
        # What was gathered a moment ago would be served again.
        time.sleep(1.2)
        started_s = time.perf_counter()
        _ask(port, "/metrics")
        times_ms.append((time.perf_counter() - started_s) * 1000)
    return Sample(sorted(times_ms)[2], note=f"{topics * 10} partitions, the slowest of five {max(times_ms):.0f} ms")
