"""The fixtures that users get: a real broker in their test process, quickly, and nothing left behind."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.testing.in_process import BrokerInProcess, _quick_loading

TEST = """
import time
from confluent_kafka import Consumer, Producer
import urllib.request

def test_round_trip(penstock_broker, penstock_topic):
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap_servers})
    producer.produce(penstock_topic, b"hello")
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": penstock_broker.bootstrap_servers, "group.id": "g",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe([penstock_topic])
    message = consumer.poll(10)
    consumer.close()
    assert message.value() == b"hello"

def test_http(penstock_broker):
    assert urllib.request.urlopen(penstock_broker.http_url + "/health").status == 200
"""


def test_a_users_test_gets_a_broker(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    result = subprocess.run(
        [*command, str(tmp_path / "test_mine.py")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env=environment,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed" in result.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_process_finds_and_collects_as_before() -> None:
    finders, collecting, frozen = sys.meta_path[:], (gc.isenabled(), gc.get_threshold()), gc.get_freeze_count()
    assert "AssertionRewritingHook" in {type(finder).__name__ for finder in finders}
    with BrokerInProcess():
        assert sys.meta_path[: len(finders)] == finders
        assert (gc.isenabled(), gc.get_threshold()) == collecting
        # What was frozen before may be gone by now.
        assert gc.get_freeze_count() <= frozen


def test_a_finder_that_comes_while_modules_are_loaded_stays() -> None:
    class Finder:
        pass

    finder: Any = Finder()
    with _quick_loading():
        sys.meta_path.append(finder)
    assert finder in sys.meta_path
    sys.meta_path.remove(finder)


def test_no_test_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(_: int) -> None:
        raise OSError("nothing is to be synced")

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "fdatasync", sync)
    with BrokerInProcess({"log.flush.mode": "ack"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
        producer.produce("orders", b"1")
        assert producer.flush(10) == 0
