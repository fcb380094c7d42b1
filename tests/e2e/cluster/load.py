"""Producers that live through what happens to the cluster, and what they were told compared with what is there."""

import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.cluster.nodes import Cluster
from tests.e2e.node import wait_until

PAUSE_SECONDS = 0.01
BURST = 5


class Load(threading.Thread):
    """One idempotent producer with acks=all and retries as librdkafka has them by default; it numbers its records, and
    writes to each partition in turn."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.topic, self.partitions = topic, partitions
        # (partition, offset) by number.
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failures: list[str] = []
        self.sent = 0
        self.longest_silence_s = 0.0
        self._last_s = time.monotonic()
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "log_level": 0,
                "linger.ms": 1,
                "acks": "all",
                "enable.idempotence": True,
                **settings,
            }
        )

    def run(self) -> None:
        while not self._ended.is_set():
            for _ in range(BURST):
                self._producer.produce(
                    self.topic, b"%d" % self.sent, partition=self.sent % self.partitions, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0)
            self._ended.wait(PAUSE_SECONDS)
        self._producer.flush(120)

    def _delivered(self, error: Any, message: Any) -> None:
        now_s = time.monotonic()
        self.longest_silence_s = max(self.longest_silence_s, now_s - self._last_s)
        self._last_s = now_s
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[int(message.value())] = (message.partition(), message.offset())

    def forget_silence(self) -> None:
        self.longest_silence_s = 0.0

    def await_progress(self, count: int = 100) -> None:
        enough = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= enough, f"{count} more records are acknowledged")

    def finish(self) -> None:
        self._ended.set()
        self.join(150)
        assert not self.is_alive()


def read_all(cluster: Cluster, topic: str, partitions: int, isolation: str = "read_uncommitted") -> list[list[bytes]]:
    """The values of each partition, in their order, up to the end as it is now."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        deadline_s = time.monotonic() + 60
        while len(ended) < partitions:
            assert time.monotonic() < deadline_s, f"the end of {topic} does not come"
            message: Any
            for message in consumer.consume(1000, 0.2):
                if message.error() is not None:
                    ended.add(message.partition())
                else:
                    values[message.partition()].append(message.value())
    finally:
        consumer.close()
    return values


def check_nothing_lost_doubled_or_reordered(load: Load, cluster: Cluster) -> None:
    assert not load.failures, load.failures[:3]
    assert len(load.acknowledged) == load.sent
    values = read_all(cluster, load.topic, load.partitions)
    for index, of_partition in enumerate(values):
        assert [int(value) for value in of_partition] == list(range(index, load.sent, load.partitions))
    for number, (index, offset) in load.acknowledged.items():
        assert int(values[index][offset]) == number
