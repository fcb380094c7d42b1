"""Spark reads topics: the rows that were written, by the connector's options, columns and offsets."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node
from tests.e2e.spark.conftest import TEST_SECONDS_MAX, Read, run_to_end

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_SECONDS_MAX),
]

START_MS = 1_700_000_000_000


def fill(node: Node, topic: str, count: int, first: int = 0, partitions: int = 2, codec: str = "none") -> None:
    if not first:
        with Wire(node.port) as wire:
            create_topic(wire, topic, partitions)
    producer = Producer({"bootstrap.servers": node.bootstrap, "compression.type": codec})
    for number in range(first, first + count):
        producer.produce(
            topic,
            key=None if number % 5 == 0 else f"k{number}",
            value=None if number % 7 == 0 else f"v{number}",
            partition=number % partitions,
            timestamp=START_MS + number,
            headers=[("number", str(number).encode()), ("none", None)] if number % 3 == 0 else None,
        )
    assert producer.flush(30) == 0


def test_a_batch_has_every_column_of_every_record(read: Read, node: Node, topic_name: str) -> None:
    fill(node, topic_name, 40, codec="zstd")
    rows = read(subscribe=topic_name, includeHeaders="true").orderBy("timestamp").collect()
    assert [row.asDict() for row in rows] == [
        {
            "key": None if number % 5 == 0 else bytearray(f"k{number}".encode()),
            "value": None if number % 7 == 0 else bytearray(f"v{number}".encode()),
            "topic": topic_name,
            "partition": number % 2,
            "offset": number // 2,
            "timestamp": datetime.fromtimestamp((START_MS + number) / 1000),
            "timestampType": 0,
            "headers": [("number", bytearray(str(number).encode())), ("none", None)] if number % 3 == 0 else None,
        }
        for number in range(40)
    ]


def test_a_schema_chooses_columns_and_a_wrong_one_is_refused_in_words(read: Read, node: Node, topic_name: str) -> None:
    fill(node, topic_name, 10)
    chosen = read(subscribe=topic_name, schema="offset LONG, value BINARY")
    assert chosen.columns == ["offset", "value"]
    assert chosen.count() == 10
    with pytest.raises(PySparkException, match="column value is binary, not string"):
        read(subscribe=topic_name, schema="value STRING").collect()


def test_offsets_and_times_bound_a_batch_and_slices_divide_it(read: Read, node: Node, topic_name: str) -> None:
    fill(node, topic_name, 100)
    start = json.dumps({topic_name: {"0": 10, "1": -2}})
    end = json.dumps({topic_name: {"0": 20, "1": -1}})
    bounded = read(subscribe=topic_name, startingOffsets=start, endingOffsets=end)
    assert {tuple(row) for row in bounded.groupBy("partition").count().collect()} == {(0, 10), (1, 50)}
    timed = read(subscribe=topic_name, startingTimestamp=str(START_MS + 90), endingTimestamp=str(START_MS + 95))
    assert timed.count() == 5
    sliced = read(subscribe=topic_name, minPartitions="5")
    assert sliced.rdd.getNumPartitions() >= 5
    assert sliced.select("partition", "offset").distinct().count() == 100
    limited = read(assign=json.dumps({topic_name: [1]}), maxRecordsPerPartition="20")
    assert limited.rdd.getNumPartitions() == 3
    assert limited.count() == 50


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one of assign, subscribe and subscribePattern"),
        ({"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic'"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "set startingOffsets"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "cannot be latest"),
        ({"subscribe": "t", "startingOffsets": "{"}, "startingOffsets is"),
    ],
)
def test_mistakes_are_told_in_words(read: Read, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        read(**options).collect()


def test_predicates_narrow_what_is_read(read: Read, spark: SparkSession, node: Node, topic_name: str) -> None:
    fill(node, topic_name, 100)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        everything = read(subscribe=topic_name)
        one = everything.where("partition = 1 AND offset >= 10 AND offset < 13")
        assert sorted(row.offset for row in one.collect()) == [10, 11, 12]
        assert one.rdd.getNumPartitions() == 1
        moment = datetime.fromtimestamp((START_MS + 95) / 1000, UTC).isoformat()
        late = everything.where(f"timestamp >= '{moment}'")
        assert late.count() == 5
        assert everything.where("key = 'k1'").count() == 1
        assert everything.where("partition = 1 AND partition = 0").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


class Stream:
    """A query from a topic to files, run until it has everything."""

    def __init__(self, spark: SparkSession, node: Node, topic: str, directory: Path) -> None:
        self._spark = spark
        self._node = node
        self._topic = topic
        self.checkpoint = directory / "checkpoint"
        self._output = directory / "output"

    def run(self, **options: str) -> StreamingQuery:
        reader = self._spark.readStream.format("penstock").option("kafka.bootstrap.servers", self._node.bootstrap)
        rows = reader.option("subscribe", self._topic).options(**options).load().selectExpr("partition", "offset")
        writer = rows.writeStream.format("json").option("checkpointLocation", str(self.checkpoint))
        return run_to_end(writer, str(self._output))

    def offsets(self) -> list[int]:
        rows = self._spark.read.schema("partition INT, offset LONG").json(str(self._output)).collect()
        return sorted(row.offset for row in rows)


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark: SparkSession, node: Node, topic_name: str, tmp_path: Path
) -> None:
    fill(node, topic_name, 30)
    stream = Stream(spark, node, topic_name, tmp_path)
    first = stream.run(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert [each["numInputRows"] for each in first.recentProgress if each["numInputRows"]] == [10, 10, 10]
    fill(node, topic_name, 6, first=30)
    second = stream.run(startingOffsets="earliest")
    assert sum(each["numInputRows"] for each in second.recentProgress) == 6
    assert stream.offsets() == sorted([*range(18), *range(18)])
    last_log = max((stream.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(last_log.read_text().splitlines()[-1]) == {topic_name: {"0": 18, "1": 18}}


def test_a_stream_from_the_end_remembers_where_that_was(
    spark: SparkSession, node: Node, topic_name: str, tmp_path: Path
) -> None:
    """Spark keeps no initial offset of a Python source: the first micro-batch, which is empty, writes it down."""
    fill(node, topic_name, 10)
    stream = Stream(spark, node, topic_name, tmp_path)
    stream.run()
    assert stream.offsets() == []
    fill(node, topic_name, 4, first=10)
    stream.run()
    assert stream.offsets() == [5, 5, 6, 6]


def test_lost_records_stop_the_stream_unless_it_may_go_on(
    spark: SparkSession, node: Node, topic_name: str, tmp_path: Path
) -> None:
    fill(node, topic_name, 10, partitions=1)
    stream = Stream(spark, node, topic_name, tmp_path)
    stream.run(startingOffsets="earliest")
    fill(node, topic_name, 10, first=10, partitions=1)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.delete_records([TopicPartition(topic_name, 0, 15)]).values():
        future.result(30)
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        stream.run(startingOffsets="earliest")
    stream.run(startingOffsets="earliest", failOnDataLoss="false")
    assert stream.offsets() == [*range(10), *range(15, 20)]


def test_the_cluster_itself_is_readable_as_tables(spark: SparkSession, node: Node, topic_name: str) -> None:
    fill(node, topic_name, 10)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": topic_name, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic_name, 0, 2)], asynchronous=False)
    consumer.close()

    def table(name: str) -> list[Any]:
        reader = spark.read.format("penstock.metadata").option("kafka.bootstrap.servers", node.bootstrap)
        return [tuple(row) for row in reader.option("table", name).load().collect() if topic_name in tuple(row)]

    assert table("topics") == [(topic_name, 2, 1, False)]
    assert table("partitions") == [(topic_name, index, 1, [1], [1], 0, 5) for index in (0, 1)]
    assert [row[0] for row in table("groups")] == [topic_name]
    assert table("lag") == [(topic_name, topic_name, 0, 2, 5, 3)]
