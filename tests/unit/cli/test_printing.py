import json

import pytest

from penstock.cli.failures import Misused
from penstock.cli.options import parse_pairs, parse_partitions
from penstock.cli.printing import Output, human_bytes, plural, print_rows, shown, table_lines


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() -> None:
    lines = table_lines([["orders", "3", "-"], ["a", "12", "1,000"]], ["name", "partition_count", "size"])
    assert lines == [
        "NAME    PARTITION COUNT   SIZE",
        "orders                3      -",
        "a                    12  1,000",
    ]


def test_a_column_without_any_number_stays_to_the_left() -> None:
    assert table_lines([["127.0.0.1", "-"]], ["host_name", "rack_name"]) == ["HOST NAME  RACK NAME", "127.0.0.1  -"]


def test_a_table_without_rows_is_its_heading() -> None:
    assert table_lines([], ["name", "value"]) == ["NAME  VALUE"]


def test_values_are_shown_as_people_write_them() -> None:
    assert [shown(value) for value in (None, True, False, [1, 2], [], 5, "x")] == [
        "-",
        "yes",
        "no",
        "1,2",
        "-",
        "5",
        "x",
    ]


def test_json_has_every_key_of_a_row_also_those_without_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "a", "hidden": 1}], ["name"], Output.JSON)
    assert json.loads(capsys.readouterr().out) == [{"name": "a", "hidden": 1}]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (5 << 20, "5.0 MB"), (3 << 40, "3.0 TB")]
)
def test_sizes_are_written_in_the_unit_that_fits(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_one_record_but_two_records() -> None:
    assert (plural(1, "record"), plural(2000, "record")) == ("1 record", "2,000 records")


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert parse_pairs(["a=b=c", " d = e "], "-X") == {"a": "b=c", "d": "e"}
    with pytest.raises(Misused, match="-X takes NAME=VALUE, not 'nonsense'"):
        parse_pairs(["nonsense"], "-X")


def test_partitions_are_lists_and_ranges() -> None:
    assert parse_partitions("5,0-2,1") == [0, 1, 2, 5]
    for text in ("", "a", "1-", "-1", "1,,2", "1-b"):
        with pytest.raises(Misused, match="not a list of partitions"):
            parse_partitions(text)
