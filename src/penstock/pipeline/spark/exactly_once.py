"""The sink, exactly once: each micro-batch is atomic, whoever dies when.

- Before the tasks of a micro-batch, on the driver: `prepare` takes the sink over, finishes what an earlier driver has
  decided and not finished, and aborts what was left open.
- Tasks write into a two-phase transaction of their own and leave it prepared. Its id has the attempt in it, so that no
  attempt ends another's. Of a micro-batch that is committed already, they write nothing.
- `commit` writes the decision, then commits the transactions. `abort` looks whether there is a decision first.

Until the decision is durable nothing is committed; from then on everything will be. A task that slept through the next
two micro-batches might still abort a transaction that is decided: then the sink stops with an error, and does not go on
with rows missing.
"""

import contextlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.base.errors import ErrorCode
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, Refusal
from penstock.client.producing import Producer, ProducerId
from penstock.client.transactions import Transactions
from penstock.pipeline.spark.decisions import Decision, DecisionLog, TaskTransaction
from penstock.pipeline.spark.row_writing import RowWriter
from penstock.pipeline.spark.sink import is_before_tasks
from penstock.pipeline.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa


class CannotBeExactlyOnce(Exception):
    """Going on would lose or double rows; the message says why, and what to do."""


@dataclass(frozen=True)
class Attempt:
    """Which task this is, of which micro-batch."""

    query_id: str
    batch_id: int
    partition: int
    number: int


@dataclass
class Prepared(WriterCommitMessage):
    """What a task did."""

    query_id: str
    driver: ProducerId
    # None where there was nothing to write, or where the micro-batch is committed already.
    transaction: TaskTransaction | None
    is_skipped: bool
    rows: int


def transactional_id(sink_id: str, attempt: Attempt) -> str:
    # Two micro-batches in a row do not share ids, so that a task that wakes up late finds nobody to put out.
    return f"{sink_id}/{attempt.batch_id % 2}/{attempt.partition}/{attempt.number}"


def is_of_sink(sink_id: str, found: str) -> bool:
    return re.fullmatch(re.escape(sink_id) + r"/[01]/\d+/\d+", found) is not None


class ExactlyOnceSink:
    """The steps, apart from Spark."""

    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        assert options.sink_id is not None
        self._options = options
        self._cluster = cluster
        self._sink_id = options.sink_id
        self._transactions = Transactions(cluster)
        self._log = DecisionLog(cluster, self._transactions, self._sink_id)

    def prepare(self) -> tuple[ProducerId, Decision | None]:
        """(Who the driver is now, what was decided last.)"""
        self._log.make_topic()
        driver = self._log.take_over()
        last = self._log.last()
        if last is not None and not last.is_done:
            driver = self._finish(last, driver)
        self._sweep()
        return driver, last

    def write(
        self, attempt: Attempt, driver: ProducerId, last: Decision | None, batches: "Iterator[pa.RecordBatch]"
    ) -> Prepared:
        """What a task does."""
        if last is not None and last.query_id != attempt.query_id:
            raise CannotBeExactlyOnce(
                f"sinkId '{self._sink_id}' belongs to another query ({last.query_id}, with another checkpoint): its "
                "micro-batches are counted there. Take a sinkId of its own for each checkpoint."
            )
        if last is not None and attempt.batch_id <= last.batch_id:
            return Prepared(attempt.query_id, driver, None, True, 0)
        if not self._is_current(driver):
            raise CannotBeExactlyOnce(f"another driver writes to sink '{self._sink_id}' by now; this task is too late")
        id_ = transactional_id(self._sink_id, attempt)
        producer_id: ProducerId | None = None
        producer: Producer | None = None
        writer: RowWriter | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if writer is None:
                    producer_id = self._transactions.begin(id_, is_two_phase=True)
                    settings = self._options.produce
                    producer = Producer(self._cluster, settings, producer_id=producer_id, transactional_id=id_)
                    writer = RowWriter(self._options, self._cluster, producer)
                writer.write(batch)
            if writer is not None:
                writer.flush()
        except Exception:
            # Readers of committed data need not wait until the sweep finds it.
            if producer_id is not None:
                with contextlib.suppress(ClientError):
                    self._transactions.end(id_, producer_id, commits=False)
            raise
        finally:
            if producer is not None:
                producer.close()
        if writer is None or producer_id is None:
            return Prepared(attempt.query_id, driver, None, False, 0)
        return Prepared(attempt.query_id, driver, TaskTransaction(id_, producer_id), False, writer.rows)

    def _is_current(self, driver: ProducerId) -> bool:
        now = self._transactions.described(self._sink_id)
        return now is not None and now.producer == driver

    def commit(self, messages: Collection[Prepared], batch_id: int) -> None:
        transactions = tuple(each.transaction for each in messages if each.transaction is not None)
        if not transactions:
            return
        first = next(iter(messages))
        decision = Decision(first.query_id, batch_id, False, transactions)
        driver = self._log.write(decision, first.driver)
        self._finish(decision, driver)
        self._sweep()

    def abort(self, messages: Collection[Prepared], batch_id: int) -> None:
        """A commit that failed after its decision is finished; what is not decided is aborted. A driver that was put
        out touches nothing: what is open belongs to the one after it. So does one without messages, which cannot know:
        then the next one to begin sweeps."""
        drivers = {each.driver for each in messages}
        last = self._log.last()
        is_decided = last is not None and not last.is_done and last.batch_id == batch_id
        if is_decided and last is not None:
            self._finish(last, self._log.take_over())
            self._sweep()
        elif any(self._is_current(driver) for driver in drivers):
            self._sweep()

    def _finish(self, decision: Decision, driver: ProducerId) -> ProducerId:
        for id_, producer in decision.transactions:
            try:
                self._transactions.end(id_, producer, commits=True)
            except Refusal as error:
                if error.code in (
                    ErrorCode.producer_fenced,
                    ErrorCode.invalid_producer_epoch,
                    ErrorCode.invalid_txn_state,
                ):
                    raise CannotBeExactlyOnce(
                        f"transaction {id_} of micro-batch {decision.batch_id} was to be committed, but somebody else "
                        f"ended it ({error}). Rows of that micro-batch may be missing in the output: see which, then "
                        "go on with a new sinkId."
                    ) from error
                raise
        return self._log.write(decision._replace(is_done=True), driver)

    def _sweep(self) -> None:
        """Aborts what attempts that failed have left open: readers of committed data wait for it."""
        for id_ in self._transactions.ongoing():
            if is_of_sink(self._sink_id, id_):
                self._transactions.begin(id_, is_two_phase=True)


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._driver: ProducerId | None = None
        self._last: Decision | None = None
        # Spark makes a writer before each micro-batch's tasks, and another one to commit: only the first takes over.
        if is_before_tasks():
            with Cluster(options.client) as cluster:
                self._driver, self._last = ExactlyOnceSink(options, cluster).prepare()

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Prepared:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        assert self._driver is not None
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if query_id is None or batch_id is None:
            raise ClientError("exactlyOnce is for streaming queries: this one has no micro-batches")
        attempt = Attempt(query_id, int(batch_id), context.partitionId(), context.attemptNumber())
        with Cluster(self._options.client) as cluster:
            return ExactlyOnceSink(self._options, cluster).write(attempt, self._driver, self._last, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with Cluster(self._options.client) as cluster:
            ExactlyOnceSink(self._options, cluster).commit(_prepared(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with Cluster(self._options.client) as cluster:
            ExactlyOnceSink(self._options, cluster).abort(_prepared(messages), batchId)


def _prepared(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    return [each for each in messages if isinstance(each, Prepared)]
