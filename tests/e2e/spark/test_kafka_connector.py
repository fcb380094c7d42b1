"""Spark's own Kafka connector: works against this broker unmodified, and gives the rows that ours gives."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import penstock.arrow
from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node, wait_until
from tests.e2e.spark.conftest import REPOSITORY, TEST_SECONDS_MAX, Read, run_to_end

pytestmark = [
    pytest.mark.spark,
    pytest.mark.spark_kafka,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_SECONDS_MAX),
    pytest.mark.skipif(
        not any((REPOSITORY / ".cache" / "spark-kafka-jars").glob("spark-sql-kafka*.jar")),
        reason="scripts/spark-kafka-jars fetches Spark's Kafka connector",
    ),
]


def fill(node: Node, topic: str, seed: int, *, transactional: bool = False) -> None:
    """Random records of every codec; some of them in transactions that are aborted."""
    chance = random.Random(seed)
    with Wire(node.port) as wire:
        create_topic(wire, topic, 3)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        settings = {"bootstrap.servers": node.bootstrap, "compression.type": codec, "linger.ms": 5}
        if transactional:
            settings["transactional.id"] = f"{topic}-{number}"
        producer = Producer(settings)
        if transactional:
            producer.init_transactions(30)
        for aborts in (False, True, False) if transactional else (False,):
            if transactional:
                producer.begin_transaction()
            for _ in range(60):
                producer.produce(
                    topic,
                    key=_maybe(chance, 20),
                    value=_maybe(chance, 300),
                    partition=chance.randrange(3),
                    timestamp=1_600_000_000_000 + chance.randrange(10**9),
                    headers=[(f"h{i}", _maybe(chance, 9)) for i in range(chance.randrange(3))],
                )
            if transactional:
                (producer.abort_transaction if aborts else producer.commit_transaction)(30)
        assert producer.flush(30) == 0


def _maybe(chance: random.Random, size: int) -> bytes | None:
    return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(size))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_both_sources_give_the_same_rows(read: Read, node: Node, topic_name: str, isolation: str) -> None:
    fill(node, topic_name, seed=len(isolation), transactional=True)
    bounds = {
        "startingOffsets": json.dumps({topic_name: {"0": 3, "1": -2, "2": 10}}),
        "endingOffsets": json.dumps({topic_name: {"0": -1, "1": 90, "2": -1}}),
    }
    options = {"subscribe": topic_name, "includeHeaders": "true", "kafka.isolation.level": isolation}
    for more in ({}, bounds, {"startingTimestamp": "1600500000000", "minPartitions": "7"}):
        rows = [_rows(read(source, **options, **more)) for source in ("kafka", "penstock")]
        assert rows[0] == rows[1]
        assert len(rows[0]) > 100


def _rows(frame: Any) -> list[Any]:
    return sorted(
        (row.asDict(recursive=True) for row in frame.collect()), key=lambda row: (row["partition"], row["offset"])
    )


def test_the_connector_streams_and_writes(spark: SparkSession, node: Node, topic_name: str, tmp_path: Path) -> None:
    fill(node, topic_name, seed=1)
    cluster = {"kafka.bootstrap.servers": node.bootstrap}
    copy = f"{topic_name}-copy"
    with Wire(node.port) as wire:
        create_topic(wire, copy, 3)
    source = spark.readStream.format("kafka").options(**cluster, subscribe=topic_name, startingOffsets="earliest")
    rows = source.option("maxOffsetsPerTrigger", "100").load().select("key", "value", "partition")
    writer = rows.writeStream.format("kafka").options(**cluster, topic=copy, checkpointLocation=str(tmp_path))
    run_to_end(writer)
    tables = [
        penstock.arrow.read(name, bootstrap_servers=node.bootstrap, columns=["key", "value", "partition"])
        for name in (topic_name, copy)
    ]
    original, copied = (sorted(map(repr, table.to_pylist())) for table in tables)
    assert copied == original


def test_a_query_moves_over_with_its_checkpoint(
    spark: SparkSession, node: Node, topic_name: str, tmp_path: Path
) -> None:
    """Only the format's name changes: the offsets in the checkpoint are read by both."""
    fill(node, topic_name, seed=2)
    output = str(tmp_path / "output")
    for format_, limit in (("kafka", 200), ("penstock", 10_000)):
        source = spark.readStream.format(format_).option("kafka.bootstrap.servers", node.bootstrap)
        source = source.options(subscribe=topic_name, startingOffsets="earliest", maxOffsetsPerTrigger=str(limit))
        writer = source.load().select("partition", "offset").writeStream.format("json")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        if format_ == "kafka":
            assert writer.trigger(once=True).start(output).awaitTermination(120)
        else:
            run_to_end(writer, output)
    rows = spark.read.schema("partition INT, offset LONG").json(output)
    assert rows.count() == rows.distinct().count() == 300


def test_the_connector_runs_in_real_time_mode(spark: SparkSession, node: Node, topic_name: str, tmp_path: Path) -> None:
    """Rows go through while their micro-batch is still running."""
    copy = f"{topic_name}-copy"
    with Wire(node.port) as wire:
        create_topic(wire, topic_name, 1)
        create_topic(wire, copy, 1)
    cluster = {"kafka.bootstrap.servers": node.bootstrap}
    source = spark.readStream.format("kafka").options(**cluster, subscribe=topic_name, startingOffsets="earliest")
    writer = source.load().select("key", "value").writeStream.format("kafka").options(**cluster, topic=copy)
    writer = writer.outputMode("update").option("checkpointLocation", str(tmp_path))
    # Longer than the test waits: what arrives does so within a micro-batch.
    query = writer.trigger(realTime="5 minutes").start()  # type: ignore[call-overload]
    try:
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for number in range(20):
            producer.produce(topic_name, value=str(number))
            assert producer.flush(30) == 0
            wait_until(lambda number=number: _count(node, copy) > number or not query.isActive, "it came through", 120)  # type: ignore[misc]
            assert query.isActive, query.exception()
        table = penstock.arrow.read(copy, bootstrap_servers=node.bootstrap, columns=["value"])
        assert [int(value) for value in table["value"].to_pylist()] == list(range(20))
    finally:
        query.stop()


def _count(node: Node, topic: str) -> int:
    rows: int = penstock.arrow.read(topic, bootstrap_servers=node.bootstrap, columns=["offset"]).num_rows
    return rows
