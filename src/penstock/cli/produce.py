"""penstock produce: records from stdin or a file into a topic."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from penstock.cli.failures import Failed, Misused, error_of, sentence_of
from penstock.cli.formats import BadFormat, Headers, PrintedRecord, compile_output
from penstock.cli.input_formats import InputMismatch, InputRecord, compile_input
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties
from penstock.cli.partitioners import NoPartitioner, Partitioner, partitioner
from penstock.cli.printing import human_bytes, is_terminal, note, plural
from penstock.cli.progress import byte_progress

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH_RECORD = "Produced to partition %p at offset %o with timestamp %d.\\n"
DELIVERY_TIMEOUT_MS = 30_000
_CHUNK_BYTES = 256 * 1024
_IDLE_POLL_S = 0.05


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.", show_default=False)],
    template: Annotated[
        str, typer.Option("-f", "--format", help="How records are read: %k:%v\\n, %v for the whole input, json.")
    ] = "%v\\n",
    key: Annotated[str | None, typer.Option("-k", "--key", help="The key of every record.", show_default=False)] = None,
    headers: Annotated[
        list[str], typer.Option("-H", "--header", metavar="NAME=VALUE", help="A header of every record; repeatable.")
    ] = NONE_GIVEN,
    file: Annotated[
        str, typer.Option("--file", metavar="PATH", help="Read this file instead of stdin.", show_default=False)
    ] = "",
    partition: Annotated[
        int, typer.Option("-p", "--partition", help="Into this partition, whatever the key.", show_default=False)
    ] = -1,
    partitioner_name: Annotated[
        str, typer.Option("--partitioner", help="murmur2 (as Java), crc32, round-robin, sticky, or module:function.")
    ] = "murmur2",
    compression: Annotated[str, typer.Option("-z", "--compression", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    tombstone: Annotated[
        bool, typer.Option("-Z", "--tombstone", help="Empty values become null: they delete their key on compaction.")
    ] = False,
    output_format: Annotated[
        str,
        typer.Option("-o", "--output-format", help="What to print for each record: %p %o\\n.", show_default=False),
    ] = "",
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
) -> None:
    """Produce records from stdin, one per line unless --format says otherwise.

    echo hello | penstock produce greetings
    penstock produce orders -f '%k:%v\\n' --file orders.txt

    In formats: %k key, %v value, %p partition, %d timestamp,
    %H %h{%k=%v;} headers; %K and %V lengths, such as %V{big32}%v;
    %v{hex} and %v{base64} decode. json: lines as consume -f json prints.
    """
    if acks not in ACKS:
        raise Misused(f"--acks takes all, 1 or 0, not '{acks}'")
    if compression not in COMPRESSIONS:
        raise Misused(f"--compression takes one of {', '.join(COMPRESSIONS)}, not '{compression}'")
    try:
        read = compile_input(template)
        choose = partitioner(partitioner_name)
    except (BadFormat, NoPartitioner) as error:
        raise Misused(str(error)) from error
    common_headers = _parse_headers(headers)
    stream = _opened(file)
    interactive = is_terminal(stream)
    report = Report(topic, output_format or (EACH_RECORD if interactive else ""))

    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    partition_count = len(cluster.partitions_of(topic))
    if partition >= partition_count:
        raise Failed(f"'{topic}' has no partition {partition}; it has {partition_count}")
    producer = cluster.producer(
        {
            "acks": ACKS[acks],
            "compression.type": compression,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "linger.ms": 5,
        }
    )
    sender = Sender(producer, topic, partition_count, choose if partition < 0 else lambda *_: partition, report)
    problem = None
    try:
        with byte_progress(f"producing to {topic}", _size_of(stream)) as advance:
            for record in read(_chunks(stream, producer, advance)):
                sender.send(_completed(record, key, common_headers, tombstone))
                if interactive:
                    producer.flush(DELIVERY_TIMEOUT_MS / 1000)
    except (InputMismatch, NoPartitioner) as error:
        problem = error
    producer.flush(DELIVERY_TIMEOUT_MS / 1000)
    report.finish()
    if problem:
        raise Failed(f"{problem}. What came before it was produced.") from problem


class Report:
    """What became of the records: a line for each, or one sentence for all."""

    def __init__(self, topic: str, each_format: str) -> None:
        self._topic = topic
        try:
            self._write = compile_output(each_format) if each_format else None
        except BadFormat as error:
            raise Misused(str(error)) from error
        self._started_s = time.monotonic()
        self._delivered = 0
        self._bytes = 0
        self._offsets: dict[int, tuple[int, int]] = {}
        self._first_error: KafkaError | None = None
        self.sent = 0

    def on_delivery(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self.on_failure(error)
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        first, last = self._offsets.get(partition, (offset, offset))
        self._offsets[partition] = (min(first, offset), max(last, offset))
        self._bytes += len(message)
        if self._write:
            sys.stdout.buffer.write(self._write(printed(message), self._delivered))
            sys.stdout.buffer.flush()
        self._delivered += 1

    def on_failure(self, error: "KafkaError") -> None:
        self._first_error = self._first_error or error

    def finish(self) -> None:
        lost = self.sent - self._delivered
        if lost:
            why = sentence_of(self._first_error) if self._first_error else "the broker did not answer in time"
            raise Failed(f"{lost:,} of {plural(self.sent, 'record')} did not get into '{self._topic}': {why}")
        if not self._write:
            note(self._summary())

    def _summary(self) -> str:
        if not self._delivered:
            return "Nothing to produce: the input was empty."
        if len(self._offsets) > 6:
            places = f"over {len(self._offsets)} partitions"
        else:
            places = ", ".join(_place(partition, *span) for partition, span in sorted(self._offsets.items()))
        text = f"Produced {plural(self._delivered, 'record')} to {self._topic}: {places}."
        seconds = time.monotonic() - self._started_s
        if seconds > 1:
            text += f" {human_bytes(self._bytes)} in {seconds:.1f} s, {self._delivered / seconds:,.0f} records/s."
        return text


def _place(partition: int, first: int, last: int) -> str:
    offsets = f"offset {first}" if first == last else f"offsets {first}-{last}"
    return f"partition {partition} at {offsets}"


class Sender:
    def __init__(
        self, producer: "Producer", topic: str, partition_count: int, choose: Partitioner, report: Report
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition_count = partition_count
        self._choose = choose
        self._report = report

    def send(self, record: InputRecord) -> None:
        from confluent_kafka import KafkaException

        partition = record.partition
        if partition is None:
            partition = self._choose(record.key, record.value, self._partition_count)
        if not 0 <= partition < self._partition_count:
            raise InputMismatch(f"there is no partition {partition}: '{self._topic}' has {self._partition_count}")
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    partition=partition,
                    on_delivery=self._report.on_delivery,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                # librdkafka's queue is full: let deliveries make room.
                self._producer.poll(0.1)
            except KafkaException as exception:
                # Refused before it was sent, as a record that is too large is.
                self._report.on_failure(error_of(exception))
                break
        self._report.sent += 1
        self._producer.poll(0)


def printed(message: "Message") -> PrintedRecord:
    """A message of confluent-kafka's as the format strings take it."""
    return PrintedRecord(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),  # type: ignore[arg-type]
        leader_epoch=-1 if message.leader_epoch() is None else message.leader_epoch() or 0,
    )


