"""Protobuf schemas: .proto files as text, or as the serialized descriptor in base64."""

import base64
import binascii
import importlib
from functools import cached_property, lru_cache

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from penstock.http.registry.formats import protobuf_descriptor, protobuf_reader, protobuf_writer
from penstock.http.registry.formats.protobuf_model import ProtoFile
from penstock.http.registry.formats.protobuf_types import Types
from penstock.http.registry.formats.schema import PROTOBUF, InvalidSchema, Reference, Resolved

# What every Protobuf compiler brings along, and the types that Confluent's and Google's clients import.
_GOOGLE = {
    "protobuf": "any api descriptor duration empty field_mask source_context struct timestamp type wrappers",
    "type": "calendar_period color date datetime dayofweek decimal expr fraction interval latlng localized_text money "
    "month phone_number postal_address quaternion timeofday",
}
_KNOWN_IMPORTS = {
    **{
        f"google/{folder}/{name}.proto": f"google.{folder}.{name}_pb2"
        for folder, names in _GOOGLE.items()
        for name in names.split()
    },
    "confluent/meta.proto": "confluent_kafka.schema_registry.confluent.meta_pb2",
    "confluent/type/decimal.proto": "confluent_kafka.schema_registry.confluent.type.decimal_pb2",
    "confluent/types/decimal.proto": "confluent_kafka.schema_registry.confluent.types.decimal_pb2",
}


class ProtobufSchema:
    schema_type = PROTOBUF

    def __init__(self, file: ProtoFile, dependencies: dict[str, ProtoFile], references: tuple[Reference, ...]) -> None:
        self.file = file
        self.canonical = protobuf_writer.canonical(file)
        self._dependencies = dependencies
        self.types = Types(file, dependencies, references)

    def normalized(self) -> str:
        return protobuf_writer.normalized(self.file, self.types)

    def formatted(self, name: str) -> str:
        return self._serialized if name == "serialized" else self.canonical

    def resolved_text(self) -> str:
        return self.canonical

    @cached_property
    def _serialized(self) -> str:
        descriptor = protobuf_descriptor.to_descriptor(self.file, self.types, "default.proto")
        return base64.b64encode(descriptor.SerializeToString(deterministic=True)).decode()

    def check(self) -> None:
        """Raises InvalidSchema for what no Protobuf compiler would take."""
        self.normalized()
        pool = descriptor_pool.DescriptorPool()
        try:
            for name, file in self._dependencies.items():
                types = Types(file, {key: value for key, value in self._dependencies.items() if key != name})
                pool.Add(protobuf_descriptor.to_descriptor(file, types, name))
            pool.AddSerializedFile(base64.b64decode(self._serialized))
            pool.FindFileByName("default.proto")
        except (TypeError, KeyError, AssertionError) as problem:
            raise InvalidSchema(f"{problem}".replace("Couldn't build proto file into descriptor pool: ", "")) from None


def parse(text: str, resolved: Resolved, references: tuple[Reference, ...], *, is_new: bool) -> ProtobufSchema:
    file = read_file(text)
    dependencies: dict[str, ProtoFile] = {}
    for name, referenced in resolved.items():
        dependency = read_file(referenced)
        _add_known(dependency, dependencies)
        dependencies[name] = dependency
    _add_known(file, dependencies)
    schema = ProtobufSchema(file, dependencies, references)
    if is_new:
        for name in (*file.imports, *file.public_imports):
            if name not in dependencies:
                raise InvalidSchema(f"the import '{name}' is not among the references; files are never read")
        schema.check()
    return schema


def read_file(text: str) -> ProtoFile:
    """Text first: a text of letters alone could be base64, but no descriptor comes of it."""
    try:
        return protobuf_reader.read(text)
    except InvalidSchema as problem:
        descriptor = _decoded(text)
        if descriptor is None:
            raise problem from None
        return protobuf_descriptor.from_descriptor(descriptor)


def _decoded(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _add_known(file: ProtoFile, dependencies: dict[str, ProtoFile]) -> None:
    for name in (*file.imports, *file.public_imports):
        if name not in dependencies and name in _KNOWN_IMPORTS:
            known = _known_file(name)
            if known is not None:
                _add_known(known, dependencies)
                dependencies[name] = known


@lru_cache
def _known_file(name: str) -> ProtoFile | None:
    try:
        module = importlib.import_module(_KNOWN_IMPORTS[name])
    except ImportError:
        return None
    return protobuf_descriptor.from_descriptor(
        descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    )
