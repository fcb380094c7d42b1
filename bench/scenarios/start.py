"""From starting the process, with an empty data directory, to the first acknowledged record in a new topic."""

import time
from collections.abc import Iterator

from bench import wire
from bench.figures import Figure, Sample, no_more_than
from bench.session import Session

FIGURES = (Figure("start.first_ack", "start to first acknowledgement", "raw", "s", no_more_than(1)),)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    with session.fresh() as broker:
        started_s = time.perf_counter()
        broker.launch()
        wire.first_acknowledgement(broker.port, "first", broker.check_running)
        yield "start.first_ack", Sample(time.perf_counter() - started_s)
