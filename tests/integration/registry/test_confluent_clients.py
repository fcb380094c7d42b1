"""Confluent's own Python client and its serializers for the three formats, through our registry and our broker."""

import base64
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.http.registry.formats import parse
from tests.e2e.node import Node
from tests.integration.registry.conftest import Server

AVRO = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"}]}'
JSON = '{"title":"User","type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}}}'


@pytest.fixture
def client(shared_server: Server) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": shared_server.url}) as client:
        yield client


@pytest.fixture
def other_client(shared_server: Server) -> Iterator[SchemaRegistryClient]:
    """It has to ask for what `client` remembers."""
    with SchemaRegistryClient({"url": shared_server.url}) as client:
        yield client


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:12]}"


def through_the_broker(node: Node, topic: str, value: bytes | None) -> bytes:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 3}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value() or b""
    finally:
        consumer.close()


def test_avro_goes_round(
    registry_node: Node, client: SchemaRegistryClient, other_client: SchemaRegistryClient, topic_name: str
) -> None:
    context = SerializationContext(topic_name, MessageField.VALUE)
    user = {"name": "Ada", "age": 36}
    data = AvroSerializer(client, AVRO)(user, context)
    assert data is not None
    assert data[0] == 0
    received = through_the_broker(registry_node, topic_name, data)
    assert AvroDeserializer(other_client)(received, context) == user
    assert client.get_latest_version(f"{topic_name}-value").schema.schema_str == AVRO


def test_json_goes_round(registry_node: Node, client: SchemaRegistryClient, topic_name: str) -> None:
    context = SerializationContext(topic_name, MessageField.VALUE)
    user = {"name": "Ada", "age": 36}
    data = JSONSerializer(JSON, client)(user, context)
    received = through_the_broker(registry_node, topic_name, data)
    assert JSONDeserializer(None, schema_registry_client=client)(received, context) == user
    assert client.get_latest_version(f"{topic_name}-value").schema.schema_type == "JSON"


PROTO_FILES = {
    "penstock_test/place.proto": 'syntax = "proto3"; package penstock_test; message Place { string city = 1; }',
    "penstock_test/user.proto": """
        syntax = "proto3";
        package penstock_test;
        import "google/protobuf/timestamp.proto";
        import "penstock_test/place.proto";
        message Ignored { int32 x = 1; }
        message User {
          string name = 1;
          optional int32 age = 2;
          google.protobuf.Timestamp born = 3;
          map<string, Place> places = 4;
          oneof contact { string mail = 5; string phone = 6; }
          enum Kind { NONE = 0; SOME = 1; }
          repeated Kind kinds = 7;
        }
    """,
}


@pytest.fixture(scope="module")
def user_class() -> Any:
    """What a compiler would have generated from the files."""
    pool = descriptor_pool.Default()
    for name in PROTO_FILES:
        resolved = {other: text for other, text in PROTO_FILES.items() if other < name}
        serialized = parse("PROTOBUF", PROTO_FILES[name], resolved, (), is_new=True).formatted("serialized")
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
        file.name = name
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("penstock_test.User"))


def test_protobuf_goes_round(
    registry_node: Node,
    client: SchemaRegistryClient,
    other_client: SchemaRegistryClient,
    topic_name: str,
    user_class: Any,
) -> None:
    context = SerializationContext(topic_name, MessageField.VALUE)
    user = user_class(name="Ada", age=0, mail="a@x", kinds=[1, 0])
    user.born.seconds = 7
    user.places["home"].city = "London"
    serializer = ProtobufSerializer(user_class, client, {"use.deprecated.format": False})
    received = through_the_broker(registry_node, topic_name, serializer(user, context))
    for reader in (client, other_client):
        deserializer = ProtobufDeserializer(user_class, {"use.deprecated.format": False}, reader)
        again = deserializer(received, context)
        assert again == user
        assert again.HasField("age")
    # The file that it imports was registered too, and is a reference.
    stored = other_client.get_latest_version(f"{topic_name}-value").schema
    assert stored.schema_type == "PROTOBUF"
    assert (stored.schema_str or "").startswith('syntax = "proto3";\npackage penstock_test;\n')
    assert [reference.name for reference in stored.references or []] == ["penstock_test/place.proto"]


