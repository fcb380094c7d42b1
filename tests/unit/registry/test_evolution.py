"""What may follow what: a table of changes to schemas.

Each case says whether who has the new schema reads old data (backward), whether who has the old one reads new data
(forward), and why, from the rules of the format as Confluent's registry applies them.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.http.registry.compatibility import Previous, reasons_against
from penstock.http.registry.formats import ParsedSchema, parse

FOLDER = Path(__file__).parent / "evolution"
CASES = [
    (name.upper(), case)
    for name in ("avro", "json", "protobuf")
    for case in json.loads((FOLDER / f"{name}.json").read_text())
]


def read(schema_type: str, schema: Any) -> ParsedSchema:
    text = schema if schema_type == "PROTOBUF" else json.dumps(schema)
    return parse(schema_type, text, {}, (), is_new=True)


def verdict(schema_type: str, case: dict[str, Any], level: str) -> bool:
    old, new = read(schema_type, case["old"]), read(schema_type, case["new"])
    is_lenient = case.get("policy") == "LENIENT"
    return not reasons_against(new, [Previous(1, lambda: old)], level, is_lenient=is_lenient)


@pytest.mark.parametrize(("schema_type", "case"), CASES, ids=[f"{kind}: {case['name']}" for kind, case in CASES])
def test_a_change_is_judged_as_its_format_demands(schema_type: str, case: dict[str, Any]) -> None:
    assert case["why"]
    assert verdict(schema_type, case, "BACKWARD") == case["backward"]
    assert verdict(schema_type, case, "FORWARD") == case["forward"]
    assert verdict(schema_type, case, "FULL") == (case["backward"] and case["forward"])
    assert verdict(schema_type, case, "NONE")


def test_there_are_many_cases_of_each_format() -> None:
    assert len(CASES) >= 60
    for schema_type in ("AVRO", "JSON", "PROTOBUF"):
        verdicts = {(case["backward"], case["forward"]) for kind, case in CASES if kind == schema_type}
        assert verdicts == {(True, True), (True, False), (False, True), (False, False)}


@pytest.mark.parametrize(("schema_type", "case"), CASES, ids=[f"{kind}: {case['name']}" for kind, case in CASES])
def test_a_refusal_says_where_and_which_version(schema_type: str, case: dict[str, Any]) -> None:
    old, new = read(schema_type, case["old"]), read(schema_type, case["new"])
    reasons = reasons_against(new, [Previous(7, lambda: old)], "FULL", is_lenient=case.get("policy") == "LENIENT")
    if case["backward"] and case["forward"]:
        assert reasons == []
        return
    assert reasons[0].startswith("{errorType:'")
    assert "%s" not in "".join(reasons[:-3])
    assert reasons[-3:] == ["{oldSchemaVersion: 7}", f"{{oldSchema: '{old.canonical}'}}", "{compatibility: 'FULL'}"]


AVRO_VERSIONS = [
    '{"type":"record","name":"U","fields":[{"name":"a","type":"int"}]}',
    '{"type":"record","name":"U","fields":[]}',
    '{"type":"record","name":"U","fields":[{"name":"a","type":"string","default":""}]}',
]


@pytest.mark.parametrize(
    ("level", "is_allowed"),
    [
        ("BACKWARD", True),
        ("BACKWARD_TRANSITIVE", False),
        ("FORWARD", True),
        ("FORWARD_TRANSITIVE", False),
        ("FULL", True),
        ("FULL_TRANSITIVE", False),
        ("NONE", True),
    ],
)
def test_transitive_levels_ask_all_versions_and_the_others_only_the_last(level: str, is_allowed: bool) -> None:
    schemas = [parse("AVRO", text, {}, (), is_new=True) for text in AVRO_VERSIONS]
    previous = [
        Previous(number, partial(lambda schema: schema, schema)) for number, schema in enumerate(schemas[:2], 1)
    ]
    reasons = reasons_against(schemas[2], previous, level)
    assert (not reasons) == is_allowed
    assert is_allowed or "{oldSchemaVersion: 1}" in reasons


def test_the_type_of_schema_may_only_change_without_a_level() -> None:
    avro, other = (
        parse("AVRO", '"string"', {}, (), is_new=True),
        parse("JSON", '{"type":"string"}', {}, (), is_new=True),
    )
    previous = [Previous(1, lambda: avro)]
    assert reasons_against(other, previous, "BACKWARD")
    assert not reasons_against(other, previous, "NONE")
