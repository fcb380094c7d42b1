"""Writes .proto files in the one form that Confluent's registry stores, and normalised.

Canonical: comments are gone, the parts of each block stand in a fixed order. Normalised besides: full names of types,
fields by number, options by name. The order of messages always stays: serialized data counts them.
"""

from collections.abc import Iterable

from penstock.http.registry.formats.protobuf_model import (
    NUMBER_MAX,
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    Message,
    MessageValue,
    OneOf,
    Option,
    OptionValue,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
    Word,
    map_types,
)
from penstock.http.registry.formats.protobuf_types import SCALARS, Types
from penstock.http.registry.formats.schema import InvalidSchema

_ESCAPES = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        "'": "\\'",
        '"': '\\"',
    }
)


def canonical(file: ProtoFile) -> str:
    return _Writer(None).file(file)


def normalized(file: ProtoFile, types: Types) -> str:
    """Raises InvalidSchema for a name that means no type."""
    return _Writer(types).file(file)


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.rstrip("\n").split("\n"))


class _Writer:
    def __init__(self, types: Types | None) -> None:
        self._types = types
        self._scope: list[str] = []

    def file(self, file: ProtoFile) -> str:
        parts = []
        if file.syntax == "proto3" or (file.syntax and self._types is None):
            parts.append(f'syntax = "{file.syntax}";\n')
        if file.package is not None:
            parts.append(f"package {file.package};\n")
        if file.imports or file.public_imports:
            parts.append("\n")
            parts.extend(f'import "{name}";\n' for name in self._sorted_names(file.imports))
            parts.extend(f'import public "{name}";\n' for name in self._sorted_names(file.public_imports))
        if file.options:
            parts.append("\n" + "".join(map(self._statement, self._ordered(file.options))))
        if file.types:
            parts.append("\n" + self._all_types(file.types))
        if file.extends:
            parts.append("\n" + "".join(map(self._extend, file.extends)))
        if file.services:
            parts.append("\n" + "".join(map(self._service, file.services)))
        return "".join(parts)

    def _sorted_names(self, names: list[str]) -> list[str]:
        return names if self._types is None else sorted(set(names))

    def _all_types(self, types: list[Message | Enum]) -> str:
        messages = [self._message(element) for element in types if isinstance(element, Message)]
        return "".join(messages + [self._enum(element) for element in types if isinstance(element, Enum)])

    def _message(self, message: Message) -> str:
        self._scope.append(message.name)
        parts = [f"message {message.name} {{"]
        parts.append(self._section(map(self._reserved, self._split_reserved(message.reserved))))
        parts.append(self._section(map(self._statement, self._ordered(message.options))))
        parts.append(self._section(map(self._field, self._by_number(message.fields))))
        parts.append(self._section(map(self._oneof, self._ordered_oneofs(message.oneofs))))
        parts.append(self._section(self._group(group) for group in self._groups_by_number(message.groups)))
        parts.append(self._section(map(self._extensions, self._split_extensions(message.extensions))))
        parts.append(self._section(map(self._extend, message.extends)))
        if message.types:
            parts.append("\n" + _indented(self._all_types(message.types)))
        parts.append("}\n")
        self._scope.pop()
        return "".join(parts)

    @staticmethod
    def _section(texts: Iterable[str]) -> str:
        body = "".join(map(_indented, texts))
        return "\n" + body if body else ""

    def _enum(self, enum: Enum) -> str:
        parts = [f"enum {enum.name} {{\n"]
        parts.extend(_indented(self._reserved(item)) for item in self._split_reserved(enum.reserved))
        parts.extend(_indented(self._statement(option)) for option in self._ordered(enum.options))
        values: list[EnumValue] = enum.values
        if self._types is not None:
            values = sorted(values, key=lambda value: (value.number, value.name))
        for value in values:
            parts.append(_indented(f"{value.name} = {value.number}{self._compact(self._ordered(value.options))};\n"))
        return "".join(parts) + "}\n"

    def _field(self, field: Field) -> str:
        label = f"{field.label} " if field.label else ""
        options = [option for option in field.options if option.name not in ("default", "json_name")]
        # These two are no options in truth, and stand after the others.
        for name in ("default", "json_name"):
            options += [option for option in field.options if option.name == name]
        compact = self._compact(self._ordered(options))
        return f"{label}{self._type_name(field.type)} {field.name} = {field.number}{compact};\n"

    def _type_name(self, name: str) -> str:
        if self._types is None or name in SCALARS:
            return name
        pair = map_types(name)
        if pair is not None:
            return f"map<{pair[0]}, {self._type_name(pair[1])}>"
        found = self._types.find(name, self._scope)
        if found is None:
            raise InvalidSchema(f"the type '{name}' is not defined, neither in the file nor in its references")
        return "." + found.full_name

    def _oneof(self, oneof: OneOf) -> str:
        parts = [f"oneof {oneof.name} {{"]
        parts.append(self._section(map(self._statement, self._ordered(oneof.options))))
        parts.append(self._section(map(self._field, self._by_number(oneof.fields))))
        parts.append(self._section(map(self._group, self._groups_by_number(oneof.groups))))
        return "".join(parts) + "}\n"

    def _group(self, group: Group) -> str:
        label = f"{group.label} " if group.label else ""
        self._scope.append(group.name)
        body = self._section(map(self._field, self._by_number(group.body.fields)))
        self._scope.pop()
        return f"{label}group {group.name} = {group.number} {{{body}}}\n"

    def _extend(self, extend: Extend) -> str:
        name = extend.name if self._types is None else self._type_name(extend.name)
        return f"extend {name} {{{self._section(map(self._field, self._by_number(extend.fields)))}}}\n"

    def _service(self, service: Service) -> str:
        options = self._section(map(self._statement, self._ordered(service.options)))
        return f"service {service.name} {{{options}{self._section(map(self._rpc, service.rpcs))}}}\n"

    def _rpc(self, rpc: Rpc) -> str:
        request = ("stream " if rpc.is_request_stream else "") + self._type_name(rpc.request)
        response = ("stream " if rpc.is_response_stream else "") + self._type_name(rpc.response)
        options = "".join(_indented(self._statement(option)) for option in self._ordered(rpc.options))
        return f"rpc {rpc.name} ({request}) returns ({response}){f' {{{chr(10)}{options}}}' if options else ''};\n"

    def _reserved(self, reserved: Reserved) -> str:
        values = [f'"{value}"' if isinstance(value, str) else self._range(value) for value in reserved.values]
        return f"reserved {', '.join(values)};\n"

    def _extensions(self, extensions: Extensions) -> str:
        ranges = ", ".join(map(self._range, extensions.ranges))
        return f"extensions {ranges}{self._compact(self._ordered(extensions.options))};\n"

    @staticmethod
    def _range(numbers: Range) -> str:
        first, last = numbers
        if first == last:
            return str(first)
        return f"{first} to {last if last < NUMBER_MAX else 'max'}"

    def _split_reserved(self, reserved: list[Reserved]) -> list[Reserved]:
        if self._types is None:
            return reserved
        values = [value for item in reserved for value in item.values]
        values.sort(key=lambda value: (1 << 32, value) if isinstance(value, str) else (value[0], ""))
        return [Reserved([value]) for value in values]

    def _split_extensions(self, extensions: list[Extensions]) -> list[Extensions]:
        if self._types is None:
            return extensions
        split = [Extensions([numbers], item.options) for item in extensions for numbers in item.ranges]
        return sorted(split, key=lambda item: item.ranges[0])

    def _by_number(self, fields: list[Field]) -> list[Field]:
        return fields if self._types is None else sorted(fields, key=lambda field: field.number)

    def _groups_by_number(self, groups: list[Group]) -> list[Group]:
        return groups if self._types is None else sorted(groups, key=lambda group: group.number)

    def _ordered_oneofs(self, oneofs: list[OneOf]) -> list[OneOf]:
        if self._types is None:
            return oneofs
        filled = [oneof for oneof in oneofs if oneof.fields]
        return sorted(filled, key=lambda oneof: min(field.number for field in oneof.fields))

    def _ordered(self, options: list[Option]) -> list[Option]:
        return options if self._types is None else sorted(options, key=lambda option: option.name.strip("("))

    def _statement(self, option: Option) -> str:
        return f"option {self._option(option)};\n"

    def _option(self, option: Option) -> str:
        if isinstance(option.value, list):
            return f"{option.name} = {self._bracketed([self._value(value) for value in option.value])}"
        return f"{option.name} = {self._value(option.value)}"

    def _compact(self, options: list[Option]) -> str:
        return " " + self._bracketed([self._option(option) for option in options]) if options else ""

    @staticmethod
    def _bracketed(texts: list[str]) -> str:
        if len(texts) == 1:
            return f"[{texts[0]}]"
        return "[\n" + _indented(",\n".join(texts)) + "]" if texts else "[]"

    def _value(self, value: OptionValue) -> str:
        if isinstance(value, Word):
            return str(value)
        if isinstance(value, str):
            return f'"{value.translate(_ESCAPES)}"'
        if isinstance(value, MessageValue):
            pairs = value.pairs if self._types is None else sorted(value.pairs, key=lambda pair: pair[0])
            lines = ",\n".join(f"{name}: {self._value(item)}" for name, item in pairs)
            return "{\n" + (_indented(lines) if lines else "") + "}"
        if self._types is not None and len(value) == 1:
            return self._value(value[0])
        lines = ",\n".join(map(self._value, value))
        return "[\n" + (_indented(lines) if lines else "") + "]"
