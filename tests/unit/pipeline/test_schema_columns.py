"""Values of the registry's formats as Arrow columns: types, rows, resolution, and what is bad in a column of many."""

import io
import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.http.registry.formats import protobuf as registry_protobuf
from penstock.pipeline.schemas.avro import AvroEncoder, AvroReader
from penstock.pipeline.schemas.decoding import ColumnDecoder, encoder_of, reader_of
from penstock.pipeline.schemas.derived_avro import avro_schema
from penstock.pipeline.schemas.derived_json import json_schema
from penstock.pipeline.schemas.derived_protobuf import protobuf_schema
from penstock.pipeline.schemas.encoding import ColumnEncoder
from penstock.pipeline.schemas.framing import NO_ID, schema_ids
from penstock.pipeline.schemas.json_schema import JsonReader
from penstock.pipeline.schemas.protobuf import ProtobufReader, compiled, message_at
from penstock.pipeline.schemas.registry_client import AVRO, JSON, PROTOBUF, NotInRegistry, Reference, Schema
from penstock.pipeline.schemas.values import SchemaUnusable, Undecodable
from penstock.protocol.primitives import Malformed
from penstock.protocol.schema_framing import message_path

# In one process: what they compile takes longer than most of them.
pytestmark = pytest.mark.xdist_group("columns")


class Registry:
    """Answers from a list."""

    def __init__(self, *schemas: Schema) -> None:
        self.known = {each.id: each for each in schemas}

    def by_id(self, schema_id: int) -> Schema:
        if schema_id not in self.known:
            raise NotInRegistry(f"no schema {schema_id}")
        return self.known[schema_id]


def avro(id_: int, *fields: tuple[str, Any], **more: Any) -> Schema:
    listed = [{"name": name, "type": type_} for name, type_ in fields]
    tree = {"type": "record", "name": "Order", "fields": listed, **more}
    return Schema(id_, AVRO, json.dumps(tree), "", ())


def row_of(schema: Schema, value: Any) -> Any:
    """Encoded and decoded."""
    (data,) = AvroEncoder(schema).encoded([value])
    assert data is not None
    reader = AvroReader(schema)
    return pa.array([reader.decoder(schema).row(data)], reader.type)[0].as_py(maps_as_pydicts="strict")


def decoder(reader: Schema, *others: Schema) -> ColumnDecoder:
    registry: Any = Registry(reader, *others)
    return ColumnDecoder(reader, registry, reader_of(reader).type, "")


def test_ids_are_found_in_all_rows_at_once() -> None:
    values = [None, b"", b"\0\0\0\0", b"\0\0\0\0\x07", b"\x01\0\0\0\x07x", b"\0\xff\xff\xff\xffx", b"\0\0\0\x01\0abc"]
    expected = [NO_ID, NO_ID, NO_ID, 7, NO_ID, 2**32 - 1, 256]
    column = pa.array(values, pa.binary())
    assert schema_ids(column).tolist() == expected
    assert schema_ids(column.slice(3)).tolist() == expected[3:]
    assert schema_ids(column.slice(0, 0)).tolist() == []


def test_logical_types_are_those_of_sparks_avro() -> None:
    schema = avro(
        1,
        ("day", {"type": "int", "logicalType": "date"}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("clock", {"type": "int", "logicalType": "time-millis"}),
        ("uuid", {"type": "string", "logicalType": "uuid"}),
    )
    value = {
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 1, 2, 3, 4000, UTC),
        "local": datetime(2024, 2, 29, 1, 2, 3, 4),
        "price": Decimal("-1.25"),
        "clock": 5,
        "uuid": "no uuid at all",
    }
    assert row_of(schema, value) == value


@pytest.mark.parametrize(
    ("value", "member"),
    [
        ("text", "member0"),
        (7, "member1"),
        ({"x": 1}, "member2"),
        (date(2024, 1, 1), "member6"),
        (Decimal("1.5"), "member5"),
        (datetime(2024, 1, 1, tzinfo=UTC), "member4"),
        ([1.5], "member7"),
    ],
)
def test_a_union_of_several_types_sets_the_member_it_has(value: Any, member: str) -> None:
    schema = avro(
        1,
        (
            "u",
            [
                "null",
                "string",
                "long",
                {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]},
                {"type": "enum", "name": "E", "symbols": ["A"]},
                {"type": "long", "logicalType": "timestamp-micros"},
                {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
                {"type": "int", "logicalType": "date"},
                {"type": "array", "items": "double"},
            ],
        ),
    )
    found = row_of(schema, {"u": value})["u"]
    assert {name: each for name, each in found.items() if each is not None} == {member: value}
    assert row_of(schema, {"u": None}) == {"u": None}


