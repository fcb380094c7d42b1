"""kill -9 under load, again and again: nothing that was acknowledged is lost, nothing is written twice, order is kept.

Producers live on through the kills and send again what was not acknowledged, as real ones do. After each restart the
whole log is read and compared with what they were told.
"""

import random
import threading
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.confluent import create
from tests.conformance.java_tools import JavaTools
from tests.conformance.wire import Wire, fetch, records_of
from tests.conftest import MakeBroker
from tests.e2e.node import Node, wait_until

TOPIC = "killed"
ROUNDS = 25
PRODUCERS = 3
BURST = 20
# Small, so that kills also fall between segments.
SEGMENT_BYTES = 50_000
BURST_SECONDS = 0.05
# Kills come when this many more records were acknowledged, so that they fall into all phases of the work.
ACKNOWLEDGED_BEFORE_KILL = (1, 600)

# (producer, sequence number), as it is written in the value of a record.
Identity = tuple[int, int]


class Load(threading.Thread):
    """One producer with a partition of its own, numbering its records."""

    def __init__(self, node: Node, number: int, settings: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.number = number
        # The offset that was acknowledged, by sequence number.
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "log_level": 0,
                "linger.ms": 2,
                # What gathers while the node is down must still fit into a segment.
                "batch.size": SEGMENT_BYTES // 4,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                **settings,
            }
        )

    def run(self) -> None:
        sequence = 0
        while not self._stopped.is_set():
            for _ in range(BURST):
                self._producer.produce(
                    TOPIC, b"%d:%d" % (self.number, sequence), partition=self.number, on_delivery=self._delivered
                )
                sequence += 1
            self._producer.poll(0)
            self._stopped.wait(BURST_SECONDS)
        assert self._producer.flush(120) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[int(message.value().split(b":")[1])] = message.offset()

    def finish(self) -> None:
        self._stopped.set()
        self.join(150)
        assert not self.is_alive()


def read_log(node: Node, partition: int) -> list[Identity]:
    """Everything there is; the index is the offset."""
    found: list[Identity] = []
    with Wire(node.port) as wire:
        while True:
            answer = fetch(wire, TOPIC, len(found), partition=partition, partition_max_bytes=1 << 22)
            assert answer.error_code == 0
            assert answer.log_start_offset == 0
            if len(found) == answer.high_watermark:
                return found
            for record in records_of(answer.records):
                # A fetch begins with the whole batch that holds the offset.
                if record.offset >= len(found):
                    assert record.offset == len(found)
                    assert record.value is not None
                    number, sequence = record.value.split(b":")
                    found.append((int(number), int(sequence)))


def check(loads: list[Load], acknowledged: list[dict[int, int]], logs: list[list[Identity]], *, once: bool) -> None:
    """`acknowledged` is what the producers knew before the log was read."""
    for load, known, log in zip(loads, acknowledged, logs, strict=True):
        for sequence, offset in known.items():
            assert log[offset : offset + 1] == [(load.number, sequence)], f"{sequence} is not at {offset}"
        sequences = [sequence for number, sequence in log if number == load.number]
        assert len(sequences) == len(log)
        if not once:
            # A retry may repeat records; what counts is the order in which each came first.
            sequences = list(dict.fromkeys(sequences))
        assert sequences == list(range(len(sequences))), "a record is missing, repeated or out of order"


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("settings", "once"),
    [
        ({"acks": "1", "max.in.flight.requests.per.connection": 1}, False),
        ({"acks": "all", "enable.idempotence": True}, True),
    ],
    ids=["acks=1", "idempotent"],
)
def test_no_acknowledged_record_is_lost_and_no_idempotent_one_doubled_by_kill_9(
    make_broker: MakeBroker, settings: dict[str, Any], once: bool
) -> None:
    chance = random.Random(f"kill {settings}")
    node = make_broker()
    create(node, TOPIC, PRODUCERS, {"internal.segment.bytes": str(SEGMENT_BYTES)})
    loads = [Load(node, number, settings) for number in range(PRODUCERS)]
    logs: list[list[Identity]] = [[] for _ in loads]
    for load in loads:
        load.start()

    def count() -> int:
        return sum(len(load.acknowledged) for load in loads)

    for _ in range(ROUNDS):
        enough = count() + chance.randint(*ACKNOWLEDGED_BEFORE_KILL)
        wait_until(lambda enough=enough: count() >= enough, "records are acknowledged")  # type: ignore[misc]
        node.kill9()
        acknowledged = [dict(load.acknowledged) for load in loads]
        assert not any(load.failures for load in loads), [load.failures[:1] for load in loads]
        node.start()
        before, logs = logs, [read_log(node, load.number) for load in loads]
        check(loads, acknowledged, logs, once=once)
        for old, new in zip(before, logs, strict=True):
            assert new[: len(old)] == old, "an offset has another record than before"
    for load in loads:
        load.finish()
        assert not load.failures
    logs = [read_log(node, load.number) for load in loads]
    check(loads, [load.acknowledged for load in loads], logs, once=once)
    node.restart()
    assert [read_log(node, load.number) for load in loads] == logs
    node.stop()
    if kafka_jars() is not None:
        tools = JavaTools()
        for load in loads:
            tools.check_segments(node.directory / f"{TOPIC}-{load.number}")
        tools.close()
