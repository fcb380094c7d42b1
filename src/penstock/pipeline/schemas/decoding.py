"""A column of framed values as a column of their type: all rows of one schema at a time, bad ones apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.pipeline.schemas.framing import FRAME_BYTES, NO_ID, schema_ids
from penstock.pipeline.schemas.registry_client import AVRO, JSON, PROTOBUF, NotInRegistry, RegistryClient, Schema
from penstock.pipeline.schemas.values import Decoder, Encoder, Reader, SchemaUnusable


@dataclass(frozen=True)
class BadRow:
    row: int
    reason: str


def reader_of(schema: Schema, message_name: str = "") -> Reader:
    """Raises SchemaUnusable."""
    if schema.type == AVRO:
        from penstock.pipeline.schemas.avro import AvroReader

        return AvroReader(schema)
    if schema.type == PROTOBUF:
        from penstock.pipeline.schemas.protobuf import ProtobufReader

        return ProtobufReader(schema, message_name)
    if schema.type == JSON:
        from penstock.pipeline.schemas.json_schema import JsonReader

        return JsonReader(schema)
    raise SchemaUnusable(f"schema {schema.id} is of type {schema.type}: only AVRO, PROTOBUF and JSON are known here")


def encoder_of(schema: Schema) -> Encoder:
    """Raises SchemaUnusable."""
    if schema.type == AVRO:
        from penstock.pipeline.schemas.avro import AvroEncoder

        return AvroEncoder(schema)
    if schema.type == PROTOBUF:
        from penstock.pipeline.schemas.protobuf import ProtobufEncoder

        return ProtobufEncoder(schema)
    from penstock.pipeline.schemas.json_schema import JsonEncoder

    return JsonEncoder()


class ColumnDecoder:
    """Asks the registry for each writer's schema once."""

    def __init__(self, reader_schema: Schema, registry: RegistryClient, type_: pa.DataType, message_name: str) -> None:
        self._schema = reader_schema
        self._reader = reader_of(reader_schema, message_name)
        self._registry = registry
        self._type = type_
        self._decoders: dict[int, Decoder | str] = {}

    def decoded(self, values: pa.Array) -> tuple[pa.Array, list[BadRow]]:
        """Rows that cannot be read are null. Raises RegistryProblem where the registry does not answer."""
        ids = schema_ids(values)
        raw = values.to_pylist()
        rows: list[Any] = [None] * len(raw)
        bad: list[BadRow] = []
        for schema_id in np.unique(ids).tolist():
            chosen = np.flatnonzero(ids == schema_id).tolist()
            if schema_id == NO_ID:
                bad += [BadRow(row, "it has no schema id") for row in chosen if raw[row] is not None]
                continue
            decoder = self._decoder(schema_id)
            if isinstance(decoder, str):
                bad += [BadRow(row, decoder) for row in chosen]
                continue
            read = decoder.row
            for row in chosen:
                try:
                    rows[row] = read(raw[row][FRAME_BYTES:])
                except Exception as problem:
                    # Whatever a codec makes of bytes that are not its own.
                    bad.append(BadRow(row, f"it is not what schema {schema_id} says: {_words(problem)}"))
        return self._array(rows, bad), sorted(bad, key=lambda each: each.row)

    def _array(self, rows: list[Any], bad: list[BadRow]) -> pa.Array:
        try:
            return pa.array(rows, self._type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            for row, value in enumerate(rows):
                try:
                    pa.array([value], self._type)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
                    rows[row] = None
                    bad.append(BadRow(row, f"it does not fit the column: {_words(problem)}"))
            return pa.array(rows, self._type)

    def _decoder(self, schema_id: int) -> Decoder | str:
        """Or why there is none."""
        if schema_id not in self._decoders:
            self._decoders[schema_id] = self._made(schema_id)
        return self._decoders[schema_id]

    def _made(self, schema_id: int) -> Decoder | str:
        try:
            writer = self._schema if schema_id == self._schema.id else self._registry.by_id(schema_id)
            if writer.type != self._schema.type:
                return f"its schema {schema_id} is {writer.type}, and {self._schema.type} is read"
            return self._reader.decoder(writer)
        except (NotInRegistry, SchemaUnusable) as problem:
            return str(problem)


def _words(problem: Exception) -> str:
    return (str(problem) or type(problem).__name__)[:300]
