"""Protobuf: messages by their descriptors, as the registry compiles them.

A field that may be absent (optional, messages, oneof) is null then; others have their default, as Protobuf says.
Unsigned numbers are of the next type that holds them. Values are read with the reader's message whatever wrote them:
fields are known by their numbers.
"""

import base64
import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from penstock.pipeline.schemas.column_reading import read_column
from penstock.pipeline.schemas.column_slots import NotPlain
from penstock.pipeline.schemas.protobuf_program import program
from penstock.pipeline.schemas.registry_client import Schema
from penstock.pipeline.schemas.values import Decoder, SchemaUnusable, Undecodable
from penstock.protocol.primitives import Malformed
from penstock.protocol.schema_framing import message_path

if TYPE_CHECKING:
    from penstock.pipeline.schemas.values import ColumnReader

_TYPES: Mapping[int, pa.DataType] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_ENUM: pa.string(),
}
_TIMESTAMP = "google.protobuf.Timestamp"
_DURATION = "google.protobuf.Duration"
_SECOND_US = 1_000_000
_FILE = "schema.proto"
_KNOWN_PACKAGES = {"google": "", "confluent": "confluent_kafka.schema_registry."}


def compiled(schema: Schema) -> FileDescriptor:
    """Raises SchemaUnusable."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for reference in schema.references:
            _add(pool, reference.serialized, reference.name)
        name = _add(pool, schema.serialized, "")
        file = pool.FindFileByName(name)
    except Exception as problem:
        raise SchemaUnusable(f"Protobuf schema {schema.id} cannot be used: {problem}") from problem
    if not file.message_types_by_name:
        raise SchemaUnusable(f"Protobuf schema {schema.id} has no message")
    return file


def _add(pool: Any, serialized: str, name: str) -> str:
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    file.name = name or file.name or _FILE
    _add_known_types(pool, file)
    pool.Add(file)
    return str(file.name)


def _add_known_types(pool: Any, file: Any) -> None:
    """Google's and Confluent's own, which every schema may use without naming them as references."""
    for name in file.dependency:
        package = _KNOWN_PACKAGES.get(name.partition("/")[0])
        if package is None:
            continue
        try:
            pool.FindFileByName(name)
        except KeyError:
            module = package + name.removesuffix(".proto").replace("/", ".") + "_pb2"
            known = descriptor_pb2.FileDescriptorProto()
            importlib.import_module(module).DESCRIPTOR.CopyToProto(known)
            _add_known_types(pool, known)
            pool.Add(known)


def message_at(file: FileDescriptor, path: tuple[int, ...]) -> Descriptor:
    """By Confluent's message indexes. Raises Undecodable."""
    try:
        found = list(file.message_types_by_name.values())[path[0]]
        for index in path[1:]:
            found = found.nested_types[index]
    except IndexError:
        raise Undecodable(f"there is no message {list(path)} in its schema") from None
    return found


class ProtobufReader:
    """Of the message with this full name; the first one without it."""

    def __init__(self, schema: Schema, message_name: str = "") -> None:
        file = compiled(schema)
        self._message = message_at(file, (0,)) if not message_name else _named(file, message_name)
        self.type = _struct_type(self._message, ())

    def decoder(self, writer: Schema) -> "ProtobufDecoder":
        return ProtobufDecoder(self._message, compiled(writer))


def _named(file: FileDescriptor, name: str) -> Descriptor:
    try:
        found: Descriptor = file.pool.FindMessageTypeByName(name)
    except KeyError:
        raise SchemaUnusable(f"there is no message {name} in the schema: give its full name") from None
    return found


class ProtobufDecoder(Decoder):
    def __init__(self, message: Descriptor, writer: FileDescriptor) -> None:
        self._class = message_factory.GetMessageClass(message)
        self._message = message
        self._name = message.full_name
        self._writer = writer
        self._row = _row_maker(message)
        self._checked: dict[tuple[int, ...], str] = {}

    def row(self, data: bytes) -> Any:
        try:
            path, start = message_path(data)
        except Malformed as problem:
            raise Undecodable(f"{problem}") from None
        name = self._checked.get(path)
        if name is None:
            name = self._checked[path] = message_at(self._writer, path).full_name
        if name != self._name:
            raise Undecodable(f"it is a message {name}, not {self._name}")
        return self._row(self._class.FromString(data[start:]))

    def columns(self, type_: pa.DataType) -> "ColumnReader | None":
        try:
            return partial(read_column, program(self._message, self._writer, type_, _TYPES))
        except NotPlain:
            return None


