"""Exactly once while everything dies: a topic is copied in transactions as copiers and the broker are killed.

Whoever reads committed records sees every record once, in the end no transaction is open, and none is left that holds
the last stable offset back. `PENSTOCK_COPIED_RECORDS=200000` makes the long version.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.protocol.messages import Struct
from tests.conformance.confluent import create, make_consumer, make_producer
from tests.conformance.wire import LIST_OFFSETS, Wire
from tests.conftest import MakeBroker
from tests.e2e.node import Node, wait_until

RECORDS = int(os.environ.get("PENSTOCK_COPIED_RECORDS", "6000"))
COPIER = Path(__file__).parent / "transactional_copier.py"
COPIERS = 3
# At least so many, as far as records come in between.
DISTURBANCES = max(12, RECORDS // 2000)
PARTITIONS = 4
SOURCE, TARGET = "copied-from", "copied-to"
# A copier that was killed comes back, under the same name, at once; this is for the last ones.
TRANSACTION_TIMEOUT_MS = 5000
# The broker must not let a transaction live on for longer than so after its timeout (invariant 20).
LATE_SECONDS_MAX = 15
SECONDS_MAX = 120 + RECORDS / 200
READ_COMMITTED, READ_UNCOMMITTED = 1, 0
LATEST = -1


class CopierProcess:
    def __init__(self, node: Node, number: int) -> None:
        self._command = [
            *(sys.executable, str(COPIER), node.bootstrap, SOURCE, TARGET),
            *("copiers", f"copier-{number}", str(TRANSACTION_TIMEOUT_MS)),
        ]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop_for(self, seconds: float) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)

    def keep_alive(self) -> None:
        if self.process.poll() is not None:
            self.start()


class Reader:
    """Reads all committed records of the target, from the start."""

    def __init__(self, node: Node) -> None:
        self._consumer: Consumer = make_consumer(node, {"isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
        self.values: list[int] = []

    def read(self, seconds: float) -> None:
        for message in self._consumer.consume(2000, seconds):
            if message.error() is None:
                self.values.append(int(message.value() or b""))

    def close(self) -> None:
        self._consumer.close()


def fill(node: Node) -> None:
    producer = make_producer(node)
    for number in range(RECORDS):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def end_offsets(node: Node, topic: str, partitions: int, isolation_level: int) -> list[int]:
    with Wire(node.port) as wire:
        asked = [
            Struct(partition_index=index, current_leader_epoch=-1, timestamp=LATEST) for index in range(partitions)
        ]
        request = Struct(replica_id=-1, isolation_level=isolation_level, topics=[Struct(name=topic, partitions=asked)])
        answer = wire.ask(LIST_OFFSETS, 8, request)
        return [one.offset for one in answer.topics[0].partitions]


def holds_nothing_back(node: Node, topic: str, partitions: int) -> bool:
    return end_offsets(node, topic, partitions, READ_COMMITTED) == end_offsets(
        node, topic, partitions, READ_UNCOMMITTED
    )


def disturb(node: Node, copiers: list[CopierProcess], chance: random.Random) -> None:
    victim = chance.choice(copiers)
    match chance.randrange(4):
        case 0:
            node.kill9()
            node.start()
        case 1:
            victim.stop_for(chance.uniform(0.1, 1.0))
        case _:
            victim.kill9()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_copy_in_transactions_has_every_record_once_whoever_dies(make_broker: MakeBroker) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    node = make_broker()
    create(node, SOURCE, PARTITIONS)
    create(node, TARGET, PARTITIONS)
    fill(node)
    copiers = [CopierProcess(node, number) for number in range(COPIERS)]
    reader = Reader(node)
    deadline_s = time.monotonic() + SECONDS_MAX
    try:
        next_disturbance = 0
        while len(reader.values) < RECORDS:
            assert time.monotonic() < deadline_s, f"{len(reader.values)} of {RECORDS} came, seed {seed}\n{node.log}"
            reader.read(0.05)
            if len(reader.values) >= next_disturbance:
                next_disturbance = len(reader.values) + chance.randint(1, RECORDS // DISTURBANCES)
                disturb(node, copiers, chance)
            for copier in copiers:
                copier.keep_alive()
        for copier in copiers:
            copier.kill9()
        seconds_max = TRANSACTION_TIMEOUT_MS / 1000 + LATE_SECONDS_MAX
        for topic, partitions in ((TARGET, PARTITIONS), ("__consumer_offsets", 50)):
            wait_until(
                lambda topic=topic, partitions=partitions: holds_nothing_back(node, topic, partitions),  # type: ignore[misc]
                f"no transaction holds {topic} back",
                seconds_max,
            )
        reader.read(1.0)
        assert sorted(reader.values) == list(range(RECORDS)), f"seed {seed}"
    finally:
        reader.close()
        for copier in copiers:
            copier.kill9()
