"""Values through the registry: what the REST API writes, Confluent's own deserializers read."""

import json
import time
from typing import Any

import httpx
import pytest

from penstock.testing.in_process import BrokerInProcess

pytest.importorskip("penstock.http.registry")

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
JSON_SCHEMA = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
PROTOBUF = 'syntax = "proto3";\nmessage Order { int64 id = 1; }'
SCHEMAS = {"avro": AVRO, "jsonschema": JSON_SCHEMA, "protobuf": PROTOBUF}


@pytest.fixture(autouse=True)
def registry(http: httpx.Client) -> None:
    """It answers a moment after the server does."""
    deadline_s = time.monotonic() + 30
    while http.get("/subjects").status_code != 200:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def post(http: httpx.Client, topic: str, format: str, **body: Any) -> httpx.Response:
    headers = {"content-type": f"application/json; value={format}"}
    return http.post(f"/topics/{topic}/messages", content=json.dumps(body), headers=headers)


def poll(http: httpx.Client, group: str, topic: str, format: str) -> list[dict[str, Any]]:
    http.post(f"/consumers/{group}/subscribe", json={"topics": [topic]}).raise_for_status()
    headers = {"accept": f"application/json; value={format}"}
    messages: list[dict[str, Any]] = http.get(f"/consumers/{group}/poll?timeout_ms=8000", headers=headers).json()[
        "messages"
    ]
    http.delete(f"/consumers/{group}")
    return messages


@pytest.mark.parametrize("format", list(SCHEMAS))
def test_a_value_goes_in_and_comes_out_by_its_schema(http: httpx.Client, topic: str, group: str, format: str) -> None:
    first = post(http, topic, format, value={"id": 7}, value_schema=SCHEMAS[format])
    assert first.status_code == 200, first.text
    # The newest schema of the subject, from now on.
    assert post(http, topic, format, value={"id": 8}).status_code == 200
    refused = post(http, topic, format, value={"id": "seven"})
    assert (refused.status_code, refused.json()["error_code"]) == (422, 42201)
    values = [one["value"] for one in poll(http, group, topic, format)]
    assert [int(one["id"]) for one in values] == [7, 8]
    shown = http.get(f"/api/topics/{topic}/messages", params={"filter": "int(value.id) == 8"}).json()["messages"]
    assert [(one["offset"], one["value"]["encoding"]) for one in shown] == [(1, format)]


def test_confluents_deserializer_reads_what_was_posted(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    assert post(http, topic, "avro", value={"id": 5}, value_schema=AVRO).status_code == 200
    consumer = Consumer({"bootstrap.servers": served.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, timeout=10)
    consumer.close()
    with SchemaRegistryClient({"url": served.schema_registry_url}) as client:
        read = AvroDeserializer(client)
        assert read(message.value(), SerializationContext(topic, MessageField.VALUE)) == {"id": 5}


def test_the_proxy_registers_schemas_and_tells_their_ids(http: httpx.Client, topic: str) -> None:
    body = {"value_schema": AVRO, "records": [{"value": {"id": 1}}]}
    headers = {"content-type": "application/vnd.kafka.avro.v2+json"}
    answer = http.post(f"/topics/{topic}", content=json.dumps(body), headers=headers).json()
    assert answer["offsets"][0]["offset"] == 0
    by_id = {"value_schema_id": answer["value_schema_id"], "records": [{"value": {"id": 2}}]}
    assert http.post(f"/topics/{topic}", content=json.dumps(by_id), headers=headers).json()["offsets"][0]["offset"] == 1


def test_what_has_no_schema_says_so(http: httpx.Client, topic: str, group: str) -> None:
    assert post(http, topic, "avro", value={"id": 1}).status_code == 404
    assert post(http, topic, "avro", value={"id": 1}, value_schema_id=999_999).status_code == 404
    assert post(http, topic, "avro", value={"id": 1}, value_schema="{").status_code == 422
    http.post(f"/topics/{topic}/messages", json={"value": "aGVsbG8gdGhlcmU="}).raise_for_status()
    (message,) = poll(http, group, topic, "avro")
    assert message["value_base64"] == "aGVsbG8gdGhlcmU="
    assert message["problem"] == "the value is without a schema id"
