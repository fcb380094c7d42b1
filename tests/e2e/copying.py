"""A topic copied into another in transactions, while the copiers and the broker are killed and stopped.

Whoever reads committed records sees every record once, in the end no transaction is open, and none is left that holds
the last stable offset back.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, TopicPartition

from penstock.protocol.messages import Struct
from tests.conformance.confluent import create, make_consumer, make_producer
from tests.conformance.wire import LIST_OFFSETS, Wire
from tests.e2e.node import Node, wait_until

PARTITIONS = 4
SOURCE, TARGET = "copied-from", "copied-to"
# A copier that was killed comes back, under the same name, at once; this is for the last ones.
TRANSACTION_TIMEOUT_MS = 5000
# The broker must not let a transaction live on for longer than so after its timeout (invariant 20).
LATE_SECONDS_MAX = 15
READ_COMMITTED, READ_UNCOMMITTED = 1, 0
LATEST = -1


def seconds_max(records: int) -> float:
    return 120 + records / 100


class CopierProcess:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
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


def fill(node: Node, records: int) -> None:
    producer = make_producer(node)
    for number in range(records):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


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


def check_copy(node: Node, commands: Sequence[Sequence[str]], records: int, disturbances: int) -> None:
    """Copies so many records with a process for each of the commands, which are started again whenever they end. At
    least so many disturbances, as far as records come in between."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    create(node, SOURCE, PARTITIONS)
    create(node, TARGET, PARTITIONS)
    fill(node, records)
    copiers = [CopierProcess(command) for command in commands]
    reader = Reader(node)
    deadline_s = time.monotonic() + seconds_max(records)
    try:
        next_disturbance = 0
        while len(reader.values) < records:
            assert time.monotonic() < deadline_s, f"{len(reader.values)} of {records} came, seed {seed}\n{node.log}"
            reader.read(0.05)
            if len(reader.values) >= next_disturbance:
                next_disturbance = len(reader.values) + chance.randint(1, records // disturbances)
                disturb(node, copiers, chance)
            for copier in copiers:
                copier.keep_alive()
        for copier in copiers:
            copier.kill9()
        for topic, partitions in ((TARGET, PARTITIONS), ("__consumer_offsets", 50)):
            wait_until(
                lambda topic=topic, partitions=partitions: holds_nothing_back(node, topic, partitions),  # type: ignore[misc]
                f"no transaction holds {topic} back",
                TRANSACTION_TIMEOUT_MS / 1000 + LATE_SECONDS_MAX,
            )
        reader.read(1.0)
        assert sorted(reader.values) == list(range(records)), f"seed {seed}"
    finally:
        reader.close()
        for copier in copiers:
            copier.kill9()
