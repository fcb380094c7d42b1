from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.offsets import (
    END,
    START,
    Anchor,
    BadOffset,
    Position,
    Span,
    parse_span,
    parse_time_ms,
    resolve_start,
    resolve_stop,
)

NOW_MS = 1_700_000_000_000


def at(offset: int) -> Position:
    return Position(Anchor.OFFSET, offset)


def time(timestamp_ms: int) -> Position:
    return Position(Anchor.TIMESTAMP_MS, timestamp_ms)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("start", Span(START, None)),
        ("end", Span(END, None)),
        ("5", Span(at(5), None)),
        ("5:", Span(at(5), None)),
        (":5", Span(START, at(5))),
        ("5:9", Span(at(5), at(9))),
        ("+3", Span(Position(Anchor.AFTER_START, 3), None)),
        ("-3", Span(Position(Anchor.BEFORE_END, 3), None)),
        ("-3:end", Span(Position(Anchor.BEFORE_END, 3), END)),
        (":end", Span(START, END)),
        ("start:end", Span(START, END)),
        ("@1700000000123", Span(time(1_700_000_000_123), None)),
        ("@1700000000", Span(time(1_700_000_000_000), None)),
        ("@1700000000:", Span(time(1_700_000_000_000), None)),
        ("@:1700000000", Span(START, time(1_700_000_000_000))),
        ("@2024-05-01", Span(time(1_714_521_600_000), None)),
        ("@2024-05-01T12:00:00Z", Span(time(1_714_564_800_000), None)),
        ("@2024-05-01T12:00:00.250", Span(time(1_714_564_800_250), None)),
        ("@2024-05-01T14:00+02:00:2024-05-02", Span(time(1_714_564_800_000), time(1_714_608_000_000))),
        ("@2024-05-01:@2024-05-02", Span(time(1_714_521_600_000), time(1_714_608_000_000))),
        ("@-1h", Span(time(NOW_MS - 3_600_000), None)),
        ("@-1h30m:end", Span(time(NOW_MS - 5_400_000), END)),
        ("@-2d:-1d", Span(time(NOW_MS - 2 * 86_400_000), time(NOW_MS - 86_400_000))),
        ("@1700000000:1.5s", Span(time(1_700_000_000_000), time(1_700_000_001_500))),
    ],
)
def test_offset_expressions_mean_what_rpk_says(text: str, span: Span) -> None:
    assert parse_span(text, NOW_MS) == span


@pytest.mark.parametrize("text", ["", ":", "@", "@:", "five", "1-2", "--1", "5:+3", "@tomorrow", "1:2:3", "@12", " 5"])
def test_nonsense_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(BadOffset, match="take start, end, N"):
        parse_span(text, NOW_MS)


@pytest.mark.parametrize("text", ["9:5", "@2024-05-02:2024-05-01"])
def test_a_span_must_not_stop_before_it_starts(text: str) -> None:
    with pytest.raises(BadOffset, match="stops before it starts"):
        parse_span(text, NOW_MS)


def test_dates_that_do_not_exist_are_refused() -> None:
    with pytest.raises(BadOffset, match="not a date"):
        parse_span("@2024-02-30", NOW_MS)


def test_a_duration_needs_a_start_to_count_from() -> None:
    with pytest.raises(BadOffset, match="-1h for that long ago"):
        parse_span("@1h", NOW_MS)


def test_a_time_on_its_own_is_read_the_same_way() -> None:
    assert parse_time_ms("-1s", NOW_MS) == NOW_MS - 1000
    assert parse_time_ms("2024-05-01", NOW_MS) == 1_714_521_600_000
    with pytest.raises(BadOffset, match="not a time"):
        parse_time_ms("end", NOW_MS)


@given(st.text(max_size=20))
def test_any_text_is_either_a_span_or_refused(text: str) -> None:
    with suppress(BadOffset):
        assert isinstance(parse_span(text, NOW_MS), Span)


def no_offset(timestamp_ms: int) -> int | None:
    return None


@pytest.mark.parametrize(
    ("position", "start", "stop"),
    [
        (START, 10, 10),
        (END, 20, 20),
        (at(15), 15, 15),
        (at(3), 10, 10),
        (at(99), 20, 99),
        (Position(Anchor.AFTER_START, 4), 14, 14),
        (Position(Anchor.BEFORE_END, 4), 16, 16),
        (Position(Anchor.BEFORE_END, 400), 10, 10),
        (time(5), 20, 20),
    ],
)
def test_positions_resolve_within_the_log_but_a_stop_may_be_still_to_come(
    position: Position, start: int, stop: int
) -> None:
    assert resolve_start(position, 10, 20, no_offset) == start
    assert resolve_stop(position, 10, 20, no_offset) == stop


def test_a_time_resolves_to_the_first_offset_at_or_after_it() -> None:
    assert resolve_start(time(5), 10, 20, {5: 17}.get) == 17
