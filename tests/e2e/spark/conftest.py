"""One Spark session and one node for all tests here: both take seconds to start."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.e2e.node import Node

REPOSITORY = Path(__file__).resolve().parents[3]

Rows = list[tuple[Any, ...]]
QUERY_SECONDS_MAX = 240
# A test that is cut off while it waits for Spark leaves the session of all the others out of step.
TEST_SECONDS_MAX = 900


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    # Records here have times of their own, some of them years ago: retention would take them away in mid-test.
    settings = ("transaction.two.phase.commit.enable=true", "log.retention.ms=-1")
    arguments = [part for setting in settings for part in ("-X", setting)]
    node = Node(tmp_path_factory.mktemp("spark-node") / "data", *arguments)
    node.start()
    yield node
    node.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    work = tmp_path_factory.mktemp("spark")
    # Spark's Python processes find our modules where the tests do.
    os.environ["PYTHONPATH"] = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
    os.environ["PYSPARK_PYTHON"] = os.sys.executable  # type: ignore[attr-defined]
    builder = SparkSession.builder.master("local[2]").appName("penstock tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        # As the demo: a session lives for minutes, and the better compiler would take a good part of them.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.task.maxFailures": "1",
    }
    jars = os.environ.get("PENSTOCK_SPARK_KAFKA_JARS") or str(REPOSITORY / ".cache" / "spark-kafka-jars")
    found = sorted(map(str, Path(jars).glob("*.jar")))
    if found:
        settings["spark.jars"] = ",".join(found)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def run_to_end(writer: DataStreamWriter, path: str | None = None) -> StreamingQuery:
    """Until everything that was there is done. Spark gives a Python process ten seconds to start, and no option for
    more: where the machine is too busy for that, the query is started again, as people's supervisors do."""
    while True:
        query = writer.trigger(availableNow=True).start(path)
        try:
            assert query.awaitTermination(QUERY_SECONDS_MAX), query.status
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query


Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, node: Node) -> Read:
    """A batch read with these options."""

    def read(source: str = "penstock", schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", node.bootstrap).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return read
