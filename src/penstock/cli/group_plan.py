"""Where a group is to go on reading: plain data in, plain data out; the clock is passed in.

start  end          the first record that is there; what comes next
N                   an offset
+N  -N              N records after or before where the group is now
TIME                the first record at or after a time: a date, milliseconds since the epoch, -1h, or @ and a time
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.cli.offsets import BadOffset, parse_time_ms
from penstock.cli.options import parse_partitions


class Where(Enum):
    START = "start"
    END = "end"
    OFFSET = "offset"
    SHIFT = "shift"
    TIMESTAMP_MS = "timestamp"


@dataclass(frozen=True)
class Target:
    where: Where
    amount: int = 0


@dataclass(frozen=True)
class PartitionState:
    topic: str
    partition: int
    # Where the group is; None if it has committed nothing here.
    committed: int | None
    start: int
    end: int


@dataclass(frozen=True)
class Move:
    state: PartitionState
    # What was asked for, and the nearest offset that the log has.
    wanted: int
    offset: int

    def row(self) -> dict[str, str | int | None]:
        return {
            "topic": self.state.topic,
            "partition": self.state.partition,
            "old_offset": self.state.committed,
            "new_offset": self.offset,
            "end": self.state.end,
            "lag": self.state.end - self.offset,
        }


# No log has 10^12 records yet, and every time since 2001 in milliseconds has 13 digits.
_MILLISECONDS = re.compile(r"\d{13}")


def parse_target(text: str, now_ms: int) -> Target:
    if text in ("start", "end"):
        return Target(Where(text))
    if re.fullmatch(r"[+-]\d+", text):
        return Target(Where.SHIFT, int(text))
    if re.fullmatch(r"\d+", text) and not _MILLISECONDS.fullmatch(text):
        return Target(Where.OFFSET, int(text))
    try:
        return Target(Where.TIMESTAMP_MS, parse_time_ms(text, now_ms))
    except BadOffset as error:
        hint = "take start, end, an offset, +N, -N, or a time such as 2024-05-01T12:00:00Z, @1714564800 or -1h"
        raise BadOffset(f"'{text}' is no place to seek to: {hint}") from error


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """`a,b` and `c:0,2-4`: partitions by topic; None is all of them."""
    chosen: dict[str, list[int] | None] = {}
    for text in texts:
        name, colon, partitions = text.partition(":")
        if colon:
            numbers = set(parse_partitions(partitions))
            chosen[name.strip()] = sorted(numbers.union(chosen.get(name.strip()) or ()))
        else:
            chosen.update({piece.strip(): None for piece in text.split(",") if piece.strip()})
    return chosen


def parse_offsets(text: str) -> dict[tuple[str, int], int]:
    """Lines of topic, partition and offset, commas or blanks between them, under a heading of these words or none."""
    offsets = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = re.split(r"[,\s]+", line.strip().strip('"'))
        if fields == [""] or (number == 1 and [field.lower() for field in fields] == ["topic", "partition", "offset"]):
            continue
        if len(fields) != 3 or not fields[1].isdigit() or not fields[2].isdigit():
            raise BadOffset(f"line {number} is '{line.strip()}', not TOPIC PARTITION OFFSET")
        offsets[fields[0], int(fields[1])] = int(fields[2])
    if not offsets:
        raise BadOffset("no offsets are in it")
    return offsets


def plan(states: Iterable[PartitionState], target: Target, found: Mapping[tuple[str, int], int]) -> list[Move]:
    """One move for each partition. `found` has the first offsets at or after the target's time, -1 where there is none.
    Raises BadOffset."""
    return [moved_to(state, _wanted(state, target, found)) for state in states]


def moved_to(state: PartitionState, offset: int) -> Move:
    return Move(state, offset, max(state.start, min(offset, state.end)))


def _wanted(state: PartitionState, target: Target, found: Mapping[tuple[str, int], int]) -> int:
    match target.where:
        case Where.START:
            return state.start
        case Where.END:
            return state.end
        case Where.OFFSET:
            return target.amount
        case Where.SHIFT:
            if state.committed is None:
                where = f"partition {state.partition} of '{state.topic}'"
                raise BadOffset(f"the group has committed nothing for {where}: there is nothing to count from")
            return state.committed + target.amount
        case Where.TIMESTAMP_MS:
            at = found[state.topic, state.partition]
            return state.end if at < 0 else at