def test_an_enum_in_a_union_is_not_taken_for_a_text() -> None:
    members = ["string", {"type": "enum", "name": "E", "symbols": ["A"]}]
    assert row_of(avro(1, ("u", members)), {"u": ("E", "A")}) == {"u": {"member0": None, "member1": "A"}}


def test_numbers_in_a_union_are_of_the_wider_type() -> None:
    assert AvroReader(avro(1, ("a", ["int", "long"]), ("b", ["float", "null", "double"]))).type == pa.struct(
        [("a", pa.int64()), ("b", pa.float64())]
    )


def test_a_named_type_is_known_wherever_it_is_used_again_and_must_not_contain_itself() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    schema = avro(1, ("a", inner), ("b", {"type": "map", "values": "Inner"}))
    value = {"a": {"x": 1}, "b": {"k": {"x": 2}}}
    assert row_of(schema, value) == value
    with pytest.raises(SchemaUnusable, match="contains itself"):
        AvroReader(avro(1, ("next", ["null", "Order"])))


def test_a_referenced_avro_schema_is_part_of_the_type() -> None:
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "zip", "type": "int"}]}
    text = json.dumps({"type": "record", "name": "O", "fields": [{"name": "to", "type": "shop.Address"}]})
    schema = Schema(1, AVRO, text, "", (Reference("shop.Address", json.dumps(address), ""),))
    assert row_of(schema, {"to": {"zip": 5}}) == {"to": {"zip": 5}}


def test_bad_rows_are_named_and_the_others_are_read() -> None:
    reader = avro(1, ("id", "long"), ("note", ["null", "string"]))
    older = avro(2, ("id", "int"), ("gone", "string"), ("note", ["null", "string"]))
    as_json = Schema(3, JSON, "{}", "", ())
    (new,) = AvroEncoder(reader).encoded([{"id": 2**40, "note": "x"}])
    (old,) = AvroEncoder(older).encoded([{"id": 7, "gone": "y", "note": None}])
    assert new is not None
    assert old is not None
    frames = [struct.pack(">bI", 0, id_) for id_ in (1, 2, 3, 4)]
    rows = [frames[0] + new, None, frames[1] + old, b"plain", frames[2] + b"{}", frames[3] + new, frames[0] + new[:2]]
    column, bad = decoder(reader, older, as_json).decoded(pa.array(rows, pa.binary()))
    assert column.to_pylist() == [{"id": 2**40, "note": "x"}, None, {"id": 7, "note": None}, None, None, None, None]
    assert [each.row for each in bad] == [3, 4, 5, 6]
    said = ("no schema id", "is JSON, and AVRO is read", "no schema 4", "not what schema 1 says")
    assert all(text in each.reason for text, each in zip(said, bad, strict=True))


