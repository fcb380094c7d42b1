import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.formats import BadFormat, PrintedRecord, compile_output, record_as_json

RECORD = PrintedRecord(
    topic="orders",
    partition=3,
    offset=258,
    timestamp_ms=1_714_564_800_250,
    key=b"k\xff",
    value=b"value",
    headers=(("a", b"1"), ("b", None)),
    leader_epoch=7,
)


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("%t %p %o %e %i", b"orders 3 258 7 42"),
        ("%T %K %V %H", b"6 2 5 2"),
        ("%k|%v", b"k\xff|value"),
        ("%v{hex} %v{base64}", b"76616c7565 dmFsdWU="),
        ("%h{%k=%v;}", b"a=1;b=;"),
        ("%h{%K:%k %v{hex},}", b"1:a 31,1:b ,"),
        ("%d", b"1714564800250"),
        ("%d{strftime[%Y-%m-%d %H:%M:%S]}", b"2024-05-01 12:00:00"),
        ("%o{big32}%o{little16}%o{big8}", b"\x00\x00\x01\x02\x02\x01\x02"),
        ("%o{hex64} %o{hex8} %o{ascii}", b"0000000000000102 02 258"),
        (r"\t\n\r\\\x41", b"\t\n\r\\A"),
        ("%% %{ %}", b"% { }"),
        ("täglich", "täglich".encode()),
        ("%h{%{%k%}}", b"{a}{b}"),
    ],
)
def test_format_strings_print_what_rpk_prints(template: str, printed: bytes) -> None:
    assert compile_output(template)(RECORD, 42) == printed


def test_null_keys_and_values_print_as_nothing() -> None:
    assert compile_output("[%k|%v|%V]")(PrintedRecord("t", 0, 0, -1, None, None), 0) == b"[||0]"


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("%z", "'%z' in the format is not an escape"),
        ("%", "is not an escape"),
        (r"\q", "not an escape"),
        (r"\x4", "two hexadecimal digits"),
        ("%v{hex", "never closed"),
        ("%v{rot13}", "there are hex and base64"),
        ("%o{base64}", "a number cannot be printed as 'base64'"),
        ("%h", "what to print of each header"),
        ("%h{%t}", "'%t' in the format is not an escape"),
    ],
)
def test_formats_that_make_no_sense_are_refused_with_the_reason(template: str, complaint: str) -> None:
    with pytest.raises(BadFormat, match=complaint):
        compile_output(template)


@given(st.text(alphabet="%{}\\tTkKvVhHpoedixn0 []strftimehex", max_size=30))
def test_any_template_either_prints_or_is_refused(template: str) -> None:
    try:
        write = compile_output(template)
    except BadFormat:
        return
    assert isinstance(write(RECORD, 0), bytes)


def test_json_keeps_every_byte() -> None:
    fields = json.loads(record_as_json(RECORD, None))
    assert fields["key_base64"] == "a/8="
    assert fields["value"] == "value"
    assert fields["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": None}]
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("orders", 3, 258)
    assert fields["timestamp"] == 1_714_564_800_250


def test_json_without_indent_is_one_line() -> None:
    assert record_as_json(RECORD._replace(value=b"two\nlines"), None).count(b"\n") == 1
