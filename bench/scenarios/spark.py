"""Spark: this project's source and sink on Penstock against Spark's own Kafka connector, tuned, on Apache Kafka.

The sink is exactly once here and at least once there: Spark's has nothing else. Then `penstock.arrow.read`, for which
there is no opponent.
"""

import json
import random
import sys
import time
from collections.abc import Iterator

from bench import brokers, processes, spark_job, wire
from bench.figures import Figure, Goal, Sample, at_least
from bench.session import Session
from penstock.protocol.compression import CODEC_NAMES
from penstock.protocol.records import Record, build_batch

_CODECS = ("none", "lz4")
_PARTITIONS = 2
# Some thirty queries, and a Java that starts.
_TIMEOUT_S = 1800.0
_BATCH_RECORDS = 150
_VALUE_BYTES = (20, 180)

FIGURES = (
    *(
        Figure(f"spark.{columns}.{codec}", f"{label}, {codec}, sizes vary", "Spark", "rows/s", at_least(goal))
        for columns, label, goal in (("all", "read all columns", 1.0), ("two", "read two columns", 1.5))
        for codec in _CODECS
    ),
    Figure("spark.write", "write, exactly once here", "Spark", "rows/s", at_least(0.7)),
    Figure(
        "arrow.read",
        "read a topic, per core",
        "penstock.arrow",
        "records/s",
        Goal(5_000_000, is_lower_bound=True, is_absolute=True),
    ),
)

_ARROW = """
import json, sys, time
import penstock.arrow
for _ in range(4):
    started_s = time.process_time()
    table = penstock.arrow.read(sys.argv[2], bootstrap_servers=f"127.0.0.1:{sys.argv[1]}")
    seconds, rows = time.process_time() - started_s, table.num_rows
    del table
print(json.dumps({"rows_per_cpu_second": rows / seconds}))
"""


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    jars = brokers.REPOSITORY / ".cache" / "spark-kafka-jars"
    if not any(jars.glob("spark-sql-kafka*.jar")):
        script = str(brokers.REPOSITORY / "scripts" / "spark-kafka-jars")
        processes.run([script], brokers.REPOSITORY / ".cache" / "spark-kafka-jars.out", timeout_s=600)
    port = session.shared().port
    topics = {codec: _filled(port, codec, session.sizes.spark_records) for codec in _CODECS}
    is_ours = session.kind is brokers.Penstock
    plan = spark_job.SparkPlan(port, "penstock" if is_ours else "kafka", tuple(topics.values()), rounds=3)
    rates = session.answered(spark_job.command(plan), _TIMEOUT_S)
    for codec, topic in topics.items():
        for columns in ("all", "two"):
            yield f"spark.{columns}.{codec}", Sample(rates[f"{columns}.{topic}"])
    yield "spark.write", Sample(rates["write"])
    if is_ours:
        answer = session.answered([sys.executable, "-c", _ARROW, str(port), topics["none"]])
        yield "arrow.read", Sample(answer["rows_per_cpu_second"])


def _filled(port: int, codec: str, records: int) -> str:
    chance = random.Random(1)
    # Of now: retention takes what is a week old.
    now_ms = time.time_ns() // 1_000_000
    topic = wire.make_topic(port, f"spark-{codec}", _PARTITIONS).name
    batches = []
    for _ in range(64):
        made = [Record(i, now_ms + i, b"k%d" % chance.randrange(1000), _value(chance)) for i in range(_BATCH_RECORDS)]
        batches.append(build_batch(made, codec=CODEC_NAMES.index(codec)))
    with wire.Connection(port) as connection:
        for number in range(records // (_BATCH_RECORDS * _PARTITIONS)):
            batch = batches[number % len(batches)]
            if wire.produce_once(connection, topic, dict.fromkeys(range(_PARTITIONS), batch)):
                raise processes.Failed(f"{topic} did not take a batch")
    return topic


def _value(chance: random.Random) -> bytes:
    """JSON-like text, which compresses as such text does."""
    size = chance.randrange(*_VALUE_BYTES)
    return json.dumps({"id": chance.randrange(10**6), "note": "x" * 5 + chance.randbytes(size // 3).hex()}).encode()[
        :size
    ]
