"""Texts of schemas: one canonical form for each, and a reader that answers whatever it is given."""

import base64
import importlib

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from penstock.http.registry import json_text
from penstock.http.registry.formats import InvalidSchema, Reference, parse
from penstock.http.registry.formats.protobuf_descriptor import from_descriptor
from penstock.http.registry.formats.protobuf_writer import canonical


def canonical_of(schema_type: str, text: str) -> str:
    return parse(schema_type, text, {}, (), is_new=True).canonical


def normalized_of(schema_type: str, text: str) -> str:
    return parse(schema_type, text, {}, (), is_new=True).normalized()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"type": "string"}', '"string"'),
        ('{"type":"int","logicalType":"date"}', '{"type":"int","logicalType":"date"}'),
        (
            '{"fields":[{"type":"a.B.E","name":"x"}],"name":"a.B.R","type":"record"}'.replace(
                '"a.B.E"', '{"type":"enum","name":"E","symbols":["Z","A"],"doc":"d"}'
            ),
            '{"type":"record","name":"R","namespace":"a.B","fields":[{"name":"x","type":'
            '{"type":"enum","name":"E","doc":"d","symbols":["Z","A"]}}]}',
        ),
        (
            '{"type":"record","name":"R","aliases":["Q"],"p":1,"doc":"","fields":[{"order":"ignore","default":1.50,'
            '"doc":"x","name":"a","type":"double","q":2}]}',
            '{"type":"record","name":"R","doc":"","fields":[{"name":"a","type":"double","doc":"x","default":1.50,'
            '"order":"ignore","q":2}],"p":1,"aliases":["Q"]}',
        ),
        (
            '{"type":"record","name":"n.R","fields":[{"name":"a","type":["null","n.R"],"default":null}]}',
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":["null","R"],"default":null}]}',
        ),
    ],
)
def test_avro_is_written_as_its_java_library_writes_it(written: str, expected: str) -> None:
    assert canonical_of("AVRO", written) == expected
    assert canonical_of("AVRO", expected) == expected


def test_normalised_avro_has_properties_and_aliases_in_order() -> None:
    text = '{"type":"bytes","scale":2,"precision":4,"logicalType":"decimal","a":1}'
    assert normalized_of("AVRO", text) == '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2,"a":1}'
    text = '{"type":"fixed","name":"F","size":2,"aliases":["z","b"],"doc":""}'
    assert normalized_of("AVRO", text) == '{"type":"fixed","name":"F","size":2,"aliases":["b","z"]}'


def test_json_keeps_its_order_and_digits_and_loses_them_normalised() -> None:
    text = '{ "type": "number", "maximum": 1.500, "minimum" : 1E2, "title": "é\\n" }'
    assert canonical_of("JSON", text) == '{"type":"number","maximum":1.500,"minimum":1E2,"title":"é\\n"}'
    assert normalized_of("JSON", text) == '{"maximum":1.500,"minimum":1E2,"title":"é\\n","type":"number"}'


PROTO = """
// A comment.
syntax = 'proto3'; package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "com.shop"; /* another */
message Order {
  reserved 8 to 9, 20; reserved "old";
  repeated Item items = 3 [deprecated = true, json_name = "things"];
  string id = 1;
  map<string, Item> by_name = 4;
  optional int32 count = 7;
  google.protobuf.Timestamp at = 2;
  oneof kind { string a = 5; int64 b = 6; }
  enum State { option allow_alias = true; UNKNOWN = 0; NONE = 0; OPEN = 1; }
  State state = 10;
  message Item { string sku = 1; }
}
service Orders { rpc Get (Order.Item) returns (stream Order); }
"""

CANONICAL = """syntax = "proto3";
package shop.v1;

import "google/protobuf/timestamp.proto";

option java_package = "com.shop";

message Order {
  reserved 8 to 9, 20;
  reserved "old";

  repeated Item items = 3 [
    deprecated = true,
    json_name = "things"
  ];
  string id = 1;
  map<string, Item> by_name = 4;
  optional int32 count = 7;
  google.protobuf.Timestamp at = 2;
  State state = 10;

  oneof kind {
    string a = 5;
    int64 b = 6;
  }

  message Item {
    string sku = 1;
  }
  enum State {
    option allow_alias = true;
    UNKNOWN = 0;
    NONE = 0;
    OPEN = 1;
  }
}

service Orders {
  rpc Get (Order.Item) returns (stream Order);
}
"""


def test_proto_files_have_one_form() -> None:
    assert canonical_of("PROTOBUF", PROTO) == CANONICAL
    assert canonical_of("PROTOBUF", CANONICAL) == CANONICAL


