"""Publish-to-consume latency at a steady rate, with confluent-kafka: one producer, one assigned consumer.

python -m bench.latency '{"port": 9092, ...}'     prints {"p50_ms": ..., "p99_ms": ..., "records": ...}
"""

import json
import struct
import sys
import threading
import time
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

_SENT_AT = struct.Struct(">q")


@dataclass(frozen=True)
class LatencyPlan:
    port: int
    topic: str
    records_per_second: int
    seconds: float
    # Not counted: connections open and Java's compiler is still at work.
    warmup_seconds: float
    record_bytes: int


def command(plan: LatencyPlan) -> list[str]:
    return [sys.executable, "-m", "bench.latency", json.dumps(asdict(plan))]


def _publish(plan: LatencyPlan, count: int) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{plan.port}", "acks": "1", "linger.ms": 0})
    padding = bytes(plan.record_bytes - _SENT_AT.size)
    started_s = time.monotonic()
    for index in range(count):
        due_s = started_s + index / plan.records_per_second
        pause_s = due_s - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        producer.produce(plan.topic, _SENT_AT.pack(time.monotonic_ns()) + padding, partition=0)
        producer.poll(0)
    producer.flush(10)


def measure(plan: LatencyPlan) -> dict[str, float]:
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{plan.port}", "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(plan.topic, 0, 0)])
    warmup = int(plan.warmup_seconds * plan.records_per_second)
    count = warmup + int(plan.seconds * plan.records_per_second)
    publisher = threading.Thread(target=_publish, args=(plan, count), daemon=True)
    publisher.start()
    latencies_ns: list[int] = []
    deadline_s = time.monotonic() + plan.warmup_seconds + plan.seconds + 30
    while len(latencies_ns) < count and time.monotonic() < deadline_s:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and (value := message.value()) is not None:
            latencies_ns.append(time.monotonic_ns() - _SENT_AT.unpack_from(value)[0])
    publisher.join()
    consumer.close()
    if len(latencies_ns) < count:
        raise SystemExit(f"only {len(latencies_ns)} of {count} records came back")
    counted = sorted(latencies_ns[warmup:])
    return {
        "p50_ms": counted[len(counted) // 2] / 1e6,
        "p99_ms": counted[len(counted) * 99 // 100] / 1e6,
        "records": count,
    }


if __name__ == "__main__":
    print(json.dumps(measure(LatencyPlan(**json.loads(sys.argv[1])))))
