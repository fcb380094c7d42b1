"""penstock bench: a quick measurement of a running cluster with confluent-kafka. `make bench` is the thorough one."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import Failed, Misused
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption
from penstock.cli.printing import Output, note, print_json, print_pairs
from penstock.cli.produce import ACKS, COMPRESSIONS
from penstock.cli.progress import count_progress

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

    from penstock.cli.connection import Cluster

app = typer.Typer(help="Measure a running cluster quickly.", no_args_is_help=True)

_BATCH_RECORDS = 1000
# Asking every record for its latency would measure Python instead of the broker.
_SAMPLE_EVERY = 100
_DRAIN_TIMEOUT_S = 60.0

Records = Annotated[int, typer.Option("-n", "--num", metavar="N", min=1, help="How many records.")]
Size = Annotated[int, typer.Option("-s", "--size", metavar="BYTES", min=8, help="Bytes of each value.")]
Partitions = Annotated[
    int, typer.Option("-p", "--partitions", metavar="N", min=1, help="Partitions of the temporary topic.")
]
Topic = Annotated[str, typer.Option("--topic", help="Use this topic instead of a temporary one.", show_default=False)]


@app.command()
def produce(
    records: Records = 500_000,
    size: Size = 100,
    partitions: Partitions = 1,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "1",
    compression: Annotated[str, typer.Option("-z", "--compression", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    topic: Topic = "",
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Measure how fast records go in."""
    from penstock.cli.connection import connect

    _check(acks, compression)
    cluster = connect(brokers, extra)
    with _bench_topic(cluster, topic, partitions) as name:
        seconds, latencies_ms = _fill(cluster, name, records, size, acks, compression)
    _print(_rates(records, size, seconds) | _percentiles(latencies_ms), output)


@app.command()
def consume(
    records: Records = 500_000,
    size: Size = 100,
    partitions: Partitions = 1,
    topic: Topic = "",
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Measure how fast records come out; a temporary topic is filled first."""
    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    with _bench_topic(cluster, topic, partitions) as name:
        if not topic:
            _fill(cluster, name, records, size, "1", "none")
        read, read_bytes, seconds = _drain(cluster, name, records)
    _print(_rates(read, read_bytes / max(read, 1), seconds), output)


@app.command()
def latency(
    rate: Annotated[int, typer.Option("--rate", metavar="N", min=1, max=20_000, help="Records a second.")] = 1000,
    seconds: Annotated[int, typer.Option("--seconds", metavar="S", min=1, help="How long.")] = 5,
    size: Size = 100,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "1",
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Measure the time from producing a record to consuming it, at a steady rate."""
    from penstock.cli.connection import connect

    _check(acks, "none")
    cluster = connect(brokers, extra)
    with _bench_topic(cluster, "", 1) as name:
        latencies_ms = _round_trips(cluster, name, rate, seconds, size, acks)
    _print({"records": len(latencies_ms), "rate": rate} | _percentiles(latencies_ms), output)


def _check(acks: str, compression: str) -> None:
    if acks not in ACKS:
        raise Misused(f"--acks takes all, 1 or 0, not '{acks}'")
    if compression not in COMPRESSIONS:
        raise Misused(f"--compression takes one of {', '.join(COMPRESSIONS)}, not '{compression}'")


@contextmanager
def _bench_topic(cluster: "Cluster", topic: str, partitions: int) -> Iterator[str]:
    """The named topic, or a new one that is deleted afterwards."""
    if topic:
        cluster.partitions_of(topic)
        yield topic
        return
    from confluent_kafka.cimpl import NewTopic

    name = f"penstock-bench-{os.urandom(4).hex()}"
    cluster.answer(cluster.admin().create_topics([NewTopic(name, partitions, -1)])[name])
    try:
        yield name
    finally:
        cluster.answer(cluster.admin().delete_topics([name])[name])


def _fill(
    cluster: "Cluster", topic: str, records: int, size: int, acks: str, compression: str
) -> tuple[float, list[float]]:
    """Seconds until the last acknowledgement, and sampled latencies."""
    from penstock.cli.connection import end_offsets

    latencies_ms: list[float] = []
    failures: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)
        elif message.latency() is not None:
            latencies_ms.append(message.latency() * 1000)

    producer = cluster.producer(
        {"acks": ACKS[acks], "compression.type": compression, "linger.ms": 5, "batch.num.messages": 10_000}
    )
    value = os.urandom(size)
    sampled = {"value": value, "callback": on_delivery}
    batch = [sampled if index % _SAMPLE_EVERY == 0 else {"value": value} for index in range(_BATCH_RECORDS)]
    places = _places(cluster, topic)
    before = sum(end_offsets(cluster, places))
    started_s = time.perf_counter()
    with count_progress("producing", records) as advance:
        sent = 0
        while sent < records:
            # What did not fit in librdkafka's queue is sent in the next turn.
            queued = producer.produce_batch(topic, batch[: min(_BATCH_RECORDS, records - sent)])
            sent += queued
            advance(queued)
            producer.poll(0 if queued else 0.01)
        left = producer.flush(_DRAIN_TIMEOUT_S)
    seconds = time.perf_counter() - started_s
    stored = sum(end_offsets(cluster, places)) - before
    if failures:
        raise cluster.failure(failures[0])
    if left or (stored < records and acks != "0"):
        raise Failed(f"only {stored:,} of {records:,} records arrived within {_DRAIN_TIMEOUT_S:.0f} s")
    return seconds, latencies_ms


