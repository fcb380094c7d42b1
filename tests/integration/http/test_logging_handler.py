"""PenstockHandler: log records in a topic, without a wait and without silent loss."""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.logging import PenstockHandler
from penstock.testing.in_process import BrokerInProcess
from penstock.testing.ports import free_port
from tests.e2e.node import wait_until


def read(served: BrokerInProcess, topic: str, count: int, wait_s: float = 15) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": served.bootstrap_servers, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, timeout=wait_s)
    consumer.close()
    return [json.loads(one.value() or b"") for one in found]


@pytest.fixture
def logger(topic_name: str) -> Iterator[logging.Logger]:
    made = logging.getLogger(topic_name)
    made.setLevel(logging.DEBUG)
    made.propagate = False
    yield made
    for handler in list(made.handlers):
        made.removeHandler(handler)
        handler.close()


def test_a_record_arrives_with_what_was_known_about_it(
    served: BrokerInProcess, topic: str, logger: logging.Logger
) -> None:
    handler = PenstockHandler(served.bootstrap_servers, topic)
    logger.addHandler(handler)
    logger.warning("order %d is late", 7, extra={"order": 7, "when": object()})
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("failed")
    handler.flush()
    first, second = read(served, topic, 2)
    assert (first["level"], first["message"], first["logger"]) == ("WARNING", "order 7 is late", logger.name)
    assert first["extra"]["order"] == 7
    assert first["function"] == "test_a_record_arrives_with_what_was_known_about_it"
    assert "ValueError: boom" in second["exception"]


def test_a_cluster_that_is_away_never_makes_a_log_call_wait(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = {"queue.buffering.max.messages": 100}
    handler = PenstockHandler(f"127.0.0.1:{free_port()}", "logs", properties=properties, flush_seconds_max=0.2)
    logger.addHandler(handler)
    started_s = time.monotonic()
    for number in range(1000):
        logger.info("%d", number)
    assert time.monotonic() - started_s < 2
    assert handler.lost == 900
    logger.removeHandler(handler)
    handler.close()
    assert handler.lost == 1000
    said = capsys.readouterr().err
    assert said.count("are being lost") == 2
    assert "still waiting when the program ended" in said


def test_what_was_lost_is_told_in_the_topic(served: BrokerInProcess, topic: str, logger: logging.Logger) -> None:
    """The memory for waiting records is small, so that a burst is too much for it."""
    handler = PenstockHandler(served.bootstrap_servers, topic, properties={"queue.buffering.max.messages": 10})
    logger.addHandler(handler)
    for number in range(50):
        logger.info("%d", number)
    assert handler.lost > 0

    def is_told() -> bool:
        logger.info("later")
        handler.flush()
        found = read(served, topic, 1000, wait_s=1)
        return bool(sum(one.get("lost", 0) for one in found) == handler.lost)

    wait_until(is_told, "the topic knows what it did not get")


def test_the_end_of_the_program_sends_what_is_waiting(served: BrokerInProcess, topic: str) -> None:
    program = (
        "import logging\n"
        "from penstock.logging import PenstockHandler\n"
        f"logging.getLogger().addHandler(PenstockHandler({served.bootstrap_servers!r}, {topic!r}))\n"
        "for number in range(500): logging.warning('%d', number)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [one["message"] for one in read(served, topic, 500)] == [str(number) for number in range(500)]
