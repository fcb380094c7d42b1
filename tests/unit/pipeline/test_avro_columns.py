"""Columns that are read at once are those that rows make one by one, whatever the bytes are."""

import io
import json
import re
import struct
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipeline.schemas.avro import AvroReader, parsed
from penstock.pipeline.schemas.avro_program import program
from penstock.pipeline.schemas.column_reading import is_numba_worth, read_column
from penstock.pipeline.schemas.column_slots import NotPlain
from penstock.pipeline.schemas.decoding import BadRow, ColumnDecoder, reader_of
from penstock.pipeline.schemas.registry_client import AVRO, NotInRegistry, Schema

# In one process: what they compile takes longer than most of them.
pytestmark = pytest.mark.xdist_group("columns")

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
LEAVES: dict[str, tuple[Any, Any]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32)),
    "double": ("double", st.floats()),
    "string": ("string", TEXTS),
    "bytes": ("bytes", st.binary(max_size=9)),
    "date": ({"type": "int", "logicalType": "date"}, st.dates()),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(UTC))),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes()),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal(f"{number}e-3")),
    ),
    "number": (["int", "null", "long"], st.integers(-(2**63), 2**63 - 1)),
}
KINDS = [*LEAVES, "enum", "fixed", "record", "record", "array", "map", "nullable", "nullable"]