def test_normalised_proto_files_have_full_names_and_fields_by_number() -> None:
    text = normalized_of("PROTOBUF", PROTO)
    assert "  repeated .shop.v1.Order.Item items = 3 [" in text
    assert "  map<string, .shop.v1.Order.Item> by_name = 4;" in text
    assert "  .google.protobuf.Timestamp at = 2;" in text
    assert text.index("string id = 1") < text.index("at = 2") < text.index("items = 3")
    assert "rpc Get (.shop.v1.Order.Item) returns (stream .shop.v1.Order);" in text
    assert normalized_of("PROTOBUF", text) == text


def test_a_proto_file_and_its_descriptor_are_the_same_schema() -> None:
    schema = parse("PROTOBUF", PROTO, {}, (), is_new=True)
    serialized = schema.formatted("serialized")
    descriptor = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(descriptor)
    message = pool.FindMessageTypeByName("shop.v1.Order")
    assert message.fields_by_name["count"].has_presence
    assert message.fields_by_name["by_name"].message_type.GetOptions().map_entry
    assert message.fields_by_name["items"].json_name == "things"
    again = parse("PROTOBUF", serialized, {}, (), is_new=True)
    assert again.normalized() == schema.normalized()


@pytest.mark.parametrize("name", ["descriptor", "struct", "any", "type", "api", "wrappers"])
def test_descriptors_of_protobuf_itself_survive_the_way_through_text(name: str) -> None:
    module = importlib.import_module(f"google.protobuf.{name}_pb2")
    file = from_descriptor(descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    text = canonical(file)
    schema = parse("PROTOBUF", text, {}, (), is_new=True)
    assert schema.canonical == text
    assert parse("PROTOBUF", schema.formatted("serialized"), {}, (), is_new=True).normalized() == schema.normalized()


def test_proto_files_use_the_types_of_their_references() -> None:
    text = 'syntax = "proto3"; package b; import "a.proto"; message B { a.A a = 1; }'
    resolved = {"a.proto": 'syntax = "proto3"; package a; message A { string x = 1; }'}
    schema = parse("PROTOBUF", text, resolved, (Reference("a.proto", "a", 1),), is_new=True)
    assert ".a.A a = 1" in schema.normalized()
    with pytest.raises(InvalidSchema, match="references"):
        parse("PROTOBUF", text, {}, (), is_new=True)


def test_a_wrong_proto_file_is_refused_with_the_line() -> None:
    with pytest.raises(InvalidSchema, match="line 3"):
        parse("PROTOBUF", 'syntax = "proto3";\nmessage A {\n  string = 1;\n}', {}, (), is_new=True)


def test_json_schemas_may_refer_to_their_references_and_nowhere_else() -> None:
    resolved = {"address.json": '{"$defs":{"street":{"type":"string"}},"type":"object"}'}
    for reference in ("address.json", "./address.json", "address.json#/$defs/street"):
        parse("JSON", f'{{"properties":{{"a":{{"$ref":"{reference}"}}}}}}', resolved, (), is_new=True)
    for reference in ("other.json", "http://example.org/x", "file:///etc/passwd", "address.json#/nowhere", "#/nowhere"):
        with pytest.raises(InvalidSchema):
            parse("JSON", f'{{"properties":{{"a":{{"$ref":"{reference}"}}}}}}', resolved, (), is_new=True)


def test_json_schemas_may_refer_by_id_and_anchor() -> None:
    text = (
        '{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://x.org/root.json",'
        '"$defs":{"a":{"$anchor":"here","type":"string"},"b":{"$id":"b.json","type":"integer"}},'
        '"properties":{"x":{"$ref":"#here"},"y":{"$ref":"b.json"},"z":{"$ref":"https://x.org/root.json#/$defs/a"}}}'
    )
    parse("JSON", text, {}, (), is_new=True)


@given(
    st.text(alphabet="{}[]()<>=;,.:\"'\\/*-+ \nabmesgi0123", max_size=60), st.sampled_from(["AVRO", "JSON", "PROTOBUF"])
)
def test_any_text_is_a_schema_or_refused(text: str, schema_type: str) -> None:
    try:
        schema = parse(schema_type, text, {}, (), is_new=True)
    except InvalidSchema:
        return
    assert parse(schema_type, schema.canonical, {}, (), is_new=True).canonical == schema.canonical


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_json_is_written_as_it_was_read(value: object) -> None:
    assert json_text.read(json_text.write(value)) == value


keywords = st.sampled_from(
    ["type", "properties", "items", "enum", "$ref", "allOf", "not", "required", "name", "fields", "symbols", "default"]
)
schema_like = st.recursive(
    st.sampled_from(["string", "record", "array", "#", "int", 1, None, True, "R"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=12,
)


@given(schema_like, st.sampled_from(["AVRO", "JSON"]))
def test_anything_like_a_schema_is_one_or_refused(value: object, schema_type: str) -> None:
    try:
        schema = parse(schema_type, json_text.write(value), {}, (), is_new=True)
    except InvalidSchema:
        return
    assert parse(schema_type, schema.normalized(), {}, (), is_new=True).normalized() == schema.normalized()
