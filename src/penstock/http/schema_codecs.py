"""One schema, compiled: JSON in, bytes out, and back. Pure: what a schema refers to is given along."""

import base64
import io
import json
from abc import abstractmethod
from typing import Any, Protocol

from penstock.http.formats import Format
from penstock.protocol.schema_framing import message_path


class CodecRefused(ValueError):
    """A schema that cannot be used, or a value that does not fit it."""


class Codec(Protocol):
    format: Format

    @abstractmethod
    def encode(self, text: bytes) -> bytes:
        """JSON to what follows the schema id. Raises CodecRefused."""

    @abstractmethod
    def decode(self, data: bytes) -> bytes:
        """What follows the schema id, as JSON. Raises CodecRefused."""


class _Avro:
    """Avro's own JSON encoding, as the REST proxy: a value of a union is under the name of its type."""

    format = Format.AVRO

    def __init__(self, parsed: Any, read: Any, write: Any, read_json: Any, write_json: Any) -> None:
        self._parsed = parsed
        self._read, self._write, self._read_json, self._write_json = read, write, read_json, write_json

    def encode(self, text: bytes) -> bytes:
        try:
            (record,) = self._read_json(io.StringIO(_one_line(text)), self._parsed)
            data = io.BytesIO()
            self._write(data, self._parsed, record, strict=True)
        except RecursionError:
            raise CodecRefused("it is nested too deeply") from None
        except Exception as problem:
            # fastavro has no exception of its own: it raises what Python did.
            raise CodecRefused(f"{problem}"[:300] or type(problem).__name__) from problem
        return data.getvalue()

    def decode(self, data: bytes) -> bytes:
        text = io.StringIO()
        try:
            record = self._read(io.BytesIO(data), self._parsed)
            self._write_json(text, self._parsed, [record])
        except Exception as problem:
            raise CodecRefused(f"{problem}"[:300] or type(problem).__name__) from problem
        return text.getvalue().encode()


def _one_line(text: bytes) -> str:
    """fastavro reads one value a line."""
    return json.dumps(json.loads(text), ensure_ascii=False)


def avro_codec(schema: str, rests_on: list[str]) -> Codec:
    import fastavro

    named: dict[str, Any] = {}
    try:
        for text in rests_on:
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema), named_schemas=named)
    except Exception as problem:
        raise CodecRefused(f"{problem}"[:300]) from problem
    return _Avro(
        parsed, fastavro.schemaless_reader, fastavro.schemaless_writer, fastavro.json_reader, fastavro.json_writer
    )


class _JsonSchema:
    format = Format.JSONSCHEMA

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def encode(self, text: bytes) -> bytes:
        self._check(text)
        return text

    def decode(self, data: bytes) -> bytes:
        self._check(data)
        return data

    def _check(self, text: bytes) -> None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise CodecRefused(f"not JSON: {problem}") from problem
        for error in self._validator.iter_errors(value):
            raise CodecRefused(f"{error.message} at {'/'.join(map(str, error.instance_path)) or 'the top'}"[:300])


def json_schema_codec(schema: str, rests_on: dict[str, str]) -> Codec:
    import jsonschema_rs

    def retrieve(uri: str) -> Any:
        """Only what the registry has. Files and other servers are nobody's business here."""
        name = uri.removeprefix("json-schema:///")
        for known in (uri, name, uri.rpartition("/")[2]):
            if known in rests_on:
                return json.loads(rests_on[known])
        raise ValueError(f"the reference {uri} is not among the schema's references")

    try:
        return _JsonSchema(jsonschema_rs.validator_for(json.loads(schema), retriever=retrieve))
    except Exception as problem:
        raise CodecRefused(f"{problem}"[:300]) from problem


class _Protobuf:
    """The first message of the file, unless a value says that it is another one."""

    format = Format.PROTOBUF

    def __init__(self, file: Any, classes: Any) -> None:
        self._file = file
        self._classes = classes

    def encode(self, text: bytes) -> bytes:
        from google.protobuf import json_format

        first = next(iter(self._file.message_types_by_name.values()))
        try:
            message = json_format.Parse(text, self._classes(first)())
        except json_format.ParseError as problem:
            raise CodecRefused(f"{problem}"[:300]) from problem
        # One byte of zero is short for the path to the first message.
        data: bytes = b"\x00" + message.SerializeToString()
        return data

    def decode(self, data: bytes) -> bytes:
        from google.protobuf import json_format
        from google.protobuf.message import DecodeError

        try:
            path, start = message_path(data)
            described = list(self._file.message_types_by_name.values())[path[0]]
            for index in path[1:]:
                described = described.nested_types[index]
            message = self._classes(described)()
            message.ParseFromString(data[start:])
            text: str = json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True)
        except (IndexError, DecodeError, ValueError) as problem:
            raise CodecRefused(f"{problem}"[:300]) from problem
        return text.encode()


def protobuf_codec(serialized: str, rests_on: list[tuple[str, str]]) -> Codec:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    try:
        for name, text in rests_on:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
            file.name = name
            _add_known(pool, file)
            pool.Add(file)
        main = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
        main.name = main.name or "schema.proto"
        _add_known(pool, main)
        pool.Add(main)
        described = pool.FindFileByName(main.name)
        if not described.message_types_by_name:
            raise CodecRefused("it has no message")
    except CodecRefused:
        raise
    except Exception as problem:
        raise CodecRefused(f"{problem}"[:300]) from problem
    return _Protobuf(described, message_factory.GetMessageClass)


def _add_known(pool: Any, file: Any) -> None:
    """Google's own types, which every schema may use without naming them as references."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    for name in file.dependency:
        if not name.startswith("google/protobuf/"):
            continue
        try:
            pool.FindFileByName(name)
            continue
        except KeyError:
            pass
        _import_known(name)
        known = descriptor_pb2.FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(name).CopyToProto(known)
        _add_known(pool, known)
        pool.Add(known)


def _import_known(name: str) -> None:
    import importlib

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if not module.replace(".", "").replace("_", "").isalnum():
        raise CodecRefused(f"{name} is not known")
    importlib.import_module(module)
