"""How answers look: aligned columns for people, JSON for programs. Errors and progress go to stderr, answers to stdout.

No wrapping and no borders: lines stay greppable, and a pipe gets the same text as a terminal but for the bold.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import typer

# librdkafka and brokers say -1 where there is none.
ABSENT = "-"
_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?")


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


def bold(text: str) -> str:
    return text if os.environ.get("NO_COLOR") else typer.style(text, bold=True)


def say(text: str = "") -> None:
    typer.echo(text)


def note(text: str) -> None:
    """For people only: never part of what a program reads."""
    typer.echo(text, err=True)


def print_json(document: Any) -> None:
    say(json.dumps(document, indent=2, ensure_ascii=False))


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: Output) -> None:
    """Rows by column name. JSON has every key of a row; text the named columns, in their order."""
    if output is Output.JSON:
        print_json(list(rows))
        return
    lines = table_lines([[shown(row.get(column)) for column in columns] for row in rows], columns)
    say("\n".join([bold(lines[0]), *lines[1:]]))


def print_pairs(pairs: Mapping[str, Any]) -> None:
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        say(f"{bold(heading(name).ljust(width))}  {shown(value)}")


def heading(column: str) -> str:
    return column.replace("_", " ").upper()


def shown(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value) or ABSENT
    return str(value)


def table_lines(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> list[str]:
    """A heading and one line per row; columns of numbers are aligned to the right."""
    headings = [heading(column) for column in columns]
    widths = [max(len(row[index]) for row in (headings, *cells)) for index in range(len(columns))]
    to_right = [_is_number_column([row[index] for row in cells]) for index in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        aligned = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, to_right, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return [line(headings), *(line(row) for row in cells)]


def _is_number_column(cells: list[str]) -> bool:
    numbers = [_NUMBER.fullmatch(text) is not None for text in cells if text != ABSENT]
    return bool(numbers) and all(numbers)


def human_bytes(count: int) -> str:
    """1,536 bytes are 1.5 KB here: powers of 1,024, as file listings have it."""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size) < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def is_terminal(stream: Any = sys.stdout) -> bool:
    return bool(stream.isatty())
