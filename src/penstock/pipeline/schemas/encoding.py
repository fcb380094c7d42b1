"""A column of any type as a column of framed values."""

import pyarrow as pa

from penstock.pipeline.schemas.decoding import encoder_of
from penstock.pipeline.schemas.framing import framed
from penstock.pipeline.schemas.registry_client import Schema


class ColumnEncoder:
    def __init__(self, schema: Schema) -> None:
        self._schema_id = schema.id
        self._encoder = encoder_of(schema)

    def encoded(self, column: pa.Array) -> pa.Array:
        """A null stays one. Raises SchemaUnusable for a row that does not fit."""
        return framed(self._encoder.encoded(column.to_pylist(maps_as_pydicts="strict")), self._schema_id)
