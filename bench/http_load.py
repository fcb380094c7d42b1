"""HTTP requests as fast as they are answered: the same bytes again and again over some connections, one at a time each.

python -m bench.http_load '{"port": 8080, ...}'     prints {"requests", "records", "seconds", "cpu_seconds", "p99_ms"}
"""

import base64
import json
import os
import selectors
import socket
import sys
import time
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class HttpLoad:
    """`counted` is what a record looks like in an answer; for what is posted, an answer's offsets are counted too."""

    port: int
    method: str
    path: str
    connections: int
    requests: int
    # What is posted: so many records in a batch; 0 for one by itself.
    batch_records: int = 0
    record_bytes: int = 0
    counted: str = ""
    # Stops early once so many records were seen; 0 for all requests.
    records_max: int = 0


def command(plan: HttpLoad) -> list[str]:
    return [sys.executable, "-m", "bench.http_load", json.dumps(asdict(plan))]


def body_of(plan: HttpLoad) -> bytes:
    """Different keys, so that they spread over the partitions as those of a real program do."""
    messages = [
        {"key": f"key-{number}", "value": base64.b64encode(os.urandom(plan.record_bytes)).decode()}
        for number in range(plan.batch_records or 1)
    ]
    return json.dumps({"messages": messages} if plan.batch_records else messages[0]).encode()


class BadAnswer(Exception):
    pass


class Client:
    def __init__(self, plan: HttpLoad, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", plan.port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._counted = plan.counted.encode()
        self._received = bytearray()
        self._answer_bytes = -1
        self.sent_s = 0.0

    def send(self) -> None:
        self.sent_s = time.perf_counter()
        self.socket.sendall(self._request)

    def receive(self) -> int | None:
        """The records of an answer that is complete."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise BadAnswer("the server closed the connection")
        received = self._received
        received += part
        if self._answer_bytes < 0:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return None
            head = bytes(received[:end]).lower()
            if not head.startswith((b"http/1.1 200", b"http/1.1 204")):
                raise BadAnswer(bytes(received[:400]).decode(errors="replace"))
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._answer_bytes = end + 4 + int(length or 0)
        if len(received) < self._answer_bytes:
            return None
        count = received.count(self._counted) if self._counted else 1
        received.clear()
        self._answer_bytes = -1
        return count


def run(plan: HttpLoad) -> dict[str, float]:
    body = body_of(plan) if plan.method == "POST" else b""
    head = f"{plan.method} {plan.path} HTTP/1.1\r\nhost: 127.0.0.1:{plan.port}\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    request = head.encode() + b"\r\n" + body
    selector = selectors.DefaultSelector()
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    to_send = plan.requests
    waiting = 0
    for _ in range(min(plan.connections, plan.requests)):
        client = Client(plan, request)
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.send()
        to_send -= 1
        waiting += 1
    answered = records = 0
    latencies_ms: list[float] = []
    while waiting:
        ready = selector.select(60)
        if not ready:
            raise BadAnswer("no answer for 60 s")
        for key, _ in ready:
            client = key.data
            count = client.receive()
            if count is None:
                continue
            answered += 1
            records += count
            latencies_ms.append((time.perf_counter() - client.sent_s) * 1000)
            if to_send and not (plan.records_max and records >= plan.records_max):
                to_send -= 1
                client.send()
            else:
                waiting -= 1
    seconds = time.perf_counter() - started_s
    latencies_ms.sort()
    return {
        "requests": answered,
        "records": records,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - started_cpu_s,
        "p99_ms": latencies_ms[int(len(latencies_ms) * 0.99)] if latencies_ms else 0.0,
    }


if __name__ == "__main__":
    print(json.dumps(run(HttpLoad(**json.loads(sys.argv[1])))))