def test_newer_writers_and_older_readers_understand_each_other(client: SchemaRegistryClient, topic_name: str) -> None:
    context = SerializationContext(topic_name, MessageField.VALUE)
    newer = AVRO.replace("]}", ',{"name":"mail","type":["null","string"],"default":null}]}')
    old = AvroSerializer(client, AVRO)({"name": "Ada", "age": 36}, context)
    new = AvroSerializer(client, newer)({"name": "Bob", "age": 1, "mail": "b@x"}, context)
    assert AvroDeserializer(client, newer)(old, context) == {"name": "Ada", "age": 36, "mail": None}
    assert AvroDeserializer(client, AVRO)(new, context) == {"name": "Bob", "age": 1}
    with pytest.raises(Exception, match="409"):
        AvroSerializer(client, AVRO.replace("]}", ',{"name":"x","type":"int"}]}'))(
            {"name": "", "age": 1, "x": 1}, context
        )


def test_the_client_can_do_all_that_it_offers(client: SchemaRegistryClient, subject: str) -> None:
    text = AVRO.replace("User", subject.replace("-", "_"))
    schema = Schema(text, "AVRO")
    schema_id = client.register_schema(subject, schema)
    assert client.get_schema(schema_id).schema_str == text
    registered = client.lookup_schema(subject, schema)
    assert (registered.schema_id, registered.version, registered.subject) == (schema_id, 1, subject)
    assert registered.guid is not None
    assert client.get_schema_by_guid(registered.guid).schema_str == text
    assert subject in client.get_subjects()
    assert client.get_subjects(subject_prefix=subject) == [subject]
    assert client.get_versions(subject) == [1]
    assert client.get_subjects_by_schema_id(schema_id, subject) == [subject]
    assert [(item.subject, item.version) for item in client.get_schema_versions(schema_id, subject)] == [(subject, 1)]
    assert client.get_version(subject, 1).schema.schema_str == text
    assert client.test_compatibility(subject, Schema('"int"', "AVRO")) is False
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    assert client.test_compatibility_all_versions(subject, Schema('"int"', "AVRO")) is True
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="major"))
    config = client.get_config(subject)
    assert (config.compatibility_level, config.compatibility_group) == (ConfigCompatibilityLevel.FULL, "major")
    client.delete_config(subject)
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode(subject, "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(subject)
    assert (refused.value.http_status_code, refused.value.error_code) == (422, 42205)
    assert client.delete_mode(subject) == "READONLY"
    assert "." in client.get_contexts()
    assert client.delete_version(subject, 1) == 1
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_latest_version(subject)
    assert (missing.value.http_status_code, missing.value.error_code) == (404, 40401)
    assert client.delete_subject(subject, permanent=True) == [1]


def test_references_are_found_by_the_serializers(client: SchemaRegistryClient, subject: str, topic_name: str) -> None:
    inner = '{"type":"record","name":"Address","namespace":"x","fields":[{"name":"street","type":"string"}]}'
    client.register_schema(subject, Schema(inner, "AVRO"))
    outer = '{"type":"record","name":"Person","namespace":"x","fields":[{"name":"home","type":"x.Address"}]}'
    schema = Schema(outer, "AVRO", [SchemaReference("x.Address", subject, 1)])
    context = SerializationContext(topic_name, MessageField.VALUE)
    person: dict[str, Any] = {"home": {"street": "Main"}}
    data = AvroSerializer(client, schema)(person, context)
    assert AvroDeserializer(client)(data, context) == person
    assert len(client.get_referenced_by(subject, 1)) == 1
