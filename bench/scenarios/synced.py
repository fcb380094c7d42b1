"""acks=all with one replica, on the disk before the answer: Penstock's default, Kafka's flush.messages=1."""

from collections.abc import Iterator

from bench import wire
from bench.figures import Figure, Sample, at_least
from bench.session import TOPIC_PARTITIONS, Session

FIGURES = (
    Figure("synced.batched.tool", "acks=all, synced, 1 KB, batched", "ProducerPerformance", "records/s", at_least(3)),
    Figure("synced.single.raw", "acks=all, synced, 1 KB, one record per request", "raw", "records/s", at_least(3)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    broker = session.shared()
    wire.make_topic(broker.port, "synced-batched", TOPIC_PARTITIONS, broker.synced_topic_settings)
    properties = {"acks": "all", "enable.idempotence": "false"}
    records = session.sizes.synced_tool_records
    yield "synced.batched.tool", session.producer_performance("synced-batched", 1000, records, properties)
    wire.make_topic(broker.port, "synced-single", TOPIC_PARTITIONS, broker.synced_topic_settings)
    plan = session.single_record_plan("synced-single", 1000, session.sizes.synced_requests, acks=-1)
    yield "synced.single.raw", session.replayed(plan)