def _drain(cluster: "Cluster", topic: str, records: int) -> tuple[int, int, float]:
    """Records and bytes read, and the seconds it took."""
    from penstock.cli.connection import end_offsets, first_offsets

    places = _places(cluster, topic)
    starts, ends = first_offsets(cluster, places), end_offsets(cluster, places)
    there = sum(ends) - sum(starts)
    if not there:
        raise Failed(f"'{topic}' is empty: there is nothing to consume")
    wanted = min(records, there)
    for place, start in zip(places, starts, strict=True):
        place.offset = start
    consumer = cluster.consumer({})
    consumer.assign(places)
    read = read_bytes = 0
    started_s = last_s = time.perf_counter()
    with count_progress("consuming", wanted) as advance:
        while read < wanted:
            messages = [message for message in consumer.consume(_BATCH_RECORDS * 10, 0.5) if message.error() is None]
            read += len(messages)
            read_bytes += sum(map(len, messages))
            advance(len(messages))
            now_s = time.perf_counter()
            if messages:
                last_s = now_s
            elif now_s - last_s > _DRAIN_TIMEOUT_S:
                raise Failed(f"no record came for {_DRAIN_TIMEOUT_S:.0f} s; {read:,} of {wanted:,} were read")
    return read, read_bytes, time.perf_counter() - started_s


def _round_trips(cluster: "Cluster", topic: str, rate: int, seconds: int, size: int, acks: str) -> list[float]:
    count = rate * seconds
    latencies_ms: list[float] = []
    (place,) = _places(cluster, topic)
    place.offset = 0
    consumer = cluster.consumer({"fetch.wait.max.ms": 100})
    consumer.assign([place])
    stop = threading.Event()

    def receive() -> None:
        while len(latencies_ms) < count and not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                sent_ns = int.from_bytes((message.value() or b"")[:8], "big")
                latencies_ms.append((time.perf_counter_ns() - sent_ns) / 1e6)

    receiver = threading.Thread(target=receive)
    receiver.start()
    try:
        _send_steadily(cluster, topic, rate, count, size, acks)
        receiver.join(_DRAIN_TIMEOUT_S)
    finally:
        stop.set()
        receiver.join()
    if len(latencies_ms) < count:
        note(f"penstock: only {len(latencies_ms):,} of {count:,} records came back")
    return latencies_ms


def _send_steadily(cluster: "Cluster", topic: str, rate: int, count: int, size: int, acks: str) -> None:
    producer = cluster.producer({"acks": ACKS[acks], "linger.ms": 0})
    padding = os.urandom(size - 8)
    started_s = time.perf_counter()
    with count_progress("measuring", count) as advance:
        for index in range(count):
            wait_s = started_s + index / rate - time.perf_counter()
            if wait_s > 0:
                producer.poll(0)
                time.sleep(wait_s)
            producer.produce(topic, time.perf_counter_ns().to_bytes(8, "big") + padding)
            advance(1)
        producer.flush(_DRAIN_TIMEOUT_S)


def _places(cluster: "Cluster", topic: str) -> "list[TopicPartition]":
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, partition) for partition in cluster.partitions_of(topic)]


def _rates(records: int, record_bytes: float, seconds: float) -> dict[str, Any]:
    return {
        "records": records,
        "seconds": round(seconds, 2),
        "records_per_second": round(records / seconds),
        "megabytes_per_second": round(records * record_bytes / seconds / 1e6, 1),
    }


def _percentiles(latencies_ms: list[float]) -> dict[str, Any]:
    if not latencies_ms:
        return {}
    ordered = sorted(latencies_ms)
    named = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p99.9_ms": 0.999}
    chosen = {name: round(ordered[int(share * (len(ordered) - 1))], 2) for name, share in named.items()}
    return chosen | {"max_ms": round(ordered[-1], 2)}


def _print(results: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        print_json(results)
    else:
        print_pairs({name: f"{value:,}" for name, value in results.items()})
