"""The source with typed values: whose schema the rows have, and what becomes of records that cannot be read.

Which schema it is stands in the column's metadata from planning on, so that one that is registered while the query runs
changes nothing before its next start.
"""

import logging
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from penstock.client.cluster import Cluster, TopicPartition
from penstock.client.errors import ClientError
from penstock.client.producing import Producer, ProduceSettings
from penstock.pipeline.schemas.decoding import BadRow, ColumnDecoder, reader_of
from penstock.pipeline.schemas.registry_client import RegistryClient, RegistryProblem, Schema
from penstock.pipeline.schemas.values import SchemaUnusable
from penstock.pipeline.spark.offsets import BadOption
from penstock.pipeline.spark.row_writing import RowWriter
from penstock.pipeline.spark.sink_options import SinkOptions
from penstock.pipeline.spark.typed_options import DEAD_LETTER, FAIL, TypedSourceOptions

log = logging.getLogger("penstock.spark")

_METADATA = "penstock.schemaId"
# Kafka Connect's names, which tools for dead letters know.
_CONTEXT = "__connect.errors."


class UndecodableRecord(ClientError):
    """A record that the registry's schema does not fit, in a query that wants to know."""


@dataclass(frozen=True)
class TypedValue:
    """Goes to the tasks."""

    options: TypedSourceOptions
    schema: Schema


def value_field(options: TypedSourceOptions) -> StructField:
    """Of the schema as it is now. Raises BadOption."""
    schema = _found(options, None)
    return StructField("value", _spark_type(schema, options), metadata={_METADATA: schema.id})


def typed_value(options: TypedSourceOptions, field: StructField) -> TypedValue:
    """For a column as it was planned, or as `.schema(...)` wants it. Raises BadOption."""
    schema = _found(options, field.metadata.get(_METADATA))
    whole = _spark_type(schema, options)
    if not _is_part_of(field.dataType, whole):
        raise BadOption(
            f"column value is {whole.simpleString()} by subject '{options.subject}', which "
            f"{field.dataType.simpleString()} is not a part of: leave out fields if you like, but keep their types"
        )
    return TypedValue(options, schema)


def _found(options: TypedSourceOptions, schema_id: int | None) -> Schema:
    client = RegistryClient(options.registry)
    try:
        return client.latest(options.subject, options.version) if schema_id is None else client.by_id(schema_id)
    except RegistryProblem as problem:
        raise BadOption(f"the schema of subject '{options.subject}': {problem}") from problem


def _spark_type(schema: Schema, options: TypedSourceOptions) -> DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(reader_of(schema, options.record_name).type)
    except SchemaUnusable as problem:
        raise BadOption(f"the schema of subject '{options.subject}': {problem}") from problem


def _is_part_of(part: DataType, whole: DataType) -> bool:
    if isinstance(part, StructType) and isinstance(whole, StructType):
        known = {field.name: field.dataType for field in whole.fields}
        return all(each.name in known and _is_part_of(each.dataType, known[each.name]) for each in part.fields)
    return part.simpleString() == whole.simpleString()


class TypedColumns:
    """Of one task: raw batches in, batches with a typed value out."""

    def __init__(self, typed: TypedValue, cluster: Cluster, partition: TopicPartition, wanted: pa.Schema) -> None:
        self._options = typed.options
        self._cluster = cluster
        self._partition = partition
        self._wanted = wanted
        registry = RegistryClient(typed.options.registry)
        type_ = wanted.field("value").type
        self._decoder = ColumnDecoder(typed.schema, registry, type_, typed.options.record_name)
        self.raw_schema = _raw_schema(wanted, typed.options.on_decode_error == DEAD_LETTER)

    def batch(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Raises UndecodableRecord."""
        values, bad = self._decoder.decoded(raw.column("value"))
        if bad and self._options.on_decode_error == FAIL:
            raise UndecodableRecord(
                f"offset {raw.column('offset')[bad[0].row].as_py()} of {self._partition} cannot be read: "
                f"{bad[0].reason}. Set onDecodeError to null or dead-letter to go on without such records."
            )
        arrays = [values if field.name == "value" else raw.column(field.name) for field in self._wanted]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._wanted)
        if bad and self._options.on_decode_error == DEAD_LETTER:
            self._store(raw, bad)
            rejected = {each.row for each in bad}
            batch = batch.take(pa.array([row for row in range(len(raw)) if row not in rejected], pa.int64()))
        return batch

    def _store(self, raw: pa.RecordBatch, bad: list[BadRow]) -> None:
        """Before the rows without them go on. A task that is run again stores them again."""
        chosen = raw.take(pa.array([each.row for each in bad], pa.int64()))
        topic = self._options.dead_letter_topic
        log.warning("%d records of %s cannot be read and go to %s", len(bad), self._partition, topic)
        headers = [
            (each or []) + self._context(offset, row.reason)
            for each, offset, row in zip(
                chosen.column("headers").to_pylist(), chosen.column("offset").to_pylist(), bad, strict=True
            )
        ]
        letters = pa.RecordBatch.from_arrays(
            [chosen.column("key"), chosen.column("value"), pa.array(headers, chosen.column("headers").type)],
            names=["key", "value", "headers"],
        )
        producer = Producer(self._cluster, ProduceSettings())
        try:
            writer = RowWriter(SinkOptions(self._cluster.config, ProduceSettings(), topic), self._cluster, producer)
            writer.write(letters)
            writer.flush()
        finally:
            producer.close()

    def _context(self, offset: int, reason: str) -> list[dict[str, Any]]:
        told = {
            "topic": self._partition.topic,
            "partition": str(self._partition.partition),
            "offset": str(offset),
            "stage": "VALUE_CONVERTER",
            "exception.message": reason,
        }
        return [{"key": _CONTEXT + name, "value": text.encode()} for name, text in told.items()]


def _raw_schema(wanted: pa.Schema, has_dead_letters: bool) -> pa.Schema:
    from penstock.client.arrow_columns import TYPES

    fields = [pa.field("value", pa.binary()) if field.name == "value" else field for field in wanted]
    needed = ("offset", "key", "headers") if has_dead_letters else ("offset",)
    missing = [pa.field(name, TYPES[name]) for name in needed if name not in wanted.names]
    return pa.schema([*fields, *missing])
