"""Publish to consume at 1,000 messages a second, by confluent-kafka with linger.ms=0 and otherwise its defaults."""

from collections.abc import Iterator

from bench import wire
from bench.figures import Figure, Sample, at_most
from bench.latency import LatencyPlan
from bench.session import Session

FIGURES = (
    Figure("latency.p50", "publish to consume at 1,000 msg/s, p50", "confluent-kafka", "ms"),
    Figure("latency.p99", "publish to consume at 1,000 msg/s, p99", "confluent-kafka", "ms", at_most(1.0)),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    broker = session.shared()
    wire.make_topic(broker.port, "latency", 1)
    seconds = session.sizes.latency_seconds
    result = session.latencies(LatencyPlan(broker.port, "latency", 1_000, seconds, seconds / 2, 100))
    yield "latency.p50", Sample(result["p50_ms"])
    yield "latency.p99", Sample(result["p99_ms"])