def _struct_type(message: Descriptor, inside: tuple[str, ...]) -> pa.DataType:
    if message.full_name in inside:
        raise SchemaUnusable(f"Protobuf message {message.full_name} contains itself, which no column can")
    inside = (*inside, message.full_name)
    return pa.struct([pa.field(field.name, _field_type(field, inside)) for field in message.fields])


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_field_type(entry["key"], inside), _field_type(entry["value"], inside))
    single = _single_type(field, inside)
    return pa.list_(single) if field.is_repeated else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.message_type is None:
        return _TYPES[field.type]
    if field.message_type.full_name == _TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if field.message_type.full_name == _DURATION:
        return pa.duration("us")
    return _struct_type(field.message_type, inside)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _row_maker(message: Descriptor) -> Callable[[Any], dict[str, Any]]:
    plain = []
    others = []
    for field in message.fields:
        convert = _converter(field)
        if convert is None and not field.is_repeated and not field.has_presence:
            plain.append(field.name)
        else:
            others.append((field.name, _field_getter(field, convert)))

    def row(made: Any) -> dict[str, Any]:
        values = {name: getattr(made, name) for name in plain}
        for name, get in others:
            values[name] = get(made)
        return values

    return row


def _field_getter(field: FieldDescriptor, convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    name = field.name
    if _is_map(field):
        of_value = _converter(field.message_type.fields_by_name["value"]) or _itself
        return lambda made: [(key, of_value(value)) for key, value in getattr(made, name).items()]
    if field.is_repeated:
        of_item = convert or _itself
        return lambda made: [of_item(each) for each in getattr(made, name)]
    of = convert or _itself
    if field.has_presence:
        return lambda made: of(getattr(made, name)) if made.HasField(name) else None
    return lambda made: of(getattr(made, name))


def _itself(value: Any) -> Any:
    return value


def _converter(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    """From what Protobuf gives to what Arrow takes; None where that is the same."""
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        # A number that a newer writer knows has no name here.
        return lambda number: names.get(number, str(number))
    if field.message_type is None or _is_map(field):
        return None
    if field.message_type.full_name in (_TIMESTAMP, _DURATION):
        return lambda time: time.seconds * _SECOND_US + time.nanos // 1000
    return _row_maker(field.message_type)


class ProtobufEncoder:
    """Rows as the schema's first message, fields by their names."""

    def __init__(self, schema: Schema) -> None:
        message = message_at(compiled(schema), (0,))
        self._class = message_factory.GetMessageClass(message)
        self._fill = _filler(message)

    def encoded(self, rows: Iterable[Any]) -> list[bytes | None]:
        made: list[bytes | None] = []
        for row in rows:
            if row is None:
                made.append(None)
                continue
            message = self._class()
            try:
                self._fill(message, row)
                made.append(b"\0" + message.SerializeToString())
            except (TypeError, ValueError) as problem:
                raise SchemaUnusable(f"a row does not fit the Protobuf schema: {problem}") from problem
        return made


def _filler(message: Descriptor) -> Callable[[Any, Mapping[str, Any]], None]:
    setters = {field.name: _setter(field) for field in message.fields}

    def fill(made: Any, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            if value is None:
                continue
            setter = setters.get(name)
            if setter is None:
                raise ValueError(f"the schema has no field '{name}'")
            setter(made, value)

    return fill


def _setter(field: FieldDescriptor) -> Callable[[Any, Any], None]:
    name = field.name
    if _is_map(field):
        value_field = field.message_type.fields_by_name["value"]
        if value_field.message_type is None:
            return lambda made, pairs: getattr(made, name).update(pairs)
        fill_value = _message_filler(value_field)

        def set_map(made: Any, pairs: Mapping[Any, Any]) -> None:
            target = getattr(made, name)
            for key, value in pairs.items():
                target[key].SetInParent()
                fill_value(target[key], value or {})

        return set_map
    if field.message_type is None:
        if field.is_repeated:
            return lambda made, values: getattr(made, name).extend(values)
        return lambda made, value: setattr(made, name, value)
    fill = _message_filler(field)
    if not field.is_repeated:

        def set_message(made: Any, value: Any) -> None:
            target = getattr(made, name)
            target.SetInParent()
            fill(target, value)

        return set_message

    def add_messages(made: Any, values: Iterable[Any]) -> None:
        for value in values:
            if value is None:
                raise ValueError(f"an item of '{name}' is null, which Protobuf's lists cannot hold")
            fill(getattr(made, name).add(), value)

    return add_messages


def _message_filler(field: FieldDescriptor) -> Callable[[Any, Any], None]:
    kind = field.message_type.full_name
    if kind == _TIMESTAMP:
        return lambda made, time: made.FromDatetime(time)
    if kind == _DURATION:
        return lambda made, time: made.FromTimedelta(time)
    return _filler(field.message_type)
