"""The life of a log: compaction against Kafka's cleaner on the same records, what it costs producers, and retention.

Values of 1 KB under random keys, as many keys as records, in batches of 16 KB, written by one connection so that both
logs hold the same batches. Ten segments, of which all but the last can be compacted. It begins when the topic's
`min.cleanable.dirty.ratio` is lowered, and is over when the broker's checkpoint says so. A smaller topic goes first,
for Java's compiler and for ours.
"""

import random
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from bench import processes, replay, retention_scan, wire
from bench.brokers import Penstock
from bench.figures import Figure, Sample, at_most, no_less_than, no_more_than
from bench.session import TOPIC_PARTITIONS, Session
from penstock.base.errors import ErrorCode
from penstock.protocol.records import Record, build_batch

_VALUE_BYTES = 1000
_BATCH_RECORDS = 16
_IN_FLIGHT_MAX = 20
_WARMUP_SHARE = 10
_BACKOFF_MS = 100
_TIMEOUT_S = 120.0
_SEGMENTS = 10
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_CHECKPOINT = "cleaner-offset-checkpoint"

FIGURES = (
    Figure("compaction.wall", "compaction of 1 KB records, as many keys", "", "s", at_most(1.5)),
    Figure("compaction.produce", "produce while compaction runs, share of idle", "raw", "x", no_less_than(0.8)),
    Figure("compaction.retention", "1,000 partitions looked at for retention", "", "ms of loop", no_more_than(50)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    broker = session.shared()
    with wire.Connection(broker.port) as connection:
        wire.alter_config(connection, _BROKER_RESOURCE, "1", "log.cleaner.backoff.ms", str(_BACKOFF_MS))
    warmup = _filled(session, "compaction-warmup", session.sizes.compaction_bytes // _WARMUP_SHARE)
    _begin(broker.port, warmup)
    _wait(session, warmup)
    topic = _filled(session, "compaction", session.sizes.compaction_bytes)
    session.settle()
    began_s = time.monotonic()
    _begin(broker.port, topic)
    _wait(session, topic)
    yield "compaction.wall", Sample(time.monotonic() - began_s)
    yield "compaction.produce", _produce_meanwhile(session)
    if session.kind is Penstock:
        yield "compaction.retention", Sample(session.printed(retention_scan.command())["milliseconds"])
    else:
        yield "compaction.retention", Sample(None)


def _produce_meanwhile(session: Session) -> Sample:
    topic = _filled(session, "compaction-meanwhile", session.sizes.compaction_bytes)
    port = session.shared().port
    wire.make_topic(port, "compaction-produce", TOPIC_PARTITIONS)
    plan = session.produce_plan("compaction-produce", 1000, session.sizes.replay_bytes // 2)
    session.settle()
    idle = session.printed(replay.command(plan))
    session.settle()
    _begin(port, topic)
    # Both look for work this often.
    time.sleep(2 * _BACKOFF_MS / 1000)
    meanwhile = session.printed(replay.command(plan))
    note = "" if _is_compacting(session, topic) else "compaction was over before the producer"
    _wait(session, topic)
    return Sample(idle["seconds"] / meanwhile["seconds"], note=note)


def _filled(session: Session, topic: str, value_bytes: int) -> str:
    segment_bytes = max(1 << 20, value_bytes // _SEGMENTS)
    settings = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes), "min.cleanable.dirty.ratio": "1"}
    port = session.shared().port
    wire.make_topic(port, topic, 1, settings)
    chance = random.Random(topic)
    count = value_bytes // _VALUE_BYTES
    value = chance.randbytes(_VALUE_BYTES)
    now_ms = time.time_ns() // 1_000_000
    in_flight: deque[int] = deque()
    with wire.Connection(port) as connection:
        for start in range(0, count, _BATCH_RECORDS):
            keys = [b"key-%08d" % chance.randrange(count) for _ in range(_BATCH_RECORDS)]
            batch = build_batch([Record(delta, now_ms, key, value) for delta, key in enumerate(keys)])
            connection.send(wire.PRODUCE, wire.PRODUCE_VERSION, wire.produce_request(topic, {0: batch}, 1))
            in_flight.append(start)
            if len(in_flight) == _IN_FLIGHT_MAX:
                _check(connection, in_flight)
        while in_flight:
            _check(connection, in_flight)
    return topic


def _check(connection: wire.Connection, in_flight: deque[int]) -> None:
    in_flight.popleft()
    answer = connection.receive(wire.PRODUCE, wire.PRODUCE_VERSION)
    error_code = answer.responses[0].partition_responses[0].error_code
    if error_code != ErrorCode.none:
        raise processes.Failed(f"a batch was refused: {error_code}")


def _begin(port: int, topic: str) -> None:
    with wire.Connection(port) as connection:
        wire.alter_config(connection, _TOPIC_RESOURCE, topic, "min.cleanable.dirty.ratio", "0.01")


def _wait(session: Session, topic: str) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while _is_compacting(session, topic):
        if time.monotonic() > deadline_s:
            raise processes.Failed(f"{topic} was not compacted within {_TIMEOUT_S:.0f} s")
        time.sleep(0.02)


def _is_compacting(session: Session, topic: str) -> bool:
    """Until the checkpoint names the active segment's first offset."""
    (partition,) = session.shared().directory.rglob(f"{topic}-0")
    active_base = max(int(path.stem) for path in partition.glob("*.log"))
    checkpoint = partition.parent / _CHECKPOINT
    return f"{topic} 0 {active_base}\n" not in (_text(checkpoint) if checkpoint.exists() else "")


def _text(path: Path) -> str:
    return path.read_text()
