"""The exactly-once sink with places to die at: at the step that is asked for it waits, for a test to kill somebody.

The directory in PENSTOCK_CRASHES is where the test and Spark's processes meet: the test writes the step's name to
`plan`; who gets there first takes it away, says who it is in `reached`, and waits for `go`.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from penstock.client.cluster import Cluster
from penstock.client.producing import ProducerId
from penstock.client.transactions import Transactions
from penstock.pipeline.spark import exactly_once
from penstock.pipeline.spark.data_source import PenstockDataSource
from penstock.pipeline.spark.decisions import Decision, DecisionLog
from penstock.pipeline.spark.exactly_once import Attempt, ExactlyOnceSink, ExactlyOnceWriter, Prepared
from penstock.pipeline.spark.sink_options import SinkOptions, sink_options

STEPS = (
    "the driver has taken over",
    "a task begins",
    "a task has written a part",
    "a task is prepared",
    "nothing is decided yet",
    "it is decided",
    "one is committed",
    "all are committed",
    "it is done",
)
"""In the order in which a micro-batch takes them."""
TASK_STEPS = STEPS[1:4]
_GO_SECONDS_MAX = 120
_MEETING_PLACE = "PENSTOCK_CRASHES"


def reach(step: str) -> None:
    directory = Path(os.environ[_MEETING_PLACE])
    plan = directory / "plan"
    with suppress(FileNotFoundError):
        if plan.read_text() != step:
            return
        # Of several that get here one wins.
        mine = directory / f"plan-{os.getpid()}"
        plan.rename(mine)
        mine.unlink()
        told = directory / "telling"
        told.write_text(json.dumps({"pid": os.getpid()}))
        told.rename(directory / "reached")
        deadline_s = time.monotonic() + _GO_SECONDS_MAX
        while not (directory / "go").exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)


class CrashingTransactions(Transactions):
    def end(self, transactional_id: str, producer: ProducerId, *, commits: bool) -> ProducerId:
        after = super().end(transactional_id, producer, commits=commits)
        # The sink's own id has no slash in it: that one carries decisions.
        if commits and "/" in transactional_id:
            reach("one is committed")
        return after


class CrashingLog(DecisionLog):
    def take_over(self) -> ProducerId:
        taken = super().take_over()
        reach("the driver has taken over")
        return taken

    def write(self, decision: Decision, driver: ProducerId) -> ProducerId:
        reach("all are committed" if decision.is_done else "nothing is decided yet")
        after = super().write(decision, driver)
        reach("it is done" if decision.is_done else "it is decided")
        return after


class CrashingSink(ExactlyOnceSink):
    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        super().__init__(options, cluster)
        self._transactions = CrashingTransactions(cluster)
        self._log = CrashingLog(cluster, self._transactions, self._sink_id)

    def write(self, attempt: Attempt, driver: ProducerId, last: Decision | None, batches: Iterator[Any]) -> Prepared:
        reach("a task begins")
        prepared = super().write(attempt, driver, last, _in_parts(batches))
        if prepared.transaction is not None:
            reach("a task is prepared")
        return prepared


def _in_parts(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        middle = (len(batch) + 1) // 2
        yield batch.slice(0, middle)
        # The sink has sent the part before it asks for the next one.
        if middle:
            reach("a task has written a part")
        yield batch.slice(middle)


class CrashingWriter(ExactlyOnceWriter):
    """Of a class of this module, so that whoever unpickles it loads what is patched below."""


if _MEETING_PLACE in os.environ:
    exactly_once.ExactlyOnceSink = CrashingSink  # type: ignore[misc]


class CrashingDataSource(PenstockDataSource):
    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return CrashingWriter(sink_options(dict(self.options), schema))
