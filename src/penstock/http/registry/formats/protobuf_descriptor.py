"""Between .proto files and the descriptors that compiled programs carry.

Clients in Python send a schema as the serialized descriptor of its file, in base64, and want to get it back so.
Options that are extensions (`(my.option)`) have no place in a descriptor without the file that declares them: they are
kept in the text and left out of the descriptor.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2 as pb

from penstock.http.registry.formats.protobuf_model import (
    ENUM_NUMBER_MAX,
    NUMBER_MAX,
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    Message,
    OneOf,
    Option,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
    Word,
)
from penstock.http.registry.formats.protobuf_types import SCALARS, Types

_Field = pb.FieldDescriptorProto
_SCALAR_TYPES = {name: _Field.Type.Value(f"TYPE_{name.upper()}") for name in SCALARS}
_SCALAR_NAMES = {number: name for name, number in _SCALAR_TYPES.items()}
_LABELS = {"optional": _Field.LABEL_OPTIONAL, "required": _Field.LABEL_REQUIRED, "repeated": _Field.LABEL_REPEATED}

# The options of a file, a message, a field and so on: generated code without types.
_Options = Any


def to_descriptor(file: ProtoFile, types: Types, name: str) -> pb.FileDescriptorProto:
    descriptor = pb.FileDescriptorProto(name=name, package=file.package)
    if file.syntax == "proto3":
        descriptor.syntax = "proto3"
    descriptor.dependency.extend([*file.imports, *file.public_imports])
    descriptor.public_dependency.extend(range(len(file.imports), len(descriptor.dependency)))
    _Encoder(file.syntax == "proto3", types).fill_file(descriptor, file)
    return descriptor


class _Encoder:
    def __init__(self, is_proto3: bool, types: Types) -> None:
        self._is_proto3 = is_proto3
        self._types = types
        self._scope: list[str] = []

    def fill_file(self, descriptor: pb.FileDescriptorProto, file: ProtoFile) -> None:
        _set_options(descriptor.options, file.options)
        for element in file.types:
            if isinstance(element, Message):
                self._message(descriptor.message_type.add(), element)
            else:
                self._enum(descriptor.enum_type.add(), element)
        for extend in file.extends:
            for field in extend.fields:
                self._extension(descriptor.extension.add(), extend, field)
        for service in file.services:
            self._service(descriptor.service.add(), service)

    def _message(self, descriptor: pb.DescriptorProto, message: Message) -> None:
        self._scope.append(message.name)
        descriptor.name = message.name
        _set_options(descriptor.options, message.options)
        for field in message.fields:
            self._field(descriptor.field.add(), field, descriptor)
        for position, oneof in enumerate(message.oneofs):
            declared = descriptor.oneof_decl.add(name=oneof.name)
            _set_options(declared.options, oneof.options)
            for field in oneof.fields:
                member = descriptor.field.add(oneof_index=position)
                self._field(member, field, descriptor)
            for group in oneof.groups:
                self._group(descriptor, group).oneof_index = position
        for group in message.groups:
            self._group(descriptor, group)
        for element in message.types:
            if isinstance(element, Message):
                self._message(descriptor.nested_type.add(), element)
            else:
                self._enum(descriptor.enum_type.add(), element)
        for extend in message.extends:
            for field in extend.fields:
                self._extension(descriptor.extension.add(), extend, field)
        for extensions in message.extensions:
            for first, last in extensions.ranges:
                descriptor.extension_range.add(start=first, end=last + 1)
        for reserved in message.reserved:
            for value in reserved.values:
                if isinstance(value, str):
                    descriptor.reserved_name.append(value)
                else:
                    descriptor.reserved_range.add(start=value[0], end=value[1] + 1)
        # Explicit presence in proto3 is a oneof of its own, after those that were written.
        for declared_field in descriptor.field:
            if declared_field.proto3_optional:
                declared_field.oneof_index = len(descriptor.oneof_decl)
                descriptor.oneof_decl.add(name=f"_{declared_field.name}")
        self._scope.pop()

    def _group(self, descriptor: pb.DescriptorProto, group: Group) -> pb.FieldDescriptorProto:
        field = descriptor.field.add(name=group.name.lower(), number=group.number, type=_Field.TYPE_GROUP)
        field.label = _LABELS[group.label or "optional"]
        field.type_name = self._full_name(group.name)[1]
        self._message(descriptor.nested_type.add(), group.body)
        return field

    def _field(self, descriptor: pb.FieldDescriptorProto, field: Field, parent: pb.DescriptorProto | None) -> None:
        descriptor.name = field.name
        descriptor.number = field.number
        descriptor.label = _LABELS[field.label or "optional"]
        map_types = field.map_types()
        if map_types is not None and parent is not None:
            self._map_field(descriptor, parent, *map_types)
        elif field.type in SCALARS:
            descriptor.type = _SCALAR_TYPES[field.type]
        else:
            descriptor.type, descriptor.type_name = self._full_name(field.type)
        if field.label == "optional" and self._is_proto3 and parent is not None:
            descriptor.proto3_optional = True
        for option in field.options:
            if option.name == "json_name" and isinstance(option.value, str):
                descriptor.json_name = option.value
            elif option.name == "default" and isinstance(option.value, str):
                descriptor.default_value = str(option.value)
        _set_options(descriptor.options, field.options)

    def _map_field(self, descriptor: pb.FieldDescriptorProto, parent: pb.DescriptorProto, key: str, value: str) -> None:
        name = "".join(part[:1].upper() + part[1:] for part in descriptor.name.split("_")) + "Entry"
        entry = parent.nested_type.add(name=name)
        entry.options.map_entry = True
        self._field(entry.field.add(), Field("key", 1, key), None)
        self._field(entry.field.add(), Field("value", 2, value), None)
        descriptor.label = _Field.LABEL_REPEATED
        descriptor.type = _Field.TYPE_MESSAGE
        package = f".{self._types.package}" if self._types.package else ""
        descriptor.type_name = ".".join((package, *self._scope, name))

    def _extension(self, descriptor: pb.FieldDescriptorProto, extend: Extend, field: Field) -> None:
        self._field(descriptor, field, None)
        descriptor.extendee = self._full_name(extend.name)[1]

    def _full_name(self, name: str) -> tuple[int, str]:
        found = self._types.find(name, self._scope)
        assert found is not None, name
        kind = _Field.TYPE_ENUM if isinstance(found.element, Enum) else _Field.TYPE_MESSAGE
        return kind, "." + found.full_name

    def _enum(self, descriptor: pb.EnumDescriptorProto, enum: Enum) -> None:
        descriptor.name = enum.name
        _set_options(descriptor.options, enum.options)
        for value in enum.values:
            _set_options(descriptor.value.add(name=value.name, number=value.number).options, value.options)
        for reserved in enum.reserved:
            for item in reserved.values:
                if isinstance(item, str):
                    descriptor.reserved_name.append(item)
                else:
                    descriptor.reserved_range.add(start=item[0], end=item[1])

    def _service(self, descriptor: pb.ServiceDescriptorProto, service: Service) -> None:
        descriptor.name = service.name
        _set_options(descriptor.options, service.options)
        for rpc in service.rpcs:
            method = descriptor.method.add(name=rpc.name)
            method.input_type = self._full_name(rpc.request)[1]
            method.output_type = self._full_name(rpc.response)[1]
            method.client_streaming = rpc.is_request_stream
            method.server_streaming = rpc.is_response_stream
            _set_options(method.options, rpc.options)


def _set_options(target: _Options, options: Iterable[Option]) -> None:
    fields = target.DESCRIPTOR.fields_by_name
    for option in options:
        field = fields.get(option.name)
        if field is None or not isinstance(option.value, str) or field.message_type is not None:
            continue
        text = str(option.value)
        if field.enum_type is not None:
            number = field.enum_type.values_by_name.get(text)
            if number is not None:
                setattr(target, option.name, number.number)
        elif field.cpp_type == field.CPPTYPE_BOOL:
            setattr(target, option.name, text == "true")
        elif field.cpp_type == field.CPPTYPE_STRING:
            setattr(target, option.name, text)


def from_descriptor(descriptor: pb.FileDescriptorProto) -> ProtoFile:
    file = ProtoFile(descriptor.syntax or None, descriptor.package or None)
    for position, name in enumerate(descriptor.dependency):
        (file.public_imports if position in descriptor.public_dependency else file.imports).append(name)
    is_proto3 = descriptor.syntax == "proto3"
    file.options = _options(descriptor.options)
    file.types = [_message(item, is_proto3) for item in descriptor.message_type]
    file.types += [_enum(item) for item in descriptor.enum_type]
    file.extends = _extends(descriptor.extension, is_proto3)
    for service in descriptor.service:
        rpcs = [
            Rpc(
                method.name,
                method.input_type,
                method.output_type,
                method.client_streaming,
                method.server_streaming,
                _options(method.options),
            )
            for method in service.method
        ]
        file.services.append(Service(service.name, rpcs, _options(service.options)))
    return file


def _message(descriptor: pb.DescriptorProto, is_proto3: bool) -> Message:
    message = Message(descriptor.name, options=_options(descriptor.options))
    entries = {nested.name: nested for nested in descriptor.nested_type if nested.options.map_entry}
    oneofs = [OneOf(oneof.name, options=_options(oneof.options)) for oneof in descriptor.oneof_decl]
    groups = set()
    for item in descriptor.field:
        entry = entries.get(item.type_name.rpartition(".")[2])
        if item.type == _Field.TYPE_GROUP:
            name = item.type_name.rpartition(".")[2]
            groups.add(name)
            body = next(nested for nested in descriptor.nested_type if nested.name == name)
            group = Group(name, item.number, _label(item, is_proto3), _message(body, is_proto3))
            (oneofs[item.oneof_index] if item.HasField("oneof_index") else message).groups.append(group)
            continue
        if entry is not None and item.label == _Field.LABEL_REPEATED:
            key, value = (_type_name(entry.field[position]) for position in (0, 1))
            field = Field(item.name, item.number, f"map<{key}, {value}>", None, _field_options(item))
        else:
            field = Field(item.name, item.number, _type_name(item), _label(item, is_proto3), _field_options(item))
        if item.HasField("oneof_index") and not item.proto3_optional:
            field.label = None
            oneofs[item.oneof_index].fields.append(field)
        else:
            message.fields.append(field)
    message.oneofs = [oneof for oneof in oneofs if oneof.fields or oneof.groups]
    message.types = [
        _message(nested, is_proto3)
        for nested in descriptor.nested_type
        if nested.name not in entries and nested.name not in groups
    ]
    message.types += [_enum(item) for item in descriptor.enum_type]
    message.extends = _extends(descriptor.extension, is_proto3)
    if descriptor.extension_range:
        ranges = [_range(item.start, item.end - 1, NUMBER_MAX) for item in descriptor.extension_range]
        message.extensions = [Extensions(ranges)]
    message.reserved = _reserved(
        [_range(item.start, item.end - 1, NUMBER_MAX) for item in descriptor.reserved_range], descriptor.reserved_name
    )
    return message


def _range(first: int, last: int, number_max: int) -> Range:
    return first, min(last, number_max)


def _reserved(ranges: list[Range], names: Iterable[str]) -> list[Reserved]:
    found = [Reserved(list(ranges))] if ranges else []
    return [*found, Reserved(list(names))] if names else found


def _label(item: pb.FieldDescriptorProto, is_proto3: bool) -> str | None:
    if item.label == _Field.LABEL_REPEATED:
        return "repeated"
    if item.label == _Field.LABEL_REQUIRED:
        return "required"
    return "optional" if item.proto3_optional or not is_proto3 else None


def _type_name(item: pb.FieldDescriptorProto) -> str:
    return _SCALAR_NAMES.get(item.type) or item.type_name


def _extends(items: Iterable[pb.FieldDescriptorProto], is_proto3: bool) -> list[Extend]:
    by_name: dict[str, Extend] = {}
    for item in items:
        label = _label(item, is_proto3)
        field = Field(item.name, item.number, _type_name(item), label, _field_options(item))
        by_name.setdefault(item.extendee, Extend(item.extendee)).fields.append(field)
    return list(by_name.values())


def _enum(descriptor: pb.EnumDescriptorProto) -> Enum:
    values = [EnumValue(item.name, item.number, _options(item.options)) for item in descriptor.value]
    ranges = [_range(item.start, item.end, ENUM_NUMBER_MAX) for item in descriptor.reserved_range]
    return Enum(descriptor.name, values, _reserved(ranges, descriptor.reserved_name), _options(descriptor.options))


def _field_options(item: pb.FieldDescriptorProto) -> list[Option]:
    options = _options(item.options)
    if item.HasField("default_value"):
        is_text = item.type in (_Field.TYPE_STRING, _Field.TYPE_BYTES)
        options.append(Option("default", item.default_value if is_text else Word(item.default_value)))
    if item.HasField("json_name") and item.json_name != _json_name(item.name):
        options.append(Option("json_name", item.json_name))
    return options


def _json_name(name: str) -> str:
    """What protobuf calls a field in JSON unless it is told otherwise."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _options(options: _Options) -> list[Option]:
    found = []
    for field, value in options.ListFields():
        if field.is_extension or field.message_type is not None or field.is_repeated:
            continue
        if field.enum_type is not None:
            found.append(Option(field.name, Word(field.enum_type.values_by_number[value].name)))
        elif isinstance(value, bool):
            if field.name != "map_entry":
                found.append(Option(field.name, Word("true" if value else "false")))
        elif isinstance(value, str):
            found.append(Option(field.name, value))
    return found
