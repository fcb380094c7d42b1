"""Columns of Protobuf messages that are read at once are those that rows make one by one, whatever the bytes are."""

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.http.registry.formats import protobuf as registry_protobuf
from penstock.pipeline.schemas.column_reading import read_column
from penstock.pipeline.schemas.column_slots import NotPlain
from penstock.pipeline.schemas.decoding import ColumnDecoder, reader_of
from penstock.pipeline.schemas.protobuf import _TYPES, compiled, message_at
from penstock.pipeline.schemas.protobuf_program import program
from penstock.pipeline.schemas.registry_client import PROTOBUF, Schema

# In one process: what they compile takes longer than most of them.
pytestmark = pytest.mark.xdist_group("columns")

ALL = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message First { int64 id = 1; message Inner { string s = 1; repeated sint32 n = 2; } }
message All {
  double d = 1; float f = 2; int64 i64 = 3; sint64 s64 = 4; sfixed64 sf64 = 5; uint64 u64 = 6; fixed64 f64 = 7;
  int32 i32 = 8; sint32 s32 = 9; sfixed32 sf32 = 10; uint32 u32 = 11; fixed32 f32 = 12; bool b = 13; string s = 14;
  bytes raw = 15; State state = 16;
  optional int32 maybe = 17; optional string maybe_s = 18; optional State maybe_state = 19;
  repeated int32 numbers = 20; repeated string words = 21; repeated double doubles = 22 [packed = false];
  repeated State states = 23; repeated bool flags = 24; repeated uint64 larges = 25;
  google.protobuf.Timestamp at = 26; google.protobuf.Duration took = 27; repeated google.protobuf.Timestamp times = 28;
  Line line = 29; repeated Line lines = 30;
  oneof choice { int32 one = 31; string two = 32; Line three = 33; }
  message Line { string item = 1; uint32 count = 2; repeated Part parts = 3; optional bool is_gift = 4; }
  message Part { int64 n = 1; repeated fixed32 sizes = 2; google.protobuf.Duration took = 3; }
  enum State { option allow_alias = true; NEW = 0; PAID = 1; BOUGHT = 1; SENT = 5; }
}
"""


def proto(id_: int, text: str) -> Schema:
    """As the registry gives it."""
    return Schema(id_, PROTOBUF, text, registry_protobuf.parse(text, {}, (), is_new=True).formatted("serialized"), ())


SCHEMA = proto(1, ALL)
MESSAGE = message_at(compiled(SCHEMA), (1,))
CLASS = message_factory.GetMessageClass(MESSAGE)
PREFIX = b"\x02\x02"
TYPE = reader_of(SCHEMA, "shop.All").type
NUMBERS = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "uint": st.integers(0, 2**32 - 1),
    "ulong": st.integers(0, 2**64 - 1),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    "state": st.sampled_from([0, 1, 5, 7, -1]),
}
TIMES = st.fixed_dictionaries({}, optional={"seconds": NUMBERS["long"] | NUMBERS["int"], "nanos": NUMBERS["int"]})
PARTS = st.fixed_dictionaries(
    {}, optional={"n": NUMBERS["long"], "sizes": st.lists(NUMBERS["uint"], max_size=3), "took": TIMES}
)
LINES = st.fixed_dictionaries(
    {},
    optional={
        "item": NUMBERS["text"],
        "count": NUMBERS["uint"],
        "parts": st.lists(PARTS, max_size=3),
        "is_gift": st.booleans(),
    },
)
FIELDS: dict[str, Any] = {
    "d": st.floats(),
    "f": st.floats(width=32),
    **dict.fromkeys(("i64", "s64", "sf64"), NUMBERS["long"]),
    **dict.fromkeys(("u64", "f64"), NUMBERS["ulong"]),
    **dict.fromkeys(("i32", "s32", "sf32", "maybe", "one"), NUMBERS["int"]),
    **dict.fromkeys(("u32", "f32"), NUMBERS["uint"]),
    **dict.fromkeys(("s", "maybe_s", "two"), NUMBERS["text"]),
    **dict.fromkeys(("state", "maybe_state"), NUMBERS["state"]),
    **dict.fromkeys(("line", "three"), LINES),
    **dict.fromkeys(("at", "took"), TIMES),
    "b": st.booleans(),
    "raw": st.binary(max_size=9),
    "numbers": st.lists(NUMBERS["int"], max_size=4),
    "words": st.lists(NUMBERS["text"], max_size=4),
    "doubles": st.lists(st.floats(), max_size=4),
    "states": st.lists(NUMBERS["state"], max_size=4),
    "flags": st.lists(st.booleans(), max_size=4),
    "larges": st.lists(NUMBERS["ulong"], max_size=4),
    "times": st.lists(TIMES, max_size=3),
    "lines": st.lists(LINES, max_size=3),
}
MESSAGES = st.fixed_dictionaries({}, optional=FIELDS).map(lambda fields: bytes(CLASS(**fields).SerializeToString()))


def framed(rows: list[bytes | None], prefix: bytes = PREFIX) -> pa.Array:
    frame = struct.pack(">bI", 0, 1) + prefix
    return pa.array([None if row is None else frame + row for row in rows], pa.binary())


def assert_same_both_ways(
    column: pa.Array, schema: Schema = SCHEMA, name: str = "shop.All", type_: pa.DataType = TYPE
) -> Any:
    registry: Any = None
    found, bad = ColumnDecoder(schema, registry, type_, name, lambda rows: True).decoded(column)
    expected, bad_expected = ColumnDecoder(schema, registry, type_, name, lambda rows: False).decoded(column)
    found.validate(full=True)
    assert found.type == expected.type
    # Their texts: NaN is not itself, and 0.0 is -0.0. Times as numbers: not all of them are dates.
    assert texts(found) == texts(expected)
    assert bad == bad_expected
    return found, bad


def texts(array: pa.Array) -> list[str]:
    return [str(each) for each in plain(array).to_pylist()]


def plain(array: pa.Array) -> pa.Array:
    """With numbers for times."""
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
        return array.cast(pa.int64())
    if pa.types.is_struct(array.type):
        children = [plain(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, names=[each.name for each in array.type], mask=array.is_null())
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, plain(array.values), mask=array.is_null())
    return array


def left_to_rows(rows: list[bytes], prefix: bytes = PREFIX, type_: pa.DataType = TYPE) -> list[int]:
    """Indexes of those that the kernel does not read."""
    made = program(MESSAGE, compiled(SCHEMA), type_, _TYPES)
    whole = [prefix + row for row in rows]
    ends = np.cumsum([len(row) for row in whole], dtype=np.int64)
    starts = ends - np.array([len(row) for row in whole], np.int64)
    data: Any = np.frombuffer(b"".join(whole), np.uint8)
    column, is_left = read_column(made, data, starts, ends)
    column.validate(full=True)
    return np.flatnonzero(is_left).tolist()


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=5), st.booleans())
def test_messages_are_read_at_once_as_rows_read_them(rows: list[bytes], is_sliced: bool) -> None:
    column = framed([b"", *rows, None])
    assert_same_both_ways(column.slice(1) if is_sliced else column)


def test_every_kind_of_field_is_read_at_once() -> None:
    part = {"n": -5, "sizes": [1, 2**32 - 1], "took": {"seconds": -1, "nanos": -1}}
    line = {"item": "ß", "count": 2**32 - 1, "parts": [part, {}, part], "is_gift": False}
    row = CLASS(
        d=-0.5, f=1.5, i64=-1, s64=-(2**63), sf64=-2, u64=2**64 - 1, f64=2**63, i32=-1, s32=-(2**31), sf32=-3, u32=7,
        f32=2**32 - 1, b=True, s="x", raw=b"\xff", state=5, maybe=0, maybe_s="", maybe_state=1, numbers=[1, -1],
        words=["", "水"], doubles=[1.0], states=[0, 1, 5], flags=[True, False], larges=[2**64 - 1],
        at={"seconds": 1, "nanos": 1999}, took={}, times=[{"seconds": -62135596800}], line=line, lines=[line, {}],
        three=line,
    ).SerializeToString()  # fmt: skip
    assert left_to_rows([row, b"", row]) == []
    column, bad = assert_same_both_ways(framed([row, b"", None, row]))
    assert bad == []
    assert column[1].as_py()["state"] == "NEW"
    assert column[1].as_py()["words"] == []
    assert column[1].as_py()["maybe"] is None
    assert column[0].as_py()["three"]["parts"][0]["sizes"] == [1, 2**32 - 1]


@settings(deadline=None)
@given(st.lists(st.tuples(MESSAGES, MESSAGES), min_size=1, max_size=3), st.data())
def test_merged_cut_and_damaged_messages_are_what_the_parser_says(
    pairs: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    rows: list[bytes | None] = []
    for one, other in pairs:
        raw = bytearray(one + other)
        for _ in range(data.draw(st.integers(0, 3))):
            if raw:
                raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        rows += [one + other, bytes(raw), bytes(raw[: data.draw(st.integers(0, len(raw)))]), one]
    assert_same_both_ways(framed(rows))


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=20), max_size=20), st.sampled_from([PREFIX, b"", b"\0", b"\x02\x00", b"\x04\x00\x00"])
)
def test_any_bytes_are_what_the_parser_says(rows: list[bytes], prefix: bytes) -> None:
    assert_same_both_ways(framed([*rows], prefix))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from([0, 1, 2, 5]), st.binary(min_size=8, max_size=8)), max_size=6
    )
)
def test_fields_of_any_wire_type_are_what_the_parser_says(fields: list[tuple[int, int, bytes]]) -> None:
    row = b""
    for number, wire_type, raw in fields:
        tag = number << 3 | wire_type
        row += bytes([tag]) if tag < 0x80 else bytes([tag & 0x7F | 0x80, tag >> 7])
        if wire_type == 0:
            row += bytes(each | 0x80 for each in raw[:2]) + bytes([raw[2] & 0x7F])
        else:
            row += b"\x03" + raw[:3] if wire_type == 2 else raw[: 8 if wire_type == 1 else 4]
    assert_same_both_ways(framed([row, row + row]))


@settings(deadline=None)
@given(MESSAGES, st.lists(st.sampled_from(list(TYPE)), min_size=1, unique_by=lambda each: each.name))
def test_fields_that_are_not_wanted_are_passed_over(row: bytes, chosen: list[Any]) -> None:
    assert_same_both_ways(framed([row, None, row + row, row[:-1]]), type_=pa.struct(chosen))


def test_messages_inside_of_others_are_found_by_their_path() -> None:
    inner = message_factory.GetMessageClass(message_at(compiled(SCHEMA), (0, 0)))(s="x", n=[1, -1]).SerializeToString()
    type_ = reader_of(SCHEMA, "shop.First.Inner").type
    column = pa.concat_arrays([framed([inner, b""], b"\x04\0\0"), framed([inner], b"\0"), framed([inner], PREFIX)])
    found, bad = assert_same_both_ways(column, name="shop.First.Inner", type_=type_)
    assert found.to_pylist() == [{"s": "x", "n": [1, -1]}, {"s": "", "n": []}, None, None]
    assert [each.row for each in bad] == [2, 3]


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; message M { map<string, int32> m = 1; int32 i = 2; }',
        'syntax = "proto2"; message M { required int32 i = 1; }',
        'syntax = "proto3"; message M { int32 i = 5000; }',
        'syntax = "proto3"; message M { E e = 1; enum E { A = 0; B = -1; } }',
    ],
)
def test_what_is_not_plain_has_no_program_and_is_read_all_the_same(text: str) -> None:
    schema = proto(1, text)
    type_ = reader_of(schema).type
    with pytest.raises(NotPlain):
        program(message_at(compiled(schema), (0,)), compiled(schema), type_, _TYPES)
    assert_same_both_ways(framed([b"\x08\x01", b"", b"\x08", b"\x10\x02"], b"\0"), schema, "", type_)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12), max_size=10))
def test_a_proto2_message_is_what_the_parser_says(rows: list[bytes]) -> None:
    fields = 'optional string s = 1 [default = "x"]; optional E e = 2; repeated E all = 3;'
    schema = proto(1, f'syntax = "proto2"; message M {{ {fields} enum E {{ A = 1; B = 2; }} }}')
    rows += [b"\x0a\x01\xff", b"\x10\x01", b"\x10\x03", b"\x18\x01\x18\x09\x18\x02", b"\x0a\x01y\x10\x02"]
    assert_same_both_ways(framed([*rows], b"\0"), schema, "", reader_of(schema).type)
