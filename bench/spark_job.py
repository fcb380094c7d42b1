"""Spark queries in one session, each several times: the first time warms up, the median of the others counts.

python -m bench.spark_job '{"port": 9092, ...}'     prints {"<query>": rows per second of addBatch, ...}

Reading: sum of offsets, sum of the values' lengths, number of rows, over the whole topic in one micro-batch.
Writing: the topic's keys and values into another topic, in one micro-batch.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
# The honest opponent: with its defaults Spark's connector takes about twice as long.
KAFKA_TUNED = {
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.max.poll.records": "50000",
    "kafka.receive.buffer.bytes": "4194304",
}


@dataclass(frozen=True)
class SparkPlan:
    port: int
    # "kafka" or "penstock".
    format: str
    # Topics to read, with all columns and with two.
    topics: tuple[str, ...]
    rounds: int


def command(plan: SparkPlan) -> list[str]:
    return [sys.executable, "-m", "bench.spark_job", json.dumps(asdict(plan))]


def session() -> Any:
    from pyspark.sql import SparkSession

    # Spark would take the first python3 there is, which need not have this project.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = sorted(map(str, (REPOSITORY / ".cache" / "spark-kafka-jars").glob("*.jar")))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(jars),
    }
    builder = SparkSession.builder.master("local[2]").appName("penstock bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Job:
    def __init__(self, plan: SparkPlan, spark: Any, work: Path) -> None:
        self._plan = plan
        self._spark = spark
        self._work = work
        self._cluster = {"kafka.bootstrap.servers": f"127.0.0.1:{plan.port}"}
        self._made = 0

    def _source(self, topic: str, schema: str | None = None) -> Any:
        reader = self._spark.readStream.format(self._plan.format).options(**self._cluster)
        reader = reader.options(subscribe=topic, startingOffsets="earliest")
        if self._plan.format == "kafka":
            # Its columns cannot be chosen; it finds out by itself which ones are used.
            return reader.options(**KAFKA_TUNED).load()
        return (reader.schema(schema) if schema else reader).load()

    def read(self, topic: str, schema: str | None) -> float:
        from pyspark.sql import functions as F

        rows = self._source(topic, schema)
        sums = rows.select(F.sum("offset"), F.sum(F.length("value")), F.count("*"))
        if schema is None:
            used = F.sum(F.hash("key", "topic", "partition", "timestamp", "timestampType"))
            sums = rows.select(F.sum("offset"), F.sum(F.length("value")), F.count("*"), used)
        return self._rate(sums.writeStream.format("noop").outputMode("complete"))

    def write(self, topic: str) -> float:
        rows = self._source(topic).select("key", "value")
        writer = rows.writeStream.format(self._plan.format).options(**self._cluster, topic="spark-written")
        if self._plan.format == "penstock":
            writer = writer.options(exactlyOnce="true", sinkId=f"bench-{uuid.uuid4()}")
        return self._rate(writer)

    def _rate(self, writer: Any) -> float:
        self._made += 1
        checkpoint = self._work / str(self._made)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        rows = sum(progress["numInputRows"] for progress in batches)
        return float(rows / sum(progress["durationMs"]["addBatch"] for progress in batches) * 1000)


def main(plan: SparkPlan) -> None:
    spark = session()
    work = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        job = Job(plan, spark, work)
        rates: dict[str, list[float]] = {}
        for _ in range(plan.rounds + 1):
            for topic in plan.topics:
                rates.setdefault(f"all.{topic}", []).append(job.read(topic, None))
                rates.setdefault(f"two.{topic}", []).append(job.read(topic, "offset LONG, value BINARY"))
            rates.setdefault("write", []).append(job.write(plan.topics[0]))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        spark.stop()
    print(json.dumps({name: statistics.median(found[1:]) for name, found in rates.items()}))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(SparkPlan(**{**given, "topics": tuple(given["topics"])}))
