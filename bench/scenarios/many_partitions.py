"""1,000 topics of 10 partitions on one node: create them, write one record into each, restart, find them all again."""

import time
from collections.abc import Iterator

from bench import brokers, processes, wire
from bench.figures import Figure, Sample, no_more_than
from bench.session import Session

_PARTITIONS = 10
_TOPICS_PER_REQUEST = 50
_TIMEOUT_S = 300.0

FIGURES = (
    Figure("partitions.create", "1,000 topics x 10 partitions: create", "raw", "s"),
    Figure("partitions.records", "1,000 topics x 10 partitions: create and one record in each", "raw", "s"),
    Figure("partitions.memory", "1,000 topics x 10 partitions: resident memory", "", "MB", no_more_than(400)),
    Figure("partitions.restart", "1,000 topics x 10 partitions: clean restart", "raw", "s", no_more_than(5)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    with session.fresh() as broker:
        broker.launch()
        wire.first_acknowledgement(broker.port, "probe", broker.check_running)
        names = [f"many-{index:04}" for index in range(session.sizes.many_topics)]
        started_s = time.perf_counter()
        topics = _create(broker.port, names)
        yield "partitions.create", Sample(time.perf_counter() - started_s)
        refused = _write_one_record_each(broker.port, topics)
        note = f"{len(names) * _PARTITIONS} partitions; {refused} records were refused at first and sent again"
        yield "partitions.records", Sample(time.perf_counter() - started_s, note=note)
        yield "partitions.memory", Sample(processes.resident_bytes(broker.pids()) / 1e6)
        yield "partitions.restart", _restart(broker, topics)


def _create(port: int, names: list[str]) -> list[wire.Topic]:
    deadline_s = time.monotonic() + _TIMEOUT_S
    with wire.Connection(port, timeout_s=_TIMEOUT_S) as connection:
        for start in range(0, len(names), _TOPICS_PER_REQUEST):
            wire.create_topics(connection, names[start : start + _TOPICS_PER_REQUEST], _PARTITIONS, {})
        while time.monotonic() < deadline_s:
            topics = wire.find_topics(connection, names)
            if topics is not None:
                return topics
            time.sleep(0.1)
    raise processes.Failed(f"not all partitions had a leader after {_TIMEOUT_S:.0f} s")


def _write_one_record_each(port: int, topics: list[wire.Topic]) -> int:
    """How many records were refused on the way: each is sent again until it is acknowledged."""
    batch = wire.record_batch(1, 100)
    missing = {topic.name: set(range(topic.partitions)) for topic in topics}
    refused = 0
    deadline_s = time.monotonic() + _TIMEOUT_S
    with wire.Connection(port, timeout_s=_TIMEOUT_S) as connection:
        while missing and time.monotonic() < deadline_s:
            for name, partitions in list(missing.items()):
                missing[name] = wire.produce_once(connection, name, dict.fromkeys(sorted(partitions), batch))
                refused += len(missing[name])
                if not missing[name]:
                    del missing[name]
            # A broker that is still making the partitions needs its time for that.
            time.sleep(0.05 if missing else 0)
    if missing:
        raise processes.Failed(f"{len(missing)} topics still refused records after {_TIMEOUT_S:.0f} s")
    return refused


def _restart(broker: brokers.Broker, topics: list[wire.Topic]) -> Sample:
    """From the signal to stop until a record is acknowledged again. A restart that lost something has failed."""
    started_s = time.perf_counter()
    stop_s = broker.stop()
    broker.launch()
    wire.first_acknowledgement(broker.port, "probe", broker.check_running)
    seconds = time.perf_counter() - started_s
    _find_one_record_each(broker.port, topics)
    all_s = time.perf_counter() - started_s
    return Sample(seconds, note=f"stop {stop_s:.1f} s; each record was found again after {all_s:.1f} s")


def _find_one_record_each(port: int, topics: list[wire.Topic]) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    with wire.Connection(port) as connection:
        for topic in topics:
            ends = wire.end_offsets(connection, topic)
            while ends is None and time.monotonic() < deadline_s:
                time.sleep(0.05)
                ends = wire.end_offsets(connection, topic)
            if ends != [1] * _PARTITIONS:
                raise processes.Failed(f"after the restart the partitions of {topic.name} end at {ends}")
