"""Values with schemas: JSON to bytes and back, and what does not fit is refused."""

import base64
import json

import pytest
from google.protobuf import descriptor_pb2

from penstock.http.schema_codecs import Codec, CodecRefused, avro_codec, json_schema_codec, protobuf_codec

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "data", "type": "bytes"},
        ],
    }
)


def round_trip(codec: Codec, value: object) -> object:
    return json.loads(codec.decode(codec.encode(json.dumps(value, indent=1).encode())))


def test_avro_uses_avros_own_json() -> None:
    value = {"id": 2**40, "note": {"string": "grüß"}, "data": "\u00ff\u0000"}
    assert round_trip(avro_codec(AVRO, []), value) == value


@pytest.mark.parametrize("value", ['{"id": "x"}', "{}", "[]", '{"id": 1, "note": null', "7", "[" * 100_000])
def test_avro_refuses_what_does_not_fit(value: str) -> None:
    with pytest.raises(CodecRefused):
        avro_codec(AVRO, []).encode(value.encode())


def test_avro_reads_no_bytes_that_are_not_its_own() -> None:
    with pytest.raises(CodecRefused):
        avro_codec(AVRO, []).decode(b"\xff" * 20)


def test_avro_schemas_rest_on_others() -> None:
    inner = json.dumps({"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]})
    outer = json.dumps({"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]})
    assert round_trip(avro_codec(outer, [inner]), {"inner": {"x": 1}}) == {"inner": {"x": 1}}
    with pytest.raises(CodecRefused):
        avro_codec(outer, [])


def test_json_schema_checks_and_keeps_the_text() -> None:
    codec = json_schema_codec('{"type": "object", "properties": {"a": {"type": "integer"}}}', {})
    assert codec.encode(b'{"a" : 1}') == b'{"a" : 1}'
    with pytest.raises(CodecRefused, match="at a"):
        codec.encode(b'{"a": "x"}')
    with pytest.raises(CodecRefused):
        codec.encode(b"{")


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://127.0.0.1:1/x.json", "https://example.com/x"])
def test_json_schemas_read_no_files_and_ask_no_servers(target: str) -> None:
    with pytest.raises(CodecRefused, match="not among the schema's references"):
        json_schema_codec(json.dumps({"$ref": target}), {})


def test_json_schemas_rest_on_what_is_registered() -> None:
    codec = json_schema_codec('{"$ref": "other.json"}', {"other.json": '{"type": "integer"}'})
    assert codec.encode(b"5") == b"5"
    with pytest.raises(CodecRefused):
        codec.encode(b'"x"')


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def order_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    order.field.add(name="order_id", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32, label=1)
    at = order.field.add(name="at", number=2, type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, label=1)
    at.type_name = ".google.protobuf.Timestamp"
    nested = order.nested_type.add(name="Line")
    nested.field.add(name="text", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING, label=1)
    return file


def test_protobuf_takes_the_first_message_and_googles_types() -> None:
    codec = protobuf_codec(serialized(order_file()), [])
    value = {"order_id": 7, "at": "2024-05-01T12:00:00Z"}
    assert round_trip(codec, value) == value
    assert codec.encode(json.dumps(value).encode())[0] == 0


def test_protobuf_reads_nested_messages_by_their_path() -> None:
    codec = protobuf_codec(serialized(order_file()), [])
    # Two steps: the first message, and the first one nested in it; then field 1.
    assert json.loads(codec.decode(b"\x04\x00\x00\x0a\x01x")) == {"text": "x"}


@pytest.mark.parametrize("data", [b"", b"\x04", b"\x04\x02\x00", b"\x01", b"\xff" * 9, b"\x00\x0a\xff"])
def test_protobuf_refuses_bytes_that_are_not_its_own(data: bytes) -> None:
    with pytest.raises(CodecRefused):
        protobuf_codec(serialized(order_file()), []).decode(data)


def test_protobuf_refuses_json_that_does_not_fit() -> None:
    with pytest.raises(CodecRefused):
        protobuf_codec(serialized(order_file()), []).encode(b'{"nope": 1}')
