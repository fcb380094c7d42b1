"""A column of framed values as a column of their type: all rows of one schema at a time, bad ones apart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.client.record_encoding import byte_column
from penstock.pipeline.schemas.column_reading import is_numba_worth
from penstock.pipeline.schemas.framing import FRAME_BYTES, NO_ID, schema_ids
from penstock.pipeline.schemas.registry_client import AVRO, JSON, PROTOBUF, NotInRegistry, RegistryClient, Schema
from penstock.pipeline.schemas.values import NULL_START, Decoder, Encoder, Reader, SchemaUnusable

if TYPE_CHECKING:
    from penstock.pipeline.schemas.values import ColumnReader


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


@dataclass(frozen=True)
class _Known:
    """A writer's schema."""

    decoder: Decoder
    columns: "ColumnReader | None"


class ColumnDecoder:
    """Asks the registry for each writer's schema once. Columns are read at once where schema and rows allow it, and row
    by row where not, with the same result."""

    def __init__(
        self,
        reader_schema: Schema,
        registry: RegistryClient,
        type_: pa.DataType,
        message_name: str,
        is_numba_worth: Callable[[int], bool] = is_numba_worth,
    ) -> None:
        self._schema = reader_schema
        self._reader = reader_of(reader_schema, message_name)
        self._registry = registry
        self._type = type_
        self._is_numba_worth = is_numba_worth
        self._known: dict[int, _Known | str] = {}

    def decoded(self, values: pa.Array) -> tuple[pa.Array, list[BadRow]]:
        """Rows that cannot be read are null. Raises RegistryProblem where the registry does not answer."""
        column = byte_column(values)
        ids = schema_ids(values)
        is_at_once = self._is_numba_worth(len(values))
        pieces = _Pieces(self._type, len(values))
        bad = [BadRow(row, "it has no schema id") for row in np.flatnonzero((ids == NO_ID) & ~column.nulls).tolist()]
        found = np.unique(ids[ids != NO_ID]).tolist()
        for schema_id in found:
            is_chosen = ids == schema_id
            known = self._writer(schema_id)
            if isinstance(known, str):
                bad += [BadRow(row, known) for row in np.flatnonzero(is_chosen).tolist()]
                continue
            if known.columns is not None and is_at_once:
                # Where it is the only schema, the column needs no putting together: rows without one are null in it.
                rows = np.arange(len(ids)) if len(found) == 1 else np.flatnonzero(is_chosen)
                starts = np.where(is_chosen, column.offsets[:-1] + FRAME_BYTES, NULL_START)[rows]
                array, is_left = known.columns(column.data, starts, column.offsets[1:][rows])
                pieces.add(array, rows)
                is_chosen = np.zeros(len(ids), np.bool_)
                is_chosen[rows[is_left]] = True
            self._read_rows(values, np.flatnonzero(is_chosen), schema_id, known.decoder, pieces, bad)
        return pieces.column(bad), sorted(bad, key=lambda each: each.row)

    def _read_rows(
        self, values: pa.Array, rows: Any, schema_id: int, decoder: Decoder, pieces: "_Pieces", bad: list[BadRow]
    ) -> None:
        read = decoder.row
        raw = values.take(pa.array(rows, pa.int64())).to_pylist()
        for row, data in zip(rows.tolist(), raw, strict=True):
            try:
                pieces.rows[row] = read(data[FRAME_BYTES:])
            except Exception as problem:
                # Whatever a codec makes of bytes that are not its own.
                bad.append(BadRow(row, f"it is not what schema {schema_id} says: {_words(problem)}"))

    def _writer(self, schema_id: int) -> _Known | str:
        """Or why it cannot be read."""
        if schema_id not in self._known:
            self._known[schema_id] = self._made(schema_id)
        return self._known[schema_id]

    def _made(self, schema_id: int) -> _Known | str:
        try:
            writer = self._schema if schema_id == self._schema.id else self._registry.by_id(schema_id)
            if writer.type != self._schema.type:
                return f"its schema {schema_id} is {writer.type}, and {self._schema.type} is read"
            decoder = self._reader.decoder(writer)
            return _Known(decoder, decoder.columns(self._type))
        except (NotInRegistry, SchemaUnusable) as problem:
            return str(problem)


class _Pieces:
    """What was read of a column: arrays of some rows, and single rows, which go before what arrays have in their place.
    Rows that are nowhere are null."""

    def __init__(self, type_: pa.DataType, count: int) -> None:
        self._type = type_
        self._arrays: list[pa.Array] = []
        self._places = np.full(count, -1, np.int64)
        self.rows: dict[int, Any] = {}

    def add(self, array: pa.Array, rows: Any) -> None:
        self._places[rows] = sum(map(len, self._arrays)) + np.arange(len(rows))
        self._arrays.append(array)

    def column(self, bad: list[BadRow]) -> pa.Array:
        """Rows that Arrow does not take are bad too."""
        if not self._arrays:
            return self._of_rows(list(range(len(self._places))), bad)
        if self.rows:
            numbers = sorted(self.rows)
            self.add(self._of_rows(numbers, bad), numbers)
        whole = pa.concat_arrays(self._arrays) if len(self._arrays) > 1 else self._arrays[0]
        if np.array_equal(self._places, np.arange(len(whole))):
            return whole
        return whole.take(pa.array(self._places, mask=self._places < 0))

    def _of_rows(self, numbers: list[int], bad: list[BadRow]) -> pa.Array:
        values = [self.rows.get(number) for number in numbers]
        try:
            return pa.array(values, self._type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            for place, value in enumerate(values):
                try:
                    pa.array([value], self._type)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
                    values[place] = None
                    bad.append(BadRow(numbers[place], f"it does not fit the column: {_words(problem)}"))
            return pa.array(values, self._type)


def _words(problem: Exception) -> str:
    return (str(problem) or type(problem).__name__)[:300]
