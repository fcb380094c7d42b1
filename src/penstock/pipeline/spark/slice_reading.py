"""What a task does: one slice of a partition, as Arrow batches of the wanted columns."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.client.cluster import EARLIEST, LATEST, Cluster
from penstock.client.errors import OffsetOutOfRange
from penstock.client.reading import read_slice
from penstock.pipeline.spark.offsets import BadOption
from penstock.pipeline.spark.options import SourceOptions
from penstock.pipeline.spark.places import HOW_TO_GO_ON, DataLoss
from penstock.pipeline.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from penstock.pipeline.spark.typed_options import TypedSourceOptions
    from penstock.pipeline.spark.typed_reading import TypedValue

log = logging.getLogger("penstock.spark")

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}


@dataclass
class Slice(InputPartition):
    range: OffsetRange


def source_schema(includes_headers: bool, typed: "TypedSourceOptions | None") -> StructType:
    """Raises BadOption where the registry has no schema for the values."""
    names = [name for name in _TYPES if includes_headers or name != "headers"]
    fields = {name: StructField(name, _TYPES[name]) for name in names}
    if typed is not None:
        from penstock.pipeline.spark.typed_reading import value_field

        fields["value"] = value_field(typed)
    return StructType(list(fields.values()))


def check_schema(options: SourceOptions, schema: StructType) -> "TypedValue | None":
    """`.schema(...)` chooses columns; it cannot change what they are. Gives what tasks need to know where values are
    decoded. Raises BadOption."""
    typed = None
    for field in schema.fields:
        if field.name == "value" and options.typed is not None:
            from penstock.pipeline.spark.typed_reading import typed_value

            typed = typed_value(options.typed, field)
            continue
        wanted = _TYPES.get(field.name)
        if wanted is None:
            raise BadOption(f"the source has no column '{field.name}'; it has {', '.join(_TYPES)}")
        if field.dataType.simpleString() != wanted.simpleString():
            raise BadOption(
                f"column {field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}: "
                "cast or decode it after reading"
            )
    return typed


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark compares it with its own, down to the names inside of lists."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def read_range(
    options: SourceOptions, whole: OffsetRange, schema: StructType, typed: "TypedValue | None" = None
) -> Iterator[Any]:
    """Raises DataLoss when records of the range are gone and the job wants to know; skips them otherwise."""
    partition, start, end = whole
    columns = arrow_schema(schema)
    with Cluster(options.client) as cluster:
        convert: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
        if typed is not None:
            from penstock.pipeline.spark.typed_reading import TypedColumns

            typed_columns = TypedColumns(typed, cluster, partition, columns)
            columns, convert = typed_columns.raw_schema, typed_columns.batch
        while start < end:
            try:
                batches = read_slice(cluster, partition, start, end, columns, options.fetch)
                yield from batches if convert is None else map(convert, batches)
                return
            except OffsetOutOfRange as error:
                if options.fails_on_data_loss:
                    raise DataLoss(f"{error}. {HOW_TO_GO_ON}") from error
                first = cluster.list_offsets({partition: EARLIEST})[partition]
                last = cluster.list_offsets({partition: LATEST})[partition]
                # Nothing before `first` is left; what is behind `last` belongs to a log that is no more.
                start = first if error.offset < first else end if error.offset > last else error.offset
                log.warning("%s; reading goes on at offset %d", error, start)
