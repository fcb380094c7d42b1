"""Where reading starts and stops: rpk's offset expressions.

    start  end          the log's first record; what comes next
    N  N:  :N  N:M      an offset; from it; up to it; from N up to but not including M
    +N  -N              N after the start; N before the end
    :end  start:end     up to what is there now
    @T  @T:  @:T  @T:U  by timestamp; U may also be a duration after T, or `end`

A time is milliseconds (13 digits) or seconds (10 digits) since the epoch, a date or date and time (UTC unless it names
a zone), or a duration ago such as -1h30m. Plain data in, plain data out: the clock is passed in.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum


class BadOffset(ValueError):
    """Not an offset expression; the message says what would be."""


class Anchor(Enum):
    OFFSET = "offset"
    AFTER_START = "after start"
    BEFORE_END = "before end"
    TIMESTAMP_MS = "timestamp"


@dataclass(frozen=True)
class Position:
    anchor: Anchor
    amount: int


@dataclass(frozen=True)
class Span:
    start: Position
    # None: go on for ever.
    stop: Position | None


START = Position(Anchor.AFTER_START, 0)
END = Position(Anchor.BEFORE_END, 0)

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+"
_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_TIME = rf"-?{_DURATION}|\d{{13}}|\d{{9,10}}|{_DATE}|start|end"
_TIMES = re.compile(rf"@(?P<start>{_TIME})?(?P<colon>:@?(?P<stop>{_TIME})?)?")
_OFFSETS = re.compile(r"(?P<start>start|end|[+-]?\d+)?(?P<colon>:(?P<stop>end|\d+)?)?")

_HINT = "take start, end, N, -N, +N, N:M, :end, or @TIME[:TIME] with a time such as 2024-05-01T12:00:00Z or -1h"


def parse_span(text: str, now_ms: int) -> Span:
    if text.startswith("@"):
        return _parse_times(text, now_ms)
    match = _OFFSETS.fullmatch(text)
    if not match or text in ("", ":"):
        raise BadOffset(f"'{text}' is not an offset: {_HINT}")
    start = _offset_position(match["start"] or "start")
    stop = _offset_position(match["stop"]) if match["stop"] else None
    exact = start.anchor is Anchor.OFFSET and stop is not None and stop.anchor is Anchor.OFFSET
    if exact and stop is not None and stop.amount < start.amount:
        raise BadOffset(f"'{text}' stops before it starts")
    return Span(start, stop)


def parse_time_ms(text: str, now_ms: int) -> int:
    """A time on its own, such as `topic trim --before` takes."""
    text = text.removeprefix("@")
    if text in ("start", "end") or not re.fullmatch(_TIME, text):
        raise BadOffset(f"'{text}' is not a time: take 2024-05-01T12:00:00Z, milliseconds since the epoch, or -1h")
    return _time_position(text, now_ms, None).amount


def _offset_position(text: str) -> Position:
    if text == "start":
        return START
    if text == "end":
        return END
    if text[0] == "+":
        return Position(Anchor.AFTER_START, int(text[1:]))
    if text[0] == "-":
        return Position(Anchor.BEFORE_END, int(text[1:]))
    return Position(Anchor.OFFSET, int(text))


def _parse_times(text: str, now_ms: int) -> Span:
    match = _TIMES.fullmatch(text)
    if not match or not (match["start"] or match["stop"]):
        raise BadOffset(f"'{text}' is not an offset: {_HINT}")
    start = _time_position(match["start"], now_ms, None) if match["start"] else START
    if not match["stop"]:
        return Span(start, None)
    stop = _time_position(match["stop"], now_ms, start)
    if start.anchor is stop.anchor is Anchor.TIMESTAMP_MS and stop.amount < start.amount:
        raise BadOffset(f"'{text}' stops before it starts")
    return Span(start, stop)


def _time_position(text: str, now_ms: int, since: Position | None) -> Position:
    if text in ("start", "end"):
        return START if text == "start" else END
    if text.isdigit():
        return Position(Anchor.TIMESTAMP_MS, int(text) if len(text) == 13 else int(text) * 1000)
    if re.fullmatch(rf"-?{_DURATION}", text):
        return Position(Anchor.TIMESTAMP_MS, _relative_ms(text, now_ms, since))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadOffset(f"'{text}' is not a date: {error}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Position(Anchor.TIMESTAMP_MS, round(moment.timestamp() * 1000))


def _relative_ms(text: str, now_ms: int, since: Position | None) -> int:
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    length_ms = round(sum(float(amount) * _UNIT_MS[unit] for amount, unit in parts))
    if text.startswith("-"):
        return now_ms - length_ms
    if since is None or since.anchor is not Anchor.TIMESTAMP_MS:
        raise BadOffset(f"'{text}' has no start to count from: write -{text} for that long ago")
    return since.amount + length_ms


def resolve_start(position: Position, low: int, high: int, offset_at: Callable[[int], int | None]) -> int:
    """The offset to start from in a log from `low` up to but not including `high`, moved into it if need be.

    `offset_at` gives the first offset at or after a timestamp, None when there is none.
    """
    return max(low, min(_offset_meant(position, low, high, offset_at), high))


def resolve_stop(position: Position, low: int, high: int, offset_at: Callable[[int], int | None]) -> int:
    """The offset before which to stop. One that is still to come stays so: the reader waits for it."""
    return max(low, _offset_meant(position, low, high, offset_at))


def _offset_meant(position: Position, low: int, high: int, offset_at: Callable[[int], int | None]) -> int:
    match position.anchor:
        case Anchor.OFFSET:
            return position.amount
        case Anchor.AFTER_START:
            return low + position.amount
        case Anchor.BEFORE_END:
            return high - position.amount
        case Anchor.TIMESTAMP_MS:
            found = offset_at(position.amount)
            return high if found is None else found