class Names:
    def __init__(self) -> None:
        self._count = 0

    def next(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"


def made(draw: Any, names: Names, depth: int) -> tuple[Any, Any]:
    """(Schema, values of it) that there is a program for."""
    kind = draw(st.sampled_from(KINDS)) if depth else draw(st.sampled_from([*LEAVES, "enum"]))
    if kind in LEAVES:
        return LEAVES[kind]
    if kind == "enum":
        symbols = ["A", "B", "C"]
        return {"type": "enum", "name": names.next("E"), "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(1, 20))
        return {"type": "fixed", "name": names.next("X"), "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "record":
        return record(draw, names, depth - 1)
    inner, values = made(draw, names, depth - 1)
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(TEXTS, values, max_size=4)
    if isinstance(inner, list):
        return inner, values
    return draw(st.permutations(["null", inner])), st.none() | values


def record(draw: Any, names: Names, depth: int) -> tuple[Any, Any]:
    fields = {f"f{i}": made(draw, names, depth) for i in range(draw(st.integers(1, 5)))}
    tree = {
        "type": "record",
        "name": names.next("R"),
        "fields": [{"name": name, "type": inner} for name, (inner, _) in fields.items()],
    }
    return tree, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


@st.composite
def written(draw: Any, rows_max: int = 6) -> tuple[Any, list[bytes]]:
    tree, values = record(draw, Names(), 3)
    rows = draw(st.lists(values, min_size=1, max_size=rows_max))
    return tree, [encoded(tree, row) for row in rows]


def encoded(tree: Any, row: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(tree), row)
    return data.getvalue()


def schema(id_: int, tree: Any) -> Schema:
    return Schema(id_, AVRO, json.dumps(tree), "", ())


def framed(id_: int, rows: list[bytes | None]) -> pa.Array:
    frame = struct.pack(">bI", 0, id_)
    return pa.array([None if row is None else frame + row for row in rows], pa.binary())


class Registry:
    def __init__(self, *known: Schema) -> None:
        self._known = {each.id: each for each in known}

    def by_id(self, schema_id: int) -> Schema:
        if schema_id not in self._known:
            raise NotInRegistry(f"no schema {schema_id}")
        return self._known[schema_id]


def decoded(
    column: pa.Array, reader: Schema, *others: Schema, type_: pa.DataType = None, at_once: bool = True
) -> tuple[pa.Array, list[BadRow]]:
    registry: Any = Registry(reader, *others)
    wanted = reader_of(reader).type if type_ is None else type_
    return ColumnDecoder(reader, registry, wanted, "", lambda rows: at_once).decoded(column)


def assert_same_both_ways(column: pa.Array, reader: Schema, *others: Schema, type_: pa.DataType = None) -> Any:
    found, bad = decoded(column, reader, *others, type_=type_)
    expected, bad_expected = decoded(column, reader, *others, type_=type_, at_once=False)
    found.validate(full=True)
    assert found.type == expected.type
    # Their texts: NaN is not itself, and 0.0 is -0.0.
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert [said(each) for each in bad] == [said(each) for each in bad_expected]
    return found, bad


def said(bad: BadRow) -> tuple[int, str]:
    """Without the address of fastavro's file."""
    return bad.row, re.sub("0x[0-9a-f]+", "", bad.reason)


def left_to_rows(tree: Any, rows: list[bytes], type_: pa.DataType = None) -> list[int]:
    """Indexes of those that the kernel does not read."""
    one = schema(1, tree)
    made = program(parsed(one), None, AvroReader(one).type if type_ is None else type_)
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    starts = ends - np.array([len(row) for row in rows], np.int64)
    data: Any = np.frombuffer(b"".join(rows), np.uint8)
    column, is_left = read_column(made, data, starts, ends)
    column.validate(full=True)
    assert len(column) == len(rows)
    return np.flatnonzero(is_left).tolist()


def one_field(type_: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": type_}]}


@settings(deadline=None)
@given(written())
def test_any_rows_of_any_schema_that_has_a_program_are_read_at_once(made: tuple[Any, list[bytes]]) -> None:
    tree, rows = made
    assert left_to_rows(tree, rows) == []
    column, bad = assert_same_both_ways(framed(1, [*rows, None]), schema(1, tree))
    assert bad == []
    assert column.null_count == 1


@settings(deadline=None)
@given(written(rows_max=3), st.data())
def test_damaged_rows_are_what_the_rows_way_says(made: tuple[Any, list[bytes]], data: st.DataObject) -> None:
    tree, rows = made
    damaged: list[bytes | None] = []
    for row in rows:
        raw = bytearray(row)
        for _ in range(data.draw(st.integers(0, 3))):
            if raw:
                raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        damaged += [row, bytes(raw), bytes(raw[: data.draw(st.integers(0, len(raw)))]), bytes(raw) + b"\x01more"]
    assert_same_both_ways(framed(1, damaged), schema(1, tree))


@settings(deadline=None)
@given(st.sampled_from(sorted(LEAVES)), st.lists(st.binary(max_size=20), max_size=20), st.booleans())
def test_any_bytes_are_what_the_rows_way_says(kind: str, rows: list[bytes], is_list: bool) -> None:
    inner = LEAVES[kind][0]
    assert_same_both_ways(
        framed(1, [*rows]), schema(1, one_field({"type": "array", "items": inner} if is_list else inner))
    )


@settings(deadline=None)
@given(written(rows_max=12), st.data())
def test_slices_of_columns_are_read(made: tuple[Any, list[bytes]], data: st.DataObject) -> None:
    tree, rows = made
    start = data.draw(st.integers(0, len(rows)))
    column = framed(1, [*rows, None, *rows])
    assert_same_both_ways(column.slice(start, data.draw(st.integers(0, 2 * len(rows)))), schema(1, tree))


@settings(deadline=None)
@given(written(), st.data())
def test_fields_that_are_not_wanted_are_passed_over(made: tuple[Any, list[bytes]], data: st.DataObject) -> None:
    tree, rows = made
    type_ = part(reader_of(schema(1, tree)).type, data)
    assert left_to_rows(tree, rows, type_) == []
    assert_same_both_ways(framed(1, [*rows, rows[0][:-1]]), schema(1, tree), type_=type_)


def part(type_: pa.DataType, data: st.DataObject) -> pa.DataType:
    if not pa.types.is_struct(type_):
        return type_
    chosen = data.draw(st.lists(st.sampled_from(list(type_)), min_size=1, unique_by=lambda each: each.name))
    return pa.struct([each.with_type(part(each.type, data)) for each in chosen])


def test_no_rows_and_rows_that_are_all_null_are_columns_too() -> None:
    tree = one_field({"type": "array", "items": "string"})
    nothing: list[list[bytes | None]] = [[], [None, None]]
    for rows in nothing:
        column, bad = assert_same_both_ways(framed(1, rows), schema(1, tree))
        assert (len(column), column.null_count, bad) == (len(rows), len(rows), [])
    assert left_to_rows(tree, []) == []


WIDER = {"int": ["int", "long", "float", "double"], "long": ["long", "float", "double"], "float": ["float", "double"]}
ADDED = [("long", 7), ("string", "x"), (["null", "string"], None), ({"type": "array", "items": "int"}, [1, 2])]


@st.composite
def newer(draw: Any, tree: Any) -> Any:
    """A reader's schema that resolves, mostly."""
    if isinstance(tree, str):
        chosen = draw(st.sampled_from(WIDER.get(tree, [tree])))
        return draw(st.sampled_from([chosen, chosen, ["null", chosen]]))
    if isinstance(tree, list):
        return draw(st.sampled_from([tree, tree, [each for each in tree if each != "null"]]))
    if tree["type"] == "enum":
        return {**tree, **draw(st.sampled_from([{}, {"symbols": ["C", "A"]}, {"symbols": ["B"], "default": "B"}]))}
    if tree["type"] != "record":
        return {name: draw(newer(each)) if name in ("items", "values") else each for name, each in tree.items()}
    kept = draw(st.lists(st.sampled_from(tree["fields"]), unique_by=lambda each: str(each["name"])))
    fields = [{**each, "type": draw(newer(each["type"]))} for each in kept]
    for index, (type_, default) in enumerate(draw(st.lists(st.sampled_from(ADDED), max_size=2))):
        fields.append({"name": f"added{index}", "type": type_, "default": default})
    return {**tree, "fields": draw(st.permutations(fields))}


@settings(deadline=None)
@given(written(), st.data())
def test_older_writers_are_resolved_as_the_rows_way_does(made: tuple[Any, list[bytes]], data: st.DataObject) -> None:
    tree, rows = made
    reader = data.draw(newer(tree))
    if not reader["fields"]:
        return
    mixed = [
        *framed(2, [*rows]).to_pylist(),
        None,
        b"\0\0\0\0\x03x",
        b"bad",
        *framed(2, [*rows, rows[0][:-1]]).to_pylist(),
    ]
    assert_same_both_ways(pa.array(mixed, pa.binary()), schema(1, reader), schema(2, tree))


def test_columns_of_several_writers_are_put_together_in_order() -> None:
    old = one_field("int")
    new = {**old, "fields": [{"name": "g", "type": "string", "default": "?"}, {"name": "f", "type": ["null", "long"]}]}
    rows = []
    for i in range(20):
        rows += framed(2, [encoded(old, {"f": i})]).to_pylist()
        rows += framed(1, [encoded(new, {"f": i, "g": str(i)}), None]).to_pylist()
        rows += [b"\0\0\0\0\x01\x04\xff\xff\0", b"no frame", b"\0\0\0\0\x09"]
    column, bad = assert_same_both_ways(pa.array(rows, pa.binary()), schema(1, new), schema(2, old))
    assert column[:3].to_pylist() == [{"g": "?", "f": 0}, {"g": "0", "f": 0}, None]
    assert len(bad) == 3 * 20
    for tree, reader in ((old, None), (old, new)):
        program(
            parsed(schema(1, tree)), reader and parsed(schema(2, reader)), reader_of(schema(1, reader or tree)).type
        )


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("millis", [datetime.min.replace(tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)]),
        ("micros", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
        ("date", [date.min, date.max]),
        ("decimal", [Decimal(f"{10**38 - 1}e-3"), Decimal(f"{-(10**38) + 1}e-3")]),
        ("int", [-(2**31), 2**31 - 1]),
        ("long", [-(2**63), 2**63 - 1]),
    ],
)
def test_the_largest_are_read_at_once_and_those_beyond_go_the_rows_way(kind: str, values: list[Any]) -> None:
    type_ = LEAVES[kind][0]
    rows = [encoded(one_field(type_), {"f": each}) for each in values]
    assert left_to_rows(one_field(type_), rows) == []
    plain = "bytes" if kind == "decimal" else "long"
    if kind == "decimal":
        beyond: list[Any] = [(10**38).to_bytes(16, signed=True), (-(10**38)).to_bytes(16, signed=True), b"\0" * 17]
    else:
        numbers = [decoded_number(row) for row in rows]
        beyond = [] if kind == "long" else [numbers[0] - 1, numbers[1] + 1]
    outside = [encoded(one_field(plain), {"f": each}) for each in beyond] + [
        b"\xff" * 9 + b"\x02",
        b"\x80" * 10 + b"\0",
    ]
    assert left_to_rows(one_field(type_), outside) == list(range(len(outside)))
    assert_same_both_ways(framed(1, [*rows, *outside]), schema(1, one_field(type_)))


def decoded_number(row: bytes) -> int:
    found: Any = fastavro.schemaless_reader(io.BytesIO(row), fastavro.parse_schema(one_field("long")), None)
    return int(found["f"])


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=30))
def test_text_is_what_python_takes_for_utf_8(texts: list[bytes]) -> None:
    texts += [b"\xc0\x80", b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xe0\x9f\xbf", b"\xe0\xa0\x80", b"\xf4\x90\x80\x80"]
    texts += [b"\xf4\x8f\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80", b"\xc2", b"\xe2\x82", "aß水🐟".encode()]
    rows = [encoded(one_field("bytes"), {"f": each}) for each in texts]
    bad = [i for i, each in enumerate(texts) if each.decode(errors="replace").encode() != each]
    assert left_to_rows(one_field("string"), rows) == bad


def test_a_key_that_comes_twice_goes_the_rows_way() -> None:
    tree = one_field({"type": "map", "values": "int"})
    twice = bytes([6, 2, 97, 2, 2, 98, 4, 2, 97, 6, 0])
    many = encoded(tree, {"f": {str(i): i for i in range(65)}})
    assert left_to_rows(tree, [encoded(tree, {"f": {"a": 1, "b": 2}}), twice, many]) == [1, 2]
    column, _ = assert_same_both_ways(framed(1, [twice, many]), schema(1, tree))
    assert column[0].as_py() == {"f": [("a", 3), ("b", 2)]}


def test_lists_grow_as_far_as_they_must_and_blocks_may_say_their_size() -> None:
    inner = {"type": "array", "items": "string"}
    tree = one_field({"type": "array", "items": inner})
    rows = [encoded(tree, {"f": [["x" * (i % 3)] * i, [], [str(i)]] * 40}) for i in range(60)]
    sized = bytes([3, 8, 0, 0, 2, 0, 0])
    assert left_to_rows(tree, [*rows, sized]) == []
    assert_same_both_ways(framed(1, [*rows, sized, rows[5][:-3], rows[5]]), schema(1, tree))


@pytest.mark.parametrize(
    "type_",
    [
        ["int", "string"],
        ["float", "double"],
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}},
    ],
)
def test_what_is_not_plain_has_no_program_and_is_read_all_the_same(type_: Any) -> None:
    tree = one_field(type_)
    with pytest.raises(NotPlain):
        program(parsed(schema(1, tree)), None, reader_of(schema(1, tree)).type)
    assert_same_both_ways(framed(1, [b"\0\0", b"\2\2", b"\0" * 9]), schema(1, tree))


def test_names_that_are_used_again_are_read_at_once() -> None:
    inner = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    tree = {**one_field(inner), "fields": [{"name": "f", "type": inner}, {"name": "g", "type": ["null", "P"]}]}
    rows = [encoded(tree, {"f": {"x": 1}, "g": {"x": 2}}), encoded(tree, {"f": {"x": 1}, "g": None})]
    assert left_to_rows(tree, rows) == []
    assert_same_both_ways(framed(1, [*rows]), schema(1, tree))


def test_a_writer_whose_names_multiply_has_no_program() -> None:
    """The reader does not want them, so that nothing else stops it."""
    field: Any = "int"
    fields = []
    for i in range(20):
        pair = [{"name": "a", "type": field}, {"name": "b", "type": field}]
        fields.append({"name": f"f{i}", "type": {"type": "record", "name": f"N{i}", "fields": pair}})
        field = f"N{i}"
    writer = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}, *fields]}
    with pytest.raises(NotPlain):
        program(
            parsed(schema(2, writer)), parsed(schema(1, one_field("int"))), reader_of(schema(1, one_field("int"))).type
        )


def test_without_numba_rows_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    assert is_numba_worth(0)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert not is_numba_worth(10**9)
