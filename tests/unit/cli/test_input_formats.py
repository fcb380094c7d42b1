from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.formats import BadFormat, PrintedRecord, compile_output, record_as_json
from penstock.cli.input_formats import InputMismatch, InputRecord, compile_input


def read(template: str, data: bytes, chunk_bytes: int = 1 << 20) -> list[InputRecord]:
    return list(compile_input(template)(chunks(data, chunk_bytes)))


def chunks(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("template", "data", "records"),
    [
        (r"%v\n", b"a\nb\n", [InputRecord(value=b"a"), InputRecord(value=b"b")]),
        (r"%v\n", b"a\nlast without an end", [InputRecord(value=b"a"), InputRecord(value=b"last without an end")]),
        (r"%v\n", b"\n\n", [InputRecord(value=b""), InputRecord(value=b"")]),
        (r"%v\n", b"", []),
        (r"%k:%v\n", b"k:v:w\n", [InputRecord(b"k", b"v:w")]),
        (r"%k\t\t%v\r\n", b"a\tb\t\tc\r\n", [InputRecord(b"a\tb", b"c")]),
        ("%v", b"all\nof\nit", [InputRecord(value=b"all\nof\nit")]),
        ("%V{big32}%v", b"\x00\x00\x00\x02hi\x00\x00\x00\x00", [InputRecord(value=b"hi"), InputRecord(value=b"")]),
        (r"%K %V %k%v\n", b"1 2 abc\n", [InputRecord(b"a", b"bc")]),
        (r"%p %d %v\n", b"2 17 x\n", [InputRecord(None, b"x", (), 2, 17)]),
        (r"%v{hex} %k{base64}\n", b"6869 aGk=\n", [InputRecord(b"hi", b"hi")]),
        (r"%H %h{%k=%v;}%v\n", b"2 a=1;b=2;x\n0 y\n", [
            InputRecord(None, b"x", (("a", b"1"), ("b", b"2"))), InputRecord(None, b"y")]),
        (r"<%v>", b"<a><b>", [InputRecord(value=b"a"), InputRecord(value=b"b")]),
    ],
)  # fmt: skip
def test_records_are_read_the_same_however_the_input_is_cut(
    template: str, data: bytes, records: list[InputRecord], chunk_bytes: int
) -> None:
    assert read(template, data, chunk_bytes) == records


@pytest.mark.parametrize(
    ("template", "data", "complaint"),
    [
        (r"%k:%v\n", b"a:1\nno colon\nb:2\n", "record 2 does not fit the format: its line 'no colon' has no ':'"),
        (r"%k:%v\n", b"no colon at all", "record 1 does not fit the format: no ':' was found"),
        ("%V{big32}%v", b"\x00\x00\x00\x09hi", "9 bytes were expected but only 2 are left"),
        (r"%p %v\n", b"two x\n", "the partition 'two' is not a number"),
        (r"%V %v\n", b"-3 abc\n", "cannot be -3 bytes long"),
        (r"%V %v\n", b"2 abc\n", "expected"),
        (r"%v{hex}\n", b"xyz\n", "'xyz' is not hexadecimal"),
        (r"%v{base64}\n", b"*\n", "is not base64"),
    ],
)
def test_input_that_does_not_fit_is_refused_with_the_record_and_the_reason(
    template: str, data: bytes, complaint: str
) -> None:
    with pytest.raises(InputMismatch, match=complaint):
        read(template, data)


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("%k%v", "nothing says where the key ends"),
        ("%p%v", "nothing says where the partition ends"),
        (r"literal\n", "no field to read"),
        ("", "no field to read"),
        ("%t", "not an escape"),
        (r"%h{%k=%v;}%v\n", "the number of headers before it"),
        ("%v{rot13}", "there are hex and base64"),
        (r"%p{hex8} %v\n", "a number cannot be read as 'hex8'"),
    ],
)
def test_formats_that_cannot_be_read_are_refused_before_any_input(template: str, complaint: str) -> None:
    with pytest.raises(BadFormat, match=complaint):
        compile_input(template)


def test_the_first_record_is_there_before_the_second_is_typed() -> None:
    def typed() -> Iterator[bytes]:
        yield b"first\n"
        raise AssertionError("the second line was waited for")

    assert next(compile_input(r"%v\n")(typed())).value == b"first"


texts = st.none() | st.binary(max_size=40)
printed_records = st.builds(
    PrintedRecord,
    topic=st.just("t"),
    partition=st.integers(0, 10),
    offset=st.integers(0, 2**60),
    timestamp_ms=st.integers(0, 2**40),
    key=texts,
    value=texts,
    headers=st.lists(st.tuples(st.text(min_size=1, max_size=5), texts), max_size=3).map(tuple),
)


@given(st.lists(printed_records, max_size=5), st.integers(1, 50))
def test_what_consume_prints_as_json_produce_reads_back(records: list[PrintedRecord], chunk_bytes: int) -> None:
    data = b"".join(record_as_json(record, None) for record in records)
    expected = [InputRecord(each.key, each.value, each.headers, None, each.timestamp_ms) for each in records]
    assert read("json", data, chunk_bytes) == expected


@given(st.lists(printed_records, max_size=5), st.integers(1, 50))
def test_what_consume_prints_with_lengths_produce_reads_back(records: list[PrintedRecord], chunk_bytes: int) -> None:
    template = "%p{big32}%d{big64}%K{big32}%k%V{big32}%v%H{big16}%h{%K{big16}%k%V{big32}%v}"
    write = compile_output(template)
    data = b"".join(write(record, 0) for record in records)
    expected = [
        InputRecord(
            each.key or b"",
            each.value or b"",
            tuple((name, value or b"") for name, value in each.headers),
            each.partition,
            each.timestamp_ms,
        )
        for each in records
    ]
    assert read(template, data, chunk_bytes) == expected


def test_json_takes_documents_as_values_and_refuses_what_is_no_record() -> None:
    assert read("json", b'{"key": "a", "value": {"b": [1]}}\n\n') == [InputRecord(b"a", b'{"b":[1]}')]
    for line in (b"[1]\n", b"nonsense\n", b'{"headers": [{}]}\n', b'{"value_base64": "*"}\n'):
        with pytest.raises(InputMismatch, match="line 1 is not a record"):
            read("json", line)


@given(st.text(alphabet="%{}\\tkKvVhHpdbig32 n:", max_size=20), st.binary(max_size=40))
def test_any_format_and_input_either_reads_or_is_refused(template: str, data: bytes) -> None:
    with suppress(BadFormat, InputMismatch):
        for count, _ in enumerate(compile_input(template)(chunks(data, 7))):
            assert count <= len(data)
