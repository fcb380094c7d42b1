"""What Spark finds under the name "penstock". Light to import: Spark loads it whenever it looks for data sources."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from penstock.pipeline.spark.options import SourceOptions


class PenstockDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def _source_options(self, is_streaming: bool) -> "SourceOptions":
        from penstock.pipeline.spark.options import source_options

        return source_options(dict(self.options), is_streaming=is_streaming)

    def schema(self) -> StructType:
        from penstock.pipeline.spark.options import boolean, typed_options
        from penstock.pipeline.spark.slice_reading import source_schema

        given = {name.lower(): value for name, value in self.options.items()}
        return source_schema(boolean(given, "includeHeaders", False), typed_options(given))

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.pipeline.spark.source import batch_reader

        return batch_reader(self._source_options(is_streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.pipeline.spark.source import StreamReader

        return StreamReader(self._source_options(is_streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.spark.offsets import BadOption
        from penstock.pipeline.spark.sink import BatchWriter
        from penstock.pipeline.spark.sink_options import sink_options

        if overwrite:
            raise BadOption('topics are only ever appended to: use mode("append")')
        options = sink_options(dict(self.options), schema)
        if options.sink_id is not None:
            raise BadOption("exactlyOnce is for streaming queries; a batch query writes at least once")
        if options.typed is not None:
            from penstock.pipeline.spark.typed_writing import with_value_schema

            options = with_value_schema(options, schema)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.pipeline.spark.sink import StreamWriter, is_before_tasks
        from penstock.pipeline.spark.sink_options import sink_options

        # Complete mode says overwrite; as with Kafka's sink, each result is appended whole.
        options = sink_options(dict(self.options), schema)
        # Spark makes a writer before each micro-batch's tasks, and another one to commit, which encodes nothing.
        if options.typed is not None and is_before_tasks():
            from penstock.pipeline.spark.typed_writing import with_value_schema

            options = with_value_schema(options, schema)
        if options.sink_id is not None:
            from penstock.pipeline.spark.exactly_once import ExactlyOnceWriter

            return ExactlyOnceWriter(options)
        return StreamWriter(options)
