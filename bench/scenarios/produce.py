"""acks=1: batched, with and without idempotence, by Kafka's own tool and by the raw replayer; one record per request,
with as many on their way as the Java producer allows, and as librdkafka, which has no bound, soon has.

The Java producer refuses idempotence with any acks but all. So that the figure still compares page cache with page
cache, as acks=1 does, Penstock's topic for it does not ask for the sync that acks=all means there; the raw replayer
sends idempotent batches with acks=1. What a Java producer with its defaults gets, sync included, is a figure of its own
without a goal: Penstock has the records on the disk by then, Kafka has not.
"""

from collections.abc import Iterator

from bench import replay, wire
from bench.figures import Figure, Sample, at_least
from bench.session import DEEP_IN_FLIGHT, REPLAY_IN_FLIGHT, TOPIC_PARTITIONS, Session

_TOOL, _RAW = "ProducerPerformance", "raw"
_RATE = "records/s"

FIGURES = (
    Figure("produce.100.plain.tool", "produce 100 B, acks=1, batched", _TOOL, _RATE, at_least(1.5)),
    Figure("produce.100.plain.raw", "produce 100 B, acks=1, batched", _RAW, _RATE, at_least(1.5)),
    Figure("produce.100.idempotent.tool", "produce 100 B, batched, idempotent", _TOOL, _RATE, at_least(1.5)),
    Figure("produce.100.idempotent.raw", "produce 100 B, acks=1, batched, idempotent", _RAW, _RATE, at_least(1.5)),
    Figure("produce.1000.plain.tool", "produce 1 KB, acks=1, batched", _TOOL, _RATE, at_least(1.3)),
    Figure("produce.1000.plain.raw", "produce 1 KB, acks=1, batched", _RAW, _RATE, at_least(1.3)),
    Figure("produce.1000.idempotent.tool", "produce 1 KB, batched, idempotent", _TOOL, _RATE, at_least(1.3)),
    Figure("produce.1000.idempotent.raw", "produce 1 KB, acks=1, batched, idempotent", _RAW, _RATE, at_least(1.3)),
    Figure("produce.defaults.tool", "produce 1 KB, Java's defaults (only Penstock syncs)", _TOOL, _RATE),
    Figure(
        "produce.single.raw", "produce 100 B, acks=1, one record per request, 5 in flight", _RAW, _RATE, at_least(3)
    ),
    Figure("produce.deep.raw", "produce 100 B, acks=1, one record per request, 20 in flight", _RAW, _RATE, at_least(3)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    port = session.shared().port
    for record_bytes in (100, 1000):
        yield from _plain(session, record_bytes)
        yield from _idempotent(session, record_bytes)
    wire.make_topic(port, "produce-defaults", TOPIC_PARTITIONS)
    yield "produce.defaults.tool", _by_tool(session, "produce-defaults", 1000, {"acks": "all"})
    for key, in_flight_max in (("single", REPLAY_IN_FLIGHT), ("deep", DEEP_IN_FLIGHT)):
        topic = wire.make_topic(port, f"produce-{key}", TOPIC_PARTITIONS).name
        plan = session.single_record_plan(topic, 100, session.sizes.single_requests, 1, in_flight_max)
        yield f"produce.{key}.raw", _replayed(session, plan)


def _plain(session: Session, record_bytes: int) -> Iterator[tuple[str, Sample]]:
    key = f"produce.{record_bytes}.plain"
    port = session.shared().port
    topic = wire.make_topic(port, f"{key}.tool", TOPIC_PARTITIONS).name
    properties = {"acks": "1", "enable.idempotence": "false"}
    yield f"{key}.tool", _by_tool(session, topic, record_bytes, properties)
    topic = wire.make_topic(port, f"{key}.raw", TOPIC_PARTITIONS).name
    plan = session.produce_plan(topic, record_bytes, session.sizes.replay_bytes)
    yield f"{key}.raw", _replayed(session, plan)


def _idempotent(session: Session, record_bytes: int) -> Iterator[tuple[str, Sample]]:
    key = f"produce.{record_bytes}.idempotent"
    broker = session.shared()
    topic = wire.make_topic(broker.port, f"{key}.tool", TOPIC_PARTITIONS, broker.unsynced_topic_settings).name
    properties = {"acks": "all", "enable.idempotence": "true"}
    yield f"{key}.tool", _by_tool(session, topic, record_bytes, properties)
    topic = wire.make_topic(broker.port, f"{key}.raw", TOPIC_PARTITIONS).name
    plan = session.produce_plan(topic, record_bytes, session.sizes.replay_bytes, idempotent=True)
    yield f"{key}.raw", _replayed(session, plan)


def _by_tool(session: Session, topic: str, record_bytes: int, properties: dict[str, str]) -> Sample:
    records = session.sizes.tool_bytes // record_bytes
    sample = session.producer_performance(topic, record_bytes, records, properties)
    session.forget(topic)
    return sample


def _replayed(session: Session, plan: replay.ProduceReplay) -> Sample:
    sample = session.replayed(plan)
    session.forget(plan.topic)
    return sample
