"""JSON as people wrote it: the order of keys and the digits of numbers are kept, since a schema's text is its identity.

What comes from outside is bounded: depth 64, no NaN, no half characters.
"""

import json
from typing import Any

DEPTH_MAX = 64


class InvalidJson(ValueError):
    """Says what is wrong with a text."""


class Decimal(float):
    """A number with a point or an exponent, and how it was written."""

    text: str

    def __new__(cls, text: str) -> "Decimal":
        number = super().__new__(cls, text)
        number.text = text
        return number


def read(text: str | bytes) -> Any:
    try:
        if isinstance(text, str):
            text.encode()
        value = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidJson(f"it is nested deeper than {DEPTH_MAX} levels") from None
    except UnicodeError:
        raise InvalidJson("it is not valid UTF-8") from None
    except ValueError as problem:
        raise InvalidJson(f"it is not valid JSON: {problem}") from None
    check_depth(value)
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def check_depth(value: Any) -> None:
    level = [value]
    depth = 0
    while level:
        if depth > DEPTH_MAX:
            raise InvalidJson(f"it is nested deeper than {DEPTH_MAX} levels")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
                if any("\ud800" <= character <= "\udfff" for key in item for character in key):
                    raise InvalidJson("it has half of a character")
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str) and any("\ud800" <= character <= "\udfff" for character in item):
                raise InvalidJson("it has half of a character")
        level = below
        depth += 1


def write(value: Any, *, has_sorted_keys: bool = False) -> str:
    parts: list[str] = []
    _write(value, has_sorted_keys, parts)
    return "".join(parts)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _write(value: Any, has_sorted_keys: bool, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(quoted(value))
    elif isinstance(value, dict):
        separator = "{"
        for key in sorted(value) if has_sorted_keys else value:
            parts.append(f"{separator}{quoted(key)}:")
            _write(value[key], has_sorted_keys, parts)
            separator = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        separator = "["
        for item in value:
            parts.append(separator)
            _write(item, has_sorted_keys, parts)
            separator = ","
        parts.append("]" if value else "[]")
    elif isinstance(value, Decimal):
        parts.append(value.text)
    else:
        parts.append(json.dumps(value))
