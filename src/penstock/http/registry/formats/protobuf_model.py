"""A .proto file as it was written: what is compared, and printed in canonical form."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias


class Word(str):
    """A value that stands without quotes: a number, a name, true, false."""


# A quoted text, a word, a list of values, or a message as its (name, value) pairs.
OptionValue: TypeAlias = "str | Word | list[OptionValue] | MessageValue"


@dataclass(slots=True)
class MessageValue:
    pairs: list[tuple[str, OptionValue]]


@dataclass(slots=True)
class Option:
    # As written, without spaces: `deprecated`, `(my.option).part`.
    name: str
    value: OptionValue


@dataclass(slots=True)
class Field:
    name: str
    number: int
    # The name of a type, or map<key, value>.
    type: str
    # optional, required, repeated, or nothing.
    label: str | None = None
    options: list[Option] = field(default_factory=list)

    def map_types(self) -> tuple[str, str] | None:
        return map_types(self.type)


def map_types(name: str) -> tuple[str, str] | None:
    """Of `map<key, value>` the two types; None for other names."""
    if not name.startswith("map<"):
        return None
    key, _, value = name[4:-1].partition(", ")
    return key, value


@dataclass(slots=True)
class Group:
    name: str
    number: int
    label: str | None
    body: "Message"


@dataclass(slots=True)
class OneOf:
    name: str
    fields: list[Field] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


# First and last number; the last of all is MAX.
Range = tuple[int, int]
NUMBER_MAX = (1 << 29) - 1
ENUM_NUMBER_MAX = (1 << 31) - 1


@dataclass(slots=True)
class Reserved:
    values: list[Range | str]


@dataclass(slots=True)
class Extensions:
    ranges: list[Range]
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Extend:
    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class EnumValue:
    name: str
    number: int
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Enum:
    name: str
    values: list[EnumValue] = field(default_factory=list)
    reserved: list[Reserved] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Message:
    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: list[OneOf] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    types: list["Message | Enum"] = field(default_factory=list)
    reserved: list[Reserved] = field(default_factory=list)
    extensions: list[Extensions] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)

    def all_fields(self) -> Iterator[Field]:
        yield from self.fields
        for oneof in self.oneofs:
            yield from oneof.fields


@dataclass(slots=True)
class Rpc:
    name: str
    request: str
    response: str
    is_request_stream: bool = False
    is_response_stream: bool = False
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    name: str
    rpcs: list[Rpc] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class ProtoFile:
    # proto2, proto3, or nothing, which means proto2.
    syntax: str | None = None
    package: str | None = None
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    types: list[Message | Enum] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
