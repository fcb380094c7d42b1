"""Transactions, with confluent-kafka: how many are committed a second, and how long until somebody reads them.

Producers with a transactional id each commit one transaction after the other. The time is that of a single one: from
just before its record is handed to the producer until a consumer of committed records has it.

python -m bench.transactions '{"port": 9092, ...}'     prints {"commits": ..., "seconds": ..., "p99_ms": ..., ...}
"""

import json
import struct
import sys
import threading
import time
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

_SENT_AT = struct.Struct(">q")
_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class TransactionsPlan:
    port: int
    topic: str
    partitions: int
    producers: int
    records_per_transaction: int
    record_bytes: int
    seconds: float
    # Not counted: connections open and Java's compiler is still at work.
    warmup_seconds: float
    # Between two transactions of a producer; 0 for as fast as it goes.
    pause_seconds: float


def command(plan: TransactionsPlan) -> list[str]:
    return [sys.executable, "-m", "bench.transactions", json.dumps(asdict(plan))]


class _Load(threading.Thread):
    def __init__(self, plan: TransactionsPlan, number: int) -> None:
        super().__init__(daemon=True)
        self._plan = plan
        self._number = number
        self.counts_from_s = self.ends_s = 0.0
        self.commits = 0
        self.problem: Exception | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{plan.port}",
                "transactional.id": f"{plan.topic}-{self._number}",
                "linger.ms": 0 if plan.records_per_transaction == 1 else 5,
                "log_level": 2,
            }
        )
        self._producer.init_transactions(_SECONDS_MAX)

    def run(self) -> None:
        try:
            self._commit_all()
        except Exception as problem:
            self.problem = problem

    def _commit_all(self) -> None:
        plan, producer = self._plan, self._producer
        padding = bytes(plan.record_bytes - _SENT_AT.size)
        partition = self._number % plan.partitions
        while (now_s := time.monotonic()) < self.ends_s:
            producer.begin_transaction()
            for _ in range(plan.records_per_transaction):
                value = _SENT_AT.pack(time.monotonic_ns()) + padding
                producer.produce(plan.topic, value, partition=partition)
            producer.commit_transaction(_SECONDS_MAX)
            if now_s >= self.counts_from_s:
                self.commits += 1
            if plan.pause_seconds:
                time.sleep(plan.pause_seconds)


def measure(plan: TransactionsPlan) -> dict[str, float]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{plan.port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(plan.topic, index, 0) for index in range(plan.partitions)])
    loads = [_Load(plan, number) for number in range(plan.producers)]
    counts_from_s = time.monotonic() + plan.warmup_seconds
    for load in loads:
        load.counts_from_s, load.ends_s = counts_from_s, counts_from_s + plan.seconds
        load.start()
    latencies_ns: list[int] = []
    while any(load.is_alive() for load in loads):
        message = consumer.poll(0.05)
        if message is not None and message.error() is None and (value := message.value()) is not None:
            sent_ns = _SENT_AT.unpack_from(value)[0]
            if sent_ns >= counts_from_s * 1e9:
                latencies_ns.append(time.monotonic_ns() - sent_ns)
    consumer.close()
    for load in loads:
        if load.problem is not None:
            raise SystemExit(f"a transaction failed: {load.problem}")
    counted = sorted(latencies_ns)
    if not counted:
        raise SystemExit("nothing came back")
    return {
        "commits": sum(load.commits for load in loads),
        "seconds": plan.seconds,
        "p50_ms": counted[len(counted) // 2] / 1e6,
        "p99_ms": counted[len(counted) * 99 // 100] / 1e6,
    }


if __name__ == "__main__":
    print(json.dumps(measure(TransactionsPlan(**json.loads(sys.argv[1])))))
