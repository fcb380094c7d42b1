"""The demo of `penstock up`: a stream of orders, and a Spark pipeline that counts the large ones by region.

    orders -> amount > 100 -> five-second windows by region -> order-counts-by-region, exactly once

Run as a program: `python -m penstock.pipeline.demo BOOTSTRAP DIRECTORY`. It ends with SIGTERM or SIGINT.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.client.arrow_columns import schema_of
from penstock.client.cluster import LATEST, Cluster, TopicPartition, config_from
from penstock.client.fetching import FetchLimits
from penstock.client.reading import read_slice
from penstock.pipeline.spark.java import NoJava, java_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS, COUNTS = "orders", "order-counts-by-region"
PARTITIONS = 2
ORDERS_PER_SECOND = 200
WINDOW, LATENESS, TRIGGER = "5 seconds", "1 second", "2 seconds"
REGIONS = ("africa", "asia", "europe", "north-america", "oceania", "south-america")
ORDER_SCHEMA = "order_id STRING, region STRING, amount DOUBLE, ordered_at TIMESTAMP"
_RESULTS_SHOWN_MAX = 6


def say(text: str) -> None:
    print(f"  demo  {text}", flush=True)


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    there = admin.list_topics(timeout=10).topics
    missing = [NewTopic(name, PARTITIONS, 1) for name in (ORDERS, COUNTS) if name not in there]
    for future in (admin.create_topics(missing) if missing else {}).values():
        future.result(30)


def order() -> tuple[str, bytes]:
    """(Region, the order as JSON.)"""
    region = random.choice(REGIONS)
    body = {
        "order_id": str(uuid.uuid4()),
        "region": region,
        "amount": round(random.lognormvariate(4.2, 0.9), 2),
        "ordered_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    return region, json.dumps(body).encode()


def generate(bootstrap: str, is_over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20})
    due_s = time.monotonic()
    while not is_over.is_set():
        region, body = order()
        producer.produce(ORDERS, key=region, value=body)
        producer.poll(0)
        due_s = max(due_s + 1 / ORDERS_PER_SECOND, time.monotonic() - 1)
        is_over.wait(max(0.0, due_s - time.monotonic()))
    producer.flush(5)


def pipeline(orders: "DataFrame") -> "DataFrame":
    """Large orders by region and window, as key and value of the output's records."""
    from pyspark.sql import functions as F

    parsed = orders.select(F.from_json(F.col("value").cast("string"), ORDER_SCHEMA).alias("order")).select("order.*")
    counted = (
        parsed.where("amount > 100")
        .withWatermark("ordered_at", LATENESS)
        .groupBy(F.window("ordered_at", WINDOW), "region")
        .agg(F.count("*").alias("orders"), F.round(F.sum("amount"), 2).alias("amount"))
    )
    value = F.to_json(F.struct("region", F.col("window.start").alias("window_start"), "orders", "amount"))
    return counted.select(F.col("region").alias("key"), value.alias("value"))


def spark_home(directory: Path) -> Path:
    """Spark without its zip of PySpark. Each Python process that works for a query would compile what it loads from the
    zip, for most of a second; so they take the installed PySpark, which is compiled."""
    import pyspark

    home = directory / "spark-home"
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars"):
        link = home / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path(pyspark.__file__).parent / name)
    return home


def start_spark(directory: Path) -> "SparkSession":
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        # To be there soon matters more here than to be fast later: a third of the way was compiling.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "spark"),
    }
    builder = SparkSession.builder.master("local[2]").appName("penstock demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def start_query(spark: "SparkSession", bootstrap: str, directory: Path) -> Any:
    cluster = {"kafka.bootstrap.servers": bootstrap}
    source = spark.readStream.format("penstock").options(**cluster).option("subscribe", ORDERS)
    counts = pipeline(source.option("startingOffsets", "latest").load())
    sink = counts.writeStream.format("penstock").options(**cluster, topic=COUNTS)
    sink = sink.option("exactlyOnce", "true").option("sinkId", "demo-order-counts")
    checkpoint = str(directory / "checkpoint")
    return sink.option("checkpointLocation", checkpoint).trigger(processingTime=TRIGGER).start()


class Results:
    """What has come out since we last looked, to a reader of committed data."""

    def __init__(self, bootstrap: str) -> None:
        self._cluster = Cluster(config_from({"bootstrap.servers": bootstrap}))
        self._partitions = [TopicPartition(COUNTS, index) for index in range(PARTITIONS)]
        self._seen = self._ends()

    def _ends(self) -> dict[TopicPartition, int]:
        return self._cluster.list_offsets(dict.fromkeys(self._partitions, LATEST), read_committed=True)

    def new(self) -> list[dict[str, Any]]:
        ends = self._ends()
        found = []
        for partition, end in ends.items():
            limits = FetchLimits(read_committed=True)
            for batch in read_slice(self._cluster, partition, self._seen[partition], end, schema_of(["value"]), limits):
                found += [json.loads(value) for value in batch["value"].to_pylist()]
        self._seen = ends
        return sorted(found, key=lambda result: (result["window_start"], result["region"]))


def watch(query: Any, results: Results, is_over: threading.Event) -> None:
    """Prints each micro-batch that read something, and what came out of it."""
    batch_id = -1
    started_s = time.monotonic()
    is_first = True
    while not is_over.wait(0.5):
        if query.exception() is not None:
            raise query.exception()
        progress = query.lastProgress
        if not progress or progress["batchId"] == batch_id:
            continue
        batch_id = progress["batchId"]
        if progress["numInputRows"]:
            say(
                f"micro-batch {batch_id}: {progress['numInputRows']} orders, {progress['processedRowsPerSecond']:.0f}/s"
            )
        new = results.new()
        if new and is_first:
            is_first = False
            say(f"first result {time.monotonic() - started_s:.0f} s after the query was started")
        for result in new[-_RESULTS_SHOWN_MAX:]:
            window = result["window_start"][11:19]
            counted = f"{result['orders']:>4} orders over 100, {result['amount']:>10.2f} in all"
            say(f"    {window}  {result['region']:<14} {counted}")


def main(bootstrap: str, directory: Path) -> int:
    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    directory.mkdir(parents=True, exist_ok=True)
    try:
        home = java_home(directory)
    except NoJava as error:
        say(str(error))
        return 1
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(spark_home(directory))
    say(f"{ORDERS_PER_SECOND} orders a second go to '{ORDERS}'; Spark is starting (its log: {directory / 'demo.log'})")
    make_topics(bootstrap)
    generator = threading.Thread(target=generate, args=(bootstrap, is_over), daemon=True)
    generator.start()
    spark = start_spark(directory)
    query = start_query(spark, bootstrap, directory)
    say(f"amount > 100, counted by region in windows of {WINDOW}, goes to '{COUNTS}', exactly once")
    try:
        watch(query, Results(bootstrap), is_over)
    finally:
        is_over.set()
        query.stop()
        spark.stop()
        generator.join(5)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
