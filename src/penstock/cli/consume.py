"""penstock consume: records of topics, printed."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import Failed, Misused
from penstock.cli.formats import BadFormat, PrintedRecord, compile_output, record_as_json
from penstock.cli.offsets import END, Anchor, BadOffset, Position, Span, parse_span, resolve_start, resolve_stop
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, parse_partitions
from penstock.cli.printing import is_terminal
from penstock.cli.produce import printed

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from penstock.cli.connection import Cluster

_POLL_S = 0.2
_POLL_RECORDS = 1000

# (topic, partition)
Place = tuple[str, int]


@dataclass(frozen=True)
class Extent:
    """From `start` up to but not including `stop`; for ever without one."""

    start: int
    stop: int | None


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="What to read.", show_default=False)],
    offset: Annotated[
        str, typer.Option("-o", "--offset", help="start, end, N, -N, +N, N:M, :end, @TIME, @TIME:TIME.")
    ] = "start",
    count: Annotated[
        int, typer.Option("-n", "--num", metavar="N", min=0, help="Stop after this many. 0: no limit.")
    ] = 0,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at what is the end now.")] = False,
    partitions: Annotated[
        str, typer.Option("-p", "--partitions", help="Only these: 0,2,4-6.", show_default=False)
    ] = "",
    template: Annotated[str, typer.Option("-f", "--format", help="How to print a record.")] = "json",
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
) -> None:
    """Consume records and print them, following the topic until Ctrl-C.

    penstock consume orders -f '%p %o %k %v\\n' -n 10
    penstock consume orders -o @-1h:end

    In formats: %t topic, %p partition, %o offset, %k key, %v value,
    %d timestamp, %h{%k=%v } headers, %K %V lengths, %e leader epoch;
    %v{hex}, %v{base64}, %d{strftime[%F %T]} print them differently.

    A TIME is 2024-05-01T12:00:00Z, milliseconds since the epoch, or -1h.
    """
    try:
        span = parse_span(offset, time.time_ns() // 1_000_000)
        write = _record_writer(template)
    except (BadOffset, BadFormat) as error:
        raise Misused(str(error)) from error
    if until_end and span.stop is None:
        span = Span(span.start, END)
    chosen = parse_partitions(partitions) if partitions else None

    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    extents = _extents(cluster, _places(cluster, topics, chosen), span)
    consumer = cluster.consumer({"enable.partition.eof": span.stop is not None})
    try:
        Reader(consumer, extents, write, count).run()
    except KeyboardInterrupt:
        # How one stops following: not an error.
        pass
    finally:
        sys.stdout.buffer.flush()


def _record_writer(template: str) -> Callable[[PrintedRecord, int], bytes]:
    if template != "json":
        return compile_output(template)
    indent = 2 if is_terminal(sys.stdout) else None
    return lambda record, index: record_as_json(record, indent)


def _places(cluster: "Cluster", topics: list[str], chosen: list[int] | None) -> list[Place]:
    places = []
    for topic in dict.fromkeys(topics):
        existing = cluster.partitions_of(topic)
        missing = sorted(set(chosen or ()) - set(existing))
        if missing:
            raise Failed(f"'{topic}' has no partition {missing[0]}; it has {len(existing)}")
        places += [(topic, partition) for partition in chosen or existing]
    return places


def _extents(cluster: "Cluster", places: list[Place], span: Span) -> dict[Place, Extent]:
    """The offsets that the span means in each partition; partitions with nothing to read are left out."""
    from confluent_kafka import TopicPartition

    from penstock.cli.connection import end_offsets, first_offsets, offsets_at

    targets = [TopicPartition(*place) for place in places]
    lows, highs = first_offsets(cluster, targets), end_offsets(cluster, targets)

    def by_time(position: Position | None) -> list[int]:
        if position is None or position.anchor is not Anchor.TIMESTAMP_MS:
            return [-1] * len(targets)
        return offsets_at(cluster, targets, position.amount)

    extents = {}
    start_times, stop_times = by_time(span.start), by_time(span.stop)
    for place, low, high, start_at, stop_at in zip(places, lows, highs, start_times, stop_times, strict=True):
        start = resolve_start(span.start, low, high, _found(start_at))
        stop = None if span.stop is None else resolve_stop(span.stop, low, high, _found(stop_at))
        if stop is None or start < stop:
            extents[place] = Extent(start, stop)
    return extents


def _found(offset: int) -> Callable[[int], int | None]:
    return lambda timestamp_ms: None if offset < 0 else offset


class Reader:
    """Reads every extent to its stop, or until `count` records are printed."""

    def __init__(
        self,
        consumer: "Consumer",
        extents: dict[Place, Extent],
        write: Callable[[PrintedRecord, int], bytes],
        count: int,
    ) -> None:
        self._consumer = consumer
        self._extents = extents
        self._write = write
        self._count = count
        self._printed = 0

    def run(self) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.assign(
            [TopicPartition(*place, extent.start) for place, extent in self._extents.items()],
        )
        out = sys.stdout.buffer
        while self._extents:
            for message in self._consumer.consume(_POLL_RECORDS, _POLL_S):
                self._take(message)
                if self._count and self._printed >= self._count:
                    out.flush()
                    return
            out.flush()

    def _take(self, message: "Message") -> None:
        from confluent_kafka import KafkaError

        place = (message.topic() or "", message.partition() or 0)
        extent = self._extents.get(place)
        error = message.error()
        offset = message.offset() or 0
        if extent is None or (
            error is not None and error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
        ):
            # A partition already read to its stop, or a broker away for a moment: librdkafka comes back to it.
            return
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise Failed(f"{place[0]}, partition {place[1]}: {error.str()}")
        if error is None and (extent.stop is None or offset < extent.stop):
            sys.stdout.buffer.write(self._write(printed(message), self._printed))
            self._printed += 1
            offset += 1
        # Compaction and transaction markers leave gaps, so the stop itself may never be delivered: passing it will do.
        if extent.stop is not None and offset >= extent.stop:
            self._finish(place)

    def _finish(self, place: Place) -> None:
        from confluent_kafka import TopicPartition

        del self._extents[place]
        self._consumer.pause([TopicPartition(*place)])
