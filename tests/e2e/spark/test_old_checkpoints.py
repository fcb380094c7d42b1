"""Checkpoints of earlier versions, kept as they were written: a query goes on from them.

`checkpoints/<version>` has the checkpoint of a query from topic `orders` to topic `copies`, source and exactly-once
sink, after two micro-batches, and in `decisions.json` what the sink had in its decision log. A version that writes them
otherwise adds a directory (PENSTOCK_KEEP_CHECKPOINT=<version> writes it); the ones that are there stay.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import penstock.arrow
from penstock.pipeline.spark.decisions import TOPIC as DECISIONS
from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node
from tests.e2e.spark.conftest import TEST_SECONDS_MAX, run_to_end

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_SECONDS_MAX),
]

KEPT = Path(__file__).with_name("checkpoints")
SINK = "kept"
WRITTEN = 20
LATER = 6


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[Node]:
    """Its topics have the names that are in the checkpoints."""
    node = Node(tmp_path / "node", "-X", "transaction.two.phase.commit.enable=true").start()
    with Wire(node.port) as wire:
        create_topic(wire, "orders", 2)
        create_topic(wire, "copies", 1)
    yield node
    node.close()


def produce(node: Node, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(first, first + count):
        producer.produce("orders", value=str(number), partition=number % 2)
    assert producer.flush(30) == 0


def run(spark: SparkSession, node: Node, checkpoint: Path) -> None:
    cluster = {"kafka.bootstrap.servers": node.bootstrap}
    source = spark.readStream.format("penstock").options(**cluster, subscribe="orders", startingOffsets="earliest")
    rows = source.option("maxOffsetsPerTrigger", "10").load().select("value")
    writer = rows.writeStream.format("penstock").options(**cluster, topic="copies", exactlyOnce="true", sinkId=SINK)
    run_to_end(writer.option("checkpointLocation", str(checkpoint)))


def values(node: Node, topic: str, column: str = "value") -> list[bytes]:
    table = penstock.arrow.read(topic, bootstrap_servers=node.bootstrap, columns=[column])
    found: list[bytes] = table[column].to_pylist()
    return found


@pytest.mark.parametrize("kept", sorted(KEPT.iterdir()), ids=lambda path: path.name)
def test_a_query_goes_on_from_a_checkpoint_of_that_version(
    spark: SparkSession, own_node: Node, tmp_path: Path, kept: Path
) -> None:
    produce(own_node, 0, WRITTEN)
    decisions = json.loads((kept / "decisions.json").read_text())
    producer = Producer({"bootstrap.servers": own_node.bootstrap})
    with Wire(own_node.port) as wire:
        create_topic(wire, DECISIONS, 1, {"cleanup.policy": "compact"})
    for decision in decisions:
        producer.produce(DECISIONS, key=SINK, value=decision)
    assert producer.flush(30) == 0
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(kept / "checkpoint", checkpoint)
    produce(own_node, WRITTEN, LATER)
    run(spark, own_node, checkpoint)
    assert sorted(map(int, values(own_node, "copies"))) == list(range(WRITTEN, WRITTEN + LATER))


@pytest.mark.skipif("PENSTOCK_KEEP_CHECKPOINT" not in os.environ, reason="PENSTOCK_KEEP_CHECKPOINT names no version")
def test_a_checkpoint_of_this_version_is_kept(spark: SparkSession, own_node: Node, tmp_path: Path) -> None:
    produce(own_node, 0, WRITTEN)
    checkpoint = tmp_path / "checkpoint"
    run(spark, own_node, checkpoint)
    assert len(values(own_node, "copies")) == WRITTEN
    kept = KEPT / os.environ["PENSTOCK_KEEP_CHECKPOINT"]
    shutil.copytree(checkpoint, kept / "checkpoint", ignore=shutil.ignore_patterns(".*.crc"))
    decisions = [value.decode() for value in values(own_node, DECISIONS)]
    (kept / "decisions.json").write_text(json.dumps(decisions, indent=1) + "\n")
