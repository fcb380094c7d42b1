"""What a setting is: a name, a kind, a default, a rule for its values and a sentence for people.

Values are strings on the wire, on the command line and in the metadata log. They are parsed here, once, by Kafka's
rules and with Kafka's complaints; `Setting.text` is the way back.
"""

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(enum.IntEnum):
    """DescribeConfigs' ConfigType. There is no CLASS: settings never name code to load."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class InvalidConfig(ValueError):
    """Settings that cannot stand, alone or together. The message is Kafka's, and clients show it to people."""


class InvalidValue(InvalidConfig):
    """A value that the setting does not take."""

    def __init__(self, name: str, value: object, complaint: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {name}: {complaint}")
        self.complaint = complaint


class Rule(Protocol):
    """Which parsed values are allowed; `str()` of it says so in the reference page."""

    def check(self, name: str, value: Any) -> None:
        """Raises InvalidValue."""


@dataclass(frozen=True, slots=True)
class AtLeast:
    low: int

    def check(self, name: str, value: Any) -> None:
        if value < self.low:
            raise InvalidValue(name, value, f"Value must be at least {self.low}")

    def __str__(self) -> str:
        return f"at least {self.low}"


@dataclass(frozen=True, slots=True)
class Between:
    low: int
    high: int
    or_equal_to: int | None = None

    def check(self, name: str, value: Any) -> None:
        if self.low <= value <= self.high or value == self.or_equal_to:
            return
        if self.or_equal_to is not None:
            complaint = f"Value must be between {self.low} and {self.high} or equal to {self.or_equal_to}"
        elif value < self.low:
            complaint = f"Value must be at least {self.low}"
        else:
            complaint = f"Value must be no more than {self.high}"
        raise InvalidValue(name, value, complaint)

    def __str__(self) -> str:
        text = f"{self.low} to {self.high}"
        return text if self.or_equal_to is None else f"{text}, or {self.or_equal_to}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """For a STRING the value, for a LIST each item."""

    names: tuple[str, ...]

    def check(self, name: str, value: Any) -> None:
        for item in value if isinstance(value, tuple) else (value,):
            if item not in self.names:
                raise InvalidValue(name, item, f"String must be one of: {', '.join(self.names)}")

    def __str__(self) -> str:
        return ", ".join(f"`{name}`" for name in self.names)


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    def check(self, name: str, value: Any) -> None:
        if value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in value):
            return
        shape = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        complaint = f"{name} must be the literal '*' or a list of replicas in the following format: {shape}"
        raise InvalidValue(name, f"[{', '.join(value)}]", complaint)

    def __str__(self) -> str:
        return "`*`, or a list of `partition:broker`"


class Synonym(NamedTuple):
    """A broker setting that stands in where a topic or group has no value of its own."""

    name: str
    # What one unit of it is in the unit of the setting it stands in for: 3,600,000 for hours to milliseconds.
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: str | None
    doc: str
    rule: Rule | None = None
    # Whether a broker setting can be altered while the node runs. Topic and group settings always can.
    dynamic: bool = False
    # Of a topic or group setting: the broker settings that give its default, the strongest first.
    synonyms: tuple[Synonym, ...] = ()
    # Taken but neither described nor documented, as Kafka does with those its own tests need.
    internal: bool = False

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> Any:
        """The typed value: bool, int, float, str, or a tuple of str. Raises InvalidValue."""
        value = _PARSERS[self.kind](self.name, text.strip())
        if self.rule is not None:
            self.rule.check(self.name, value)
        return value

    def parsed_default(self) -> Any:
        return None if self.default is None else self.parse(self.default)

    def text(self, value: Any) -> str | None:
        """A parsed value as it goes on the wire."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return str(value).replace("e+", "E")  # Java's way of writing large doubles
        return str(value)


def _parse_boolean(name: str, text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise InvalidValue(name, text, "Expected value to be either true or false")


def _integer_parser(kind: str, bits: int) -> Callable[[str, str], int]:
    limit = 1 << (bits - 1)

    def parse(name: str, text: str) -> int:
        # Python's int() would take underscores and foreign digits; twenty characters hold any 64-bit number.
        if re.fullmatch(r"[+-]?[0-9]{1,20}", text, re.ASCII) and -limit <= (number := int(text)) < limit:
            return number
        raise InvalidValue(name, text, f"Not a number of type {kind}")

    return parse


def _parse_double(name: str, text: str) -> float:
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text, re.ASCII):
        return float(text)
    raise InvalidValue(name, text, "Not a number of type DOUBLE")


def _parse_list(name: str, text: str) -> tuple[str, ...]:
    return tuple(re.split(r"\s*,\s*", text)) if text else ()


_PARSERS: dict[Kind, Callable[[str, str], Any]] = {
    Kind.BOOLEAN: _parse_boolean,
    Kind.STRING: lambda name, text: text,
    Kind.INT: _integer_parser("INT", 32),
    Kind.SHORT: _integer_parser("SHORT", 16),
    Kind.LONG: _integer_parser("LONG", 64),
    Kind.DOUBLE: _parse_double,
    Kind.LIST: _parse_list,
    Kind.PASSWORD: lambda name, text: text,
}


def boolean(name: str, default: bool, doc: str, *, dynamic: bool = False) -> Setting:
    return Setting(name, Kind.BOOLEAN, "true" if default else "false", doc, dynamic=dynamic)


def integer(name: str, default: int | None, doc: str, rule: Rule | None = None, *, dynamic: bool = False) -> Setting:
    return Setting(name, Kind.INT, None if default is None else str(default), doc, rule, dynamic)


def short(name: str, default: int, doc: str, rule: Rule | None = None) -> Setting:
    return Setting(name, Kind.SHORT, str(default), doc, rule)


def long(name: str, default: int | None, doc: str, rule: Rule | None = None, *, dynamic: bool = False) -> Setting:
    return Setting(name, Kind.LONG, None if default is None else str(default), doc, rule, dynamic)


def double(name: str, default: str, doc: str, rule: Rule | None = None, *, dynamic: bool = False) -> Setting:
    return Setting(name, Kind.DOUBLE, default, doc, rule, dynamic)


def string(name: str, default: str | None, doc: str, rule: Rule | None = None, *, dynamic: bool = False) -> Setting:
    return Setting(name, Kind.STRING, default, doc, rule, dynamic)


def listing(name: str, default: str | None, doc: str, rule: Rule | None = None, *, dynamic: bool = False) -> Setting:
    return Setting(name, Kind.LIST, default, doc, rule, dynamic)
