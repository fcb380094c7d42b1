"""The sink as Spark calls it, at least once: a task that fails is run again, and its rows may then be there twice.

Within a task nothing is lost and nothing doubled: the producer is idempotent, and a task ends when all is stored.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.client.cluster import Cluster
from penstock.client.producing import Producer
from penstock.pipeline.spark.row_writing import RowWriter
from penstock.pipeline.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa


_PLANNING_WORKER = "pyspark.sql.worker.write_into_data_source"


def is_before_tasks() -> bool:
    """Whether Spark makes a stream's writer for the tasks of a micro-batch, and not to commit it."""
    return _PLANNING_WORKER in sys.modules


@dataclass
class Written(WriterCommitMessage):
    rows: int


def write_rows(options: SinkOptions, batches: "Iterator[pa.RecordBatch]") -> Written:
    with Cluster(options.client) as cluster:
        producer = Producer(cluster, options.produce)
        try:
            writer = RowWriter(options, cluster, producer)
            for batch in batches:
                writer.write(batch)
            writer.flush()
        finally:
            producer.close()
    return Written(writer.rows)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return write_rows(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return write_rows(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Everything is stored already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is stored stays: at least once."""
