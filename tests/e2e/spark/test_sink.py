"""Spark writes to topics: where rows go, what they become, and how often they are there."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock.arrow
from penstock.client.record_encoding import murmur2
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


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).select(
        F.when(F.col("id") % 4 > 0, F.concat(F.lit("k"), F.col("id"))).alias("key"),
        F.when(F.col("id") % 5 > 0, F.concat(F.lit("v"), F.col("id"))).alias("value"),
    )


def write(rows: DataFrame, node: Node, **options: str) -> None:
    rows.write.format("penstock").mode("append").option("kafka.bootstrap.servers", node.bootstrap).options(
        **options
    ).save()


def stored(node: Node, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    table = penstock.arrow.read(topic, bootstrap_servers=node.bootstrap, columns=columns)
    return [tuple(row.values()) for row in table.to_pylist()]


def test_rows_go_where_java_would_send_their_keys(spark: SparkSession, node: Node, topic_name: str) -> None:
    with Wire(node.port) as wire:
        create_topic(wire, topic_name, 3)
    write(numbers(spark, 200), node, topic=topic_name, **{"kafka.compression.type": "lz4"})
    rows = stored(node, topic_name, "key", "value", "partition")
    expected = {
        (f"k{n}".encode() if n % 4 else None, f"v{n}".encode() if n % 5 else None) for n in range(200) if n % 4 or n % 5
    }
    assert {row[:2] for row in rows if row[0] or row[1]} == expected
    assert len(rows) == 200
    assert all(partition == murmur2(key) % 3 for key, _, partition in rows if key is not None)


def test_each_row_may_say_its_topic_partition_and_headers(spark: SparkSession, node: Node, topic_name: str) -> None:
    names = [f"{topic_name}-a", f"{topic_name}-b"]
    with Wire(node.port) as wire:
        for name in names:
            create_topic(wire, name, 2)
    schema = "topic STRING, partition INT, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    rows = [
        (names[0], 1, b"one", [("h", b"x"), ("n", None)]),
        (names[1], 0, b"two", None),
        (names[0], 0, b"three", []),
    ]
    write(spark.createDataFrame(rows, schema), node)
    assert stored(node, names[0], "partition", "value", "headers") == [
        (0, b"three", None),
        (1, b"one", [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]),
    ]
    assert stored(node, names[1], "partition", "value") == [(0, b"two")]
    with pytest.raises(PySparkException, match="which has 2 of them"):
        write(spark.createDataFrame([(names[0], 7, b"one", None)], schema), node)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["key"], {"topic": "t"}, "needs a column 'value'"),
        (["value"], {}, "say where to write"),
        (["value"], {"topic": "t", "kafka.value.serializer": "x"}, "values are written as they are"),
        (["value"], {"topic": "t", "exactlyOnce": "true"}, "exactlyOnce needs the option sinkId"),
        (["value"], {"topic": "t", "exactlyOnce": "true", "sinkId": "s"}, "exactlyOnce is for streaming queries"),
    ],
)
def test_mistakes_are_told_in_words(
    spark: SparkSession, node: Node, columns: list[str], options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        write(numbers(spark, 1).select(*columns), node, **options)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_stream_is_copied_from_topic_to_topic(
    spark: SparkSession, node: Node, topic_name: str, tmp_path: Path, exactly_once: bool
) -> None:
    """Several micro-batches, a restart in between, more rows after it."""
    write(numbers(spark, 100), node, topic=topic_name)
    copy = f"{topic_name}-copy"
    with Wire(node.port) as wire:
        create_topic(wire, copy, 2)
    cluster = {"kafka.bootstrap.servers": node.bootstrap}
    options = {"exactlyOnce": "true", "sinkId": copy} if exactly_once else {}
    for round_ in range(2):
        source = spark.readStream.format("penstock").options(
            **cluster, subscribe=topic_name, startingOffsets="earliest"
        )
        rows = source.option("maxOffsetsPerTrigger", "40").load().select("key", "value")
        writer = rows.writeStream.format("penstock").options(**cluster, **options, topic=copy)
        run_to_end(writer.option("checkpointLocation", str(tmp_path)))
        if not round_:
            write(numbers(spark, 10), node, topic=topic_name)
    read = penstock.arrow.read(copy, bootstrap_servers=node.bootstrap, columns=["key", "value"])
    original = penstock.arrow.read(topic_name, bootstrap_servers=node.bootstrap, columns=["key", "value"])
    assert read.num_rows == 110
    assert _sorted(read) == _sorted(original)


def _sorted(table: pa.Table) -> list[Any]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
