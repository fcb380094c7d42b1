"""From the start of a log to its end: by Kafka's own tool, which needs consumer groups, and by the raw replayer."""

from collections.abc import Iterator

from bench import wire
from bench.figures import Figure, Sample, at_least, at_most
from bench.session import TOPIC_PARTITIONS, Session

FIND_COORDINATOR, JOIN_GROUP = 10, 11

FIGURES = tuple(
    Figure(
        f"consume.{size}.{client}",
        f"consume {label} from the start",
        name,
        "records/s",
        at_least(1.0),
        cpu_goal=at_most(1.0),
    )
    for size, label in ((100, "100 B"), (1000, "1 KB"))
    for client, name in (("tool", "ConsumerPerformance"), ("raw", "raw"))
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    port = session.shared().port
    with wire.Connection(port) as connection:
        serves_groups = {FIND_COORDINATOR, JOIN_GROUP} <= wire.served_api_keys(connection)
    for record_bytes in (100, 1000):
        topic = wire.make_topic(port, f"consume-{record_bytes}", TOPIC_PARTITIONS)
        plan = session.produce_plan(topic.name, record_bytes, session.sizes.tool_bytes)
        session.replayed(plan)
        records = plan.requests * plan.batches_per_request * plan.batch_records
        if serves_groups:
            yield f"consume.{record_bytes}.tool", session.consumer_performance(topic.name, records)
        else:
            note = "ConsumerPerformance subscribes as a group, and consumer groups are not served yet"
            yield f"consume.{record_bytes}.tool", Sample(None, note=note)
        fetches = session.fetch_plan(topic, record_bytes, session.sizes.fetch_bytes)
        yield f"consume.{record_bytes}.raw", session.replayed(fetches)
