"""What ProducerPerformance gets of a broker that has an eighth of a core, so that the tool is not the limit: on two
cores it takes most of both otherwise, whoever serves it.
"""

from collections.abc import Iterator

from bench import wire
from bench.figures import Figure, Sample, at_least
from bench.session import TOPIC_PARTITIONS, Session

# With a quarter it took 1.73 of the 1.75 cores left to it against Penstock, reckoned with its start-up.
_BROKER_CORES = 1 / 8
_LABEL = "produce {}, batched{}, an eighth of a core"
_SIZES = ((100, "100 B", 1.5), (1000, "1 KB", 1.3))
# As in `produce`: the Java producer refuses idempotence with any acks but all.
_MODES = (
    ("plain", ", acks=1", {"acks": "1", "enable.idempotence": "false"}),
    ("idempotent", ", idempotent", {"acks": "all", "enable.idempotence": "true"}),
)

FIGURES = tuple(
    Figure(
        f"confined.{record_bytes}.{mode}",
        _LABEL.format(shown, of_mode),
        "ProducerPerformance",
        "records/s",
        at_least(goal),
    )
    for record_bytes, shown, goal in _SIZES
    for mode, of_mode, _ in _MODES
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    broker = session.shared()
    for record_bytes, _, _ in _SIZES:
        for mode, _, properties in _MODES:
            key = f"confined.{record_bytes}.{mode}"
            wire.make_topic(broker.port, key, TOPIC_PARTITIONS, broker.unsynced_topic_settings)
            records = session.sizes.tool_bytes // 2 // record_bytes
            sample = session.producer_performance(key, record_bytes, records, properties, broker_cores=_BROKER_CORES)
            session.forget(key)
            yield key, sample
