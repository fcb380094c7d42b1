"""Where a group is to go on: what people write, and which offsets that means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.failures import Misused
from penstock.cli.group_describe import assignment_text
from penstock.cli.group_plan import (
    PartitionState,
    Target,
    Where,
    moved_to,
    parse_offsets,
    parse_target,
    parse_topics,
    plan,
)
from penstock.cli.offsets import BadOffset

NOW_MS = 1_750_000_000_000


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("start", Target(Where.START)),
        ("end", Target(Where.END)),
        ("0", Target(Where.OFFSET, 0)),
        ("1714564800", Target(Where.OFFSET, 1_714_564_800)),
        ("+10", Target(Where.SHIFT, 10)),
        ("-10", Target(Where.SHIFT, -10)),
        ("-1h", Target(Where.TIMESTAMP_MS, NOW_MS - 3_600_000)),
        ("@1714564800", Target(Where.TIMESTAMP_MS, 1_714_564_800_000)),
        ("1714564800000", Target(Where.TIMESTAMP_MS, 1_714_564_800_000)),
        ("2024-05-01T12:00:00Z", Target(Where.TIMESTAMP_MS, 1_714_564_800_000)),
    ],
)
def test_a_place_is_read_as_people_mean_it(text: str, target: Target) -> None:
    assert parse_target(text, NOW_MS) == target


@pytest.mark.parametrize("text", ["", "yesterday", "+1h", "1.5", "@end", "--1", "5:9"])
def test_what_is_no_place_is_answered_with_what_would_be(text: str) -> None:
    with pytest.raises(BadOffset, match="is no place to seek to: take start, end, an offset"):
        parse_target(text, NOW_MS)


def state(committed: int | None = 50) -> PartitionState:
    return PartitionState("t", 0, committed, 10, 100)


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (Target(Where.START), 10),
        (Target(Where.END), 100),
        (Target(Where.OFFSET, 60), 60),
        (Target(Where.OFFSET, 3), 10),
        (Target(Where.OFFSET, 1000), 100),
        (Target(Where.SHIFT, 7), 57),
        (Target(Where.SHIFT, -7), 43),
        (Target(Where.SHIFT, -70), 10),
        (Target(Where.TIMESTAMP_MS, 5), 42),
    ],
)
def test_a_place_becomes_an_offset_that_the_log_has(target: Target, offset: int) -> None:
    (move,) = plan([state()], target, {("t", 0): 42})
    assert move.offset == offset


def test_a_time_after_the_last_record_is_the_end() -> None:
    (move,) = plan([state()], Target(Where.TIMESTAMP_MS, 5), {("t", 0): -1})
    assert move.offset == 100


def test_a_shift_needs_something_to_count_from() -> None:
    with pytest.raises(BadOffset, match="committed nothing for partition 0 of 't'"):
        plan([state(committed=None)], Target(Where.SHIFT, -1), {})


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(-2000, 3000))
def test_no_move_leaves_the_log(start: int, length: int, wanted: int) -> None:
    move = moved_to(PartitionState("t", 0, None, start, start + length), wanted)
    assert start <= move.offset <= start + length
    assert move.offset == wanted or not start <= wanted <= start + length
    assert move.row()["lag"] == start + length - move.offset


def test_topics_are_named_together_or_with_partitions() -> None:
    assert parse_topics(["a,b", "c:0,2-4", "c:7"]) == {"a": None, "b": None, "c": [0, 2, 3, 4, 7]}
    assert parse_topics([]) == {}
    with pytest.raises(Misused, match="not a list of partitions"):
        parse_topics(["a:first"])


def test_offsets_in_a_file_have_commas_or_blanks() -> None:
    expected = {("a", 0): 5, ("b.c", 12): 0}
    assert parse_offsets("a 0 5\nb.c\t12  0\n") == expected
    assert parse_offsets("topic,partition,offset\na,0,5\n\nb.c,12,0") == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a 0 5\na 1\n", "line 2 is 'a 1'"),
        ("a 0 -5", "line 1"),
        ("a,zero,5", "line 1"),
        ("", "no offsets are in it"),
    ],
)
def test_a_line_that_is_no_offset_is_named(text: str, complaint: str) -> None:
    with pytest.raises(BadOffset, match=complaint):
        parse_offsets(text)


def test_an_assignment_is_written_short() -> None:
    assert assignment_text({"orders": [0, 1, 2, 5], "audit": [1], "none": []}) == "orders:0-2,5 audit:1"
    assert assignment_text({}) is None