def _completed(record: InputRecord, key: str | None, headers: Headers, tombstone: bool) -> InputRecord:
    if key is not None:
        record = record._replace(key=key.encode())
    if headers:
        record = record._replace(headers=record.headers + headers)
    if tombstone and not record.value:
        record = record._replace(value=None)
    return record


def _parse_headers(texts: list[str]) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        # rpk writes name:value; whichever sign comes first separates.
        position = min((text.index(sign) for sign in "=:" if sign in text), default=0)
        if not position:
            raise Misused(f"-H takes NAME=VALUE, not '{text}'")
        headers.append((text[:position], text[position + 1 :].encode()))
    return tuple(headers)


def _opened(path: str) -> BinaryIO:
    if not path or path == "-":
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except OSError as error:
        raise Failed(f"cannot read {path}: {error.strerror}") from error


def _size_of(stream: BinaryIO) -> int:
    """0 for what has no size beforehand: pipes and terminals."""
    return os.fstat(stream.fileno()).st_size


def _chunks(stream: BinaryIO, producer: "Producer", advance: Callable[[int], None]) -> Iterator[bytes]:
    """The input as it comes. While it is waited for, deliveries are reported."""
    source: Any = stream
    while True:
        while not select.select([source], [], [], _IDLE_POLL_S)[0]:
            producer.poll(0)
        chunk: bytes = source.read1(_CHUNK_BYTES)
        if not chunk:
            return
        advance(len(chunk))
        yield chunk
