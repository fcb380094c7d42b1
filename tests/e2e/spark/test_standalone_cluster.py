"""A Spark cluster of several processes: drivers and executors are killed, and every row is there once."""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

import penstock.arrow
from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node, wait_until
from tests.e2e.spark.spark_cluster import Process, executors, spark_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),
]

RECORDS = 6_000


def test_killed_drivers_and_executors_cost_no_row_and_double_none(node: Node, topic_name: str, tmp_path: Path) -> None:
    target = f"{topic_name}-copy"
    with Wire(node.port) as wire:
        create_topic(wire, topic_name, 2)
        create_topic(wire, target, 2)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic_name, value=str(number), partition=number % 2)
    assert producer.flush(30) == 0
    chance = random.Random(4)
    with spark_cluster(tmp_path) as master:
        job = [sys.executable, str(Path(__file__).with_name("copy_job.py")), master, node.bootstrap]
        job += [topic_name, target, str(tmp_path / "checkpoint")]

        def attempt(number: int, disturb: Callable[[Process], None]) -> bool:
            driver = Process(job, tmp_path / f"driver-{number}.out")
            try:
                wait_until(lambda: "started" in driver.said() or driver.process.poll() is not None, "it runs", 300)
                disturb(driver)
                driver.process.wait(300)
                return "done" in driver.said()
            finally:
                driver.kill()

        def kill_driver(driver: Process) -> None:
            time.sleep(chance.uniform(2, 6))
            driver.kill()

        def kill_executor(driver: Process) -> None:
            time.sleep(chance.uniform(1, 4))
            for pid in executors(tmp_path)[:1]:
                os.kill(pid, signal.SIGKILL)

        outcomes = [attempt(0, kill_driver), attempt(1, kill_driver), attempt(2, kill_executor)]
        if not outcomes[-1]:
            assert attempt(3, lambda _: None)
    table = penstock.arrow.read(target, bootstrap_servers=node.bootstrap, columns=["value"])
    assert sorted(int(value) for value in table["value"].to_pylist()) == list(range(RECORDS))
