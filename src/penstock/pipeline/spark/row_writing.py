"""What a writing task does: rows to partitions, partitions to batches, batches to brokers."""

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import ErrorCode
from penstock.client.cluster import Cluster, TopicPartition
from penstock.client.errors import ClientError, Refusal
from penstock.client.producing import Producer, Section
from penstock.client.record_encoding import (
    RecordEncoder,
    RowColumns,
    hash_partitions,
    kernel_for,
    nulls_of,
    row_columns,
)
from penstock.pipeline.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.pipeline.schemas.encoding import ColumnEncoder as _ColumnEncoder

    Ints = NDArray[np.int64]


class RowWriter:
    """Counts its rows as it goes; `flush` returns when all of them are stored."""

    def __init__(self, options: SinkOptions, cluster: Cluster, producer: Producer) -> None:
        self._options = options
        self._cluster = cluster
        self._producer = producer
        self._encoder = RecordEncoder(options.batch_bytes_max)
        self._value_encoder: _ColumnEncoder | None = None
        if options.value_schema is not None:
            from penstock.pipeline.schemas.encoding import ColumnEncoder

            self._value_encoder = ColumnEncoder(options.value_schema)
        self._partition_counts: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if not batch.num_rows:
            return
        self._encoder.kernel = kernel_for(self.rows)
        columns = {name: batch.column(name) for name in batch.schema.names}
        if self._value_encoder is not None:
            columns["value"] = self._value_encoder.encoded(columns["value"])
        rows = row_columns(columns["value"], columns.get("key"), columns.get("headers"))
        pending = {}
        for topic, chosen in self._by_topic(columns.get("topic"), batch.num_rows):
            partitions = self._partitions(topic, rows, columns.get("partition"), chosen)
            order = np.argsort(partitions, kind="stable")
            bounds = np.flatnonzero(np.diff(partitions[order])) + 1
            for group in np.split(order, bounds):
                partition = TopicPartition(topic, int(partitions[group[0]]))
                pending[partition] = self._encoder.sections(rows, chosen[group])
        # A request has one batch for each partition: as many requests as the longest of them needs.
        while pending:
            request = {}
            for partition, sections in list(pending.items()):
                section = next(sections, None)
                if section is None:
                    del pending[partition]
                else:
                    request[partition] = Section(*section)
            if request:
                self._producer.send(request)

    def flush(self) -> None:
        self._producer.flush()

    def _by_topic(self, column: pa.Array | None, rows: int) -> Iterable[tuple[str, "Ints"]]:
        if self._options.topic is not None:
            return [(self._options.topic, np.arange(rows))]
        assert column is not None
        if column.null_count:
            raise ClientError("a row has no topic: its column 'topic' is null, and the option 'topic' is not set")
        encoded = column.dictionary_encode()
        indices = np.frombuffer(encoded.indices.buffers()[1], np.int32)[: len(encoded)]
        return [(name, np.flatnonzero(indices == i)) for i, name in enumerate(encoded.dictionary.to_pylist())]

    def _partitions(self, topic: str, rows: RowColumns, column: pa.Array | None, chosen: "Ints") -> "Ints":
        """Of the chosen rows: what their column says, or their key's hash, or where keyless ones go at the moment."""
        count = self._partition_count(topic)
        partitions: Any = hash_partitions(rows.keys, count, self._encoder.kernel)[chosen]
        keyless = rows.keys.nulls[chosen]
        if keyless.any():
            partitions = np.where(keyless, self._next_sticky(topic, count), partitions)
        if column is not None:
            said = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column)][chosen]
            is_said = ~nulls_of(column)[chosen]
            wrong = is_said & ((said < 0) | (said >= count))
            if wrong.any():
                raise ClientError(
                    f"a row is for partition {said[wrong.argmax()]} of {topic}, which has {count} of them"
                )
            partitions = np.where(is_said, said, partitions)
        result: Ints = partitions
        return result

    def _next_sticky(self, topic: str, count: int) -> int:
        # Keyless rows of one Arrow batch stay together, as Java's do until a batch is full; then comes the next one.
        before = self._sticky.get(topic, random.randrange(count))
        self._sticky[topic] = (before + 1) % count
        return self._sticky[topic]

    def _partition_count(self, topic: str) -> int:
        """Brokers that create topics by themselves do so when they are asked."""

        def attempt() -> int:
            found = self._cluster.refresh([topic], creates=True).get(topic)
            if found is None or not found.leaders:
                raise Refusal(ErrorCode.unknown_topic_or_partition, f"topic '{topic}'", "it does not exist")
            return len(found.leaders)

        if topic not in self._partition_counts:
            self._partition_counts[topic] = self._cluster.patiently(attempt, f"finding topic '{topic}'")
        return self._partition_counts[topic]
