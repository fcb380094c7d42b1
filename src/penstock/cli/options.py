"""Options that many commands share, declared once, and the small texts they take."""

import re
from typing import Annotated

import typer

from penstock.cli.failures import Misused
from penstock.cli.printing import Output

# Six digits at most: no topic has more partitions, and a slip of the finger must not fill the memory.
_PARTITIONS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
DEFAULT_BROKERS = "127.0.0.1:9092"
# The default of repeatable options.
NONE_GIVEN: list[str] = []
DEFAULT_URL = "http://127.0.0.1:8080"

HttpUrl = Annotated[str, typer.Option("--url", envvar="PENSTOCK_HTTP", metavar="URL", help="The HTTP server.")]
Brokers = Annotated[
    str,
    typer.Option("--brokers", envvar="PENSTOCK_BROKERS", metavar="HOST:PORT,...", help="Brokers to ask first."),
]
ClientProperties = Annotated[
    list[str],
    typer.Option(
        "-X", metavar="NAME=VALUE", help="brokers=HOST:PORT, or any librdkafka property. May be given several times."
    ),
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="text for people, json for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def parse_pairs(texts: list[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise Misused(f"{option} takes NAME=VALUE, not '{text}'")
        pairs[name.strip()] = value.strip()
    return pairs


def parse_partitions(text: str) -> list[int]:
    """`0,2,5-7` as numbers, ascending."""
    numbers: set[int] = set()
    for piece in text.split(","):
        match = _PARTITIONS.fullmatch(piece.strip())
        if not match:
            raise Misused(f"'{text}' is not a list of partitions: take 0 or 0,2 or 0-5")
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(numbers)