def test_a_value_that_the_column_cannot_hold_is_bad_and_no_other() -> None:
    reader = avro(1, ("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}))
    raw = avro(2, ("price", "bytes"))
    made = [AvroEncoder(raw).encoded([{"price": each}])[0] or b"" for each in (b"\x01\x00", b"\x7f" * 12)]
    rows = [struct.pack(">bI", 0, 1) + each for each in made]
    column, bad = decoder(reader).decoded(pa.array(rows, pa.binary()))
    assert column.to_pylist() == [{"price": Decimal("2.56")}, None]
    assert [each.row for each in bad] == [1]


def proto(id_: int, text: str) -> Schema:
    """As the registry gives it."""
    parsed = registry_protobuf.parse(text, {}, (), is_new=True)
    return Schema(id_, PROTOBUF, text, parsed.formatted("serialized"), ())


ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, Line> by_name = 4;
  State state = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Duration took = 7;
  uint64 large = 8;
  oneof choice { int32 number = 9; string text = 10; }
  message Line { string item = 1; uint32 count = 2; }
  enum State { NEW = 0; PAID = 1; }
}
message Other { int64 id = 1; }
"""


def test_protobuf_messages_have_every_kind_of_field() -> None:
    schema = proto(1, ORDER)
    reader = ProtobufReader(schema)
    line = pa.struct([("item", pa.string()), ("count", pa.int64())])
    assert reader.type == pa.struct(
        [
            ("id", pa.int64()),
            ("note", pa.string()),
            ("lines", pa.list_(line)),
            ("by_name", pa.map_(pa.string(), line)),
            ("state", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("took", pa.duration("us")),
            ("large", pa.decimal128(20, 0)),
            ("number", pa.int32()),
            ("text", pa.string()),
        ]
    )
    row = {
        "id": 5,
        "lines": [{"item": "a", "count": 2**32 - 1}],
        "by_name": {"k": {"item": "b", "count": 0}},
        "state": 1,
        "at": datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
        "took": timedelta(microseconds=-1),
        "large": 2**64 - 1,
        "text": "t",
    }
    (data,) = encoder_of(schema).encoded([row])
    assert data is not None
    found = pa.array([reader.decoder(schema).row(data)], reader.type)[0].as_py(maps_as_pydicts="strict")
    assert found == {**row, "state": "PAID", "note": None, "number": None}


def test_protobuf_messages_are_told_apart_by_name() -> None:
    schema = proto(1, ORDER)
    decode = ProtobufReader(schema).decoder(schema).row
    with pytest.raises(Undecodable, match=r"shop\.Other, not shop\.Order"):
        decode(b"\x02\x02\x08\x05")
    other = ProtobufReader(schema, "shop.Other")
    assert other.decoder(schema).row(b"\x02\x02\x08\x05") == {"id": 5}
    with pytest.raises(Undecodable):
        decode(b"\x02\x14\x08\x05")


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.binary(max_size=5))
def test_message_indexes_are_read_as_confluent_writes_them(path: list[int], rest: bytes) -> None:
    written = io.BytesIO()
    ProtobufSerializer._encode_varints(written, path, zigzag=True)
    assert message_path(written.getvalue() + rest) == (tuple(path), len(written.getvalue()))


@settings(deadline=None)
@given(st.binary(max_size=12))
def test_message_indexes_of_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        path, position = message_path(data)
    except Malformed:
        return
    assert path
    assert position <= len(data)


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"type": "integer"}, pa.int64()),
        ({"type": ["null", "number"]}, pa.float64()),
        ({"type": ["integer", "string"]}, pa.string()),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, pa.bool_()),
        ({"enum": ["a", "b"]}, pa.string()),
        ({"type": "array", "items": {"type": "string"}}, pa.list_(pa.string())),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, pa.map_(pa.string(), pa.int64())),
        ({"type": "object"}, pa.string()),
        (True, pa.string()),
        ({"$ref": "#/definitions/x"}, pa.struct([("y", pa.int64())])),
    ],
)
def test_json_schemas_are_types(tree: Any, expected: pa.DataType) -> None:
    definitions = {"x": {"type": "object", "properties": {"y": {"type": "integer"}}}}
    text = json.dumps({"type": "object", "properties": {"p": tree}, "definitions": definitions})
    assert JsonReader(Schema(1, JSON, text, "", ())).type == pa.struct([("p", expected)])


def test_json_that_its_schema_does_not_describe_is_bad() -> None:
    tree = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "any": {}, "list": {"type": "array", "items": {}}},
    }
    reader = Schema(1, JSON, json.dumps(tree), "", ())
    texts = [
        b'{"id": 1, "any": {"a": [1, null]}, "list": [1, "x", null], "more": 5}',
        b'{"id": 1.5}',
        b'{"id": "1"}',
        b"{",
        b"[]",
    ]
    column, bad = decoder(reader).decoded(pa.array([b"\0\0\0\0\x01" + each for each in texts], pa.binary()))
    assert column[0].as_py() == {"id": 1, "any": '{"a": [1, null]}', "list": ["1", '"x"', None]}
    assert [each.row for each in bad] == [1, 2, 3, 4]


def test_a_json_schema_that_contains_itself_is_refused() -> None:
    text = json.dumps({"type": "object", "properties": {"next": {"$ref": "#"}}})
    with pytest.raises(SchemaUnusable, match="contains itself"):
        JsonReader(Schema(1, JSON, text, "", ()))


LEAVES = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    pa.binary(): st.binary(max_size=9),
    pa.timestamp("us", "UTC"): st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)),
}


@st.composite
def columns(draw: Any, leaves: Any) -> tuple[pa.DataType, list[Any]]:
    """A struct type with lists, maps and structs in it, and rows of it."""

    def made(depth: int) -> tuple[pa.DataType, Any]:
        kind = draw(st.sampled_from(["leaf", "leaf", "struct", "list", "map"])) if depth else "leaf"
        if kind == "struct":
            return of_struct(depth - 1)
        leaf = draw(st.sampled_from(sorted(leaves, key=str)))
        if kind == "list":
            return pa.list_(leaf), st.lists(leaves[leaf], max_size=3)
        if kind == "map":
            return pa.map_(pa.string(), leaf), st.dictionaries(leaves[pa.string()], leaves[leaf], max_size=3)
        return leaf, leaves[leaf]

    def of_struct(depth: int) -> tuple[pa.DataType, Any]:
        fields = {f"f{i}": made(depth) for i in range(draw(st.integers(1, 4)))}
        values = {name: st.none() | strategy for name, (_, strategy) in fields.items()}
        return pa.struct([pa.field(name, type_) for name, (type_, _) in fields.items()]), st.fixed_dictionaries(values)

    type_, strategy = of_struct(2)
    return type_, draw(st.lists(st.none() | strategy, max_size=4))


def round_trip(schema: Schema, type_: pa.DataType, rows: list[Any]) -> list[Any]:
    encoded = ColumnEncoder(schema).encoded(pa.array(rows, type_))
    column, bad = decoder(schema).decoded(encoded)
    assert bad == []
    assert column.type == reader_of(schema).type
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found


@settings(deadline=None)
@given(columns(LEAVES))
def test_any_rows_come_back_through_a_derived_avro_schema(made: tuple[pa.DataType, list[Any]]) -> None:
    type_, rows = made
    schema = Schema(9, AVRO, avro_schema(type_, "shop.Row"), "", ())
    fastavro.parse_schema(json.loads(schema.text))
    assert reader_of(schema).type == type_
    assert round_trip(schema, type_, rows) == rows


@settings(deadline=None)
@given(columns(LEAVES))
def test_any_rows_come_back_through_a_derived_protobuf_schema(made: tuple[pa.DataType, list[Any]]) -> None:
    """Lists and maps that are absent are empty there."""
    type_, rows = made
    schema = proto(9, protobuf_schema(type_, "shop.Row"))
    assert reader_of(schema).type == type_
    assert round_trip(schema, type_, rows) == [without_absent(row, type_) for row in rows]


def without_absent(value: Any, type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_) and value is not None:
        return {
            field.name: ([] if pa.types.is_list(field.type) else {} if pa.types.is_map(field.type) else None)
            if value[field.name] is None
            else without_absent(value[field.name], field.type)
            for field in type_
        }
    return value


@settings(deadline=None)
@given(columns({type_: LEAVES[type_] for type_ in (pa.bool_(), pa.int64(), pa.string())}))
def test_any_rows_come_back_through_a_derived_json_schema(made: tuple[pa.DataType, list[Any]]) -> None:
    type_, rows = made
    schema = Schema(9, JSON, json_schema(type_, "Row"), "", ())
    assert reader_of(schema).type == type_
    assert round_trip(schema, type_, rows) == rows


def test_protobuf_fields_keep_their_numbers_and_numbers_are_not_given_twice() -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    first = proto(1, protobuf_schema(pa.struct([("a", pa.int64()), ("b", pa.string()), ("s", inner)]), "Row"))
    turned = pa.struct([("y", pa.int64()), ("z", pa.int64())])
    second_type = pa.struct([("c", pa.bool_()), ("s", turned), ("a", pa.int64())])
    text = protobuf_schema(second_type, "Row", message_at(compiled(first), (0,)))
    second = message_at(compiled(proto(2, text)), (0,))
    assert {field.name: field.number for field in second.fields} == {"c": 4, "s": 3, "a": 1}
    assert {f.name: f.number for f in second.fields_by_name["s"].message_type.fields} == {"y": 2, "z": 3}
    assert "reserved 2;" in text


@pytest.mark.parametrize(
    ("type_", "derive"),
    [
        (pa.struct([("a-b", pa.int64())]), avro_schema),
        (pa.struct([("a", pa.duration("us"))]), avro_schema),
        (pa.struct([("a", pa.map_(pa.int64(), pa.int64()))]), avro_schema),
        (pa.struct([("a", pa.date32())]), protobuf_schema),
        (pa.struct([("a", pa.list_(pa.list_(pa.int64())))]), protobuf_schema),
        (pa.int64(), protobuf_schema),
        (pa.struct([("a", pa.duration("us"))]), json_schema),
    ],
)
def test_types_that_a_format_cannot_say_are_refused(type_: pa.DataType, derive: Any) -> None:
    with pytest.raises(SchemaUnusable):
        derive(type_, "Row")


def test_a_union_of_the_reader_takes_what_a_writer_without_one_wrote() -> None:
    """And the other way around."""
    inner = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
    plain, union = avro(1, ("u", inner)), avro(2, ("u", ["string", inner]))
    (data,) = AvroEncoder(plain).encoded([{"u": {"x": 1}}])
    assert data is not None
    assert AvroReader(union).decoder(plain).row(data) == {"u": {"member1": {"x": 1}}}
    (data,) = AvroEncoder(union).encoded([{"u": {"x": 2}}])
    assert data is not None
    assert AvroReader(plain).decoder(union).row(data) == {"u": {"x": 2}}
