"""Two small questions of the comparison: which parts belong together, and whether a name has a pattern."""

from collections.abc import Mapping
from typing import TypeVar

import jsonschema_rs

T = TypeVar("T")


def matching(edges: Mapping[int, Mapping[int, T]]) -> dict[int, int]:
    """As many rows as possible, each with a column of its own (augmenting paths)."""
    row_of: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column in edges[row]:
            if column not in tried:
                tried.add(column)
                if column not in row_of or place(row_of[column], tried):
                    row_of[column] = row
                    return True
        return False

    for row in edges:
        place(row, set())
    return {row: column for column, row in sorted(row_of.items())}


def is_pattern_of(pattern: str, name: str) -> bool:
    """Patterns come from outside: this engine gives up on those that would take for ever."""
    try:
        return jsonschema_rs.is_valid({"pattern": pattern}, name)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
