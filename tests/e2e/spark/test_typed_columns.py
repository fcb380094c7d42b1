"""Values by the schema registry: Spark reads in columns what Confluent's serializers write, and the other way round."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.testing.in_process import BrokerInProcess
from tests.e2e.node import wait_until
from tests.e2e.spark.conftest import TEST_SECONDS_MAX, run_to_end

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_SECONDS_MAX),
]

AVRO_OLD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "region", "type": "string"},
        {"name": "gone", "type": ["null", "string"], "default": None},
    ],
}
# An id that outgrew its type, a field less, and a field more with its default.
AVRO_NEW = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "region", "type": "string"},
        {"name": "amount", "type": "double", "default": 0.5},
    ],
}
JSON_OLD = {
    "type": "object",
    "title": "Order",
    "properties": {"id": {"type": "integer"}, "region": {"type": "string"}},
    "additionalProperties": False,
}
JSON_NEW = {**JSON_OLD, "properties": {**JSON_OLD["properties"], "amount": {"type": "number"}}}  # type: ignore[dict-item]


@pytest.fixture(scope="module")
def served() -> Iterator[BrokerInProcess]:
    with BrokerInProcess({"transaction.two.phase.commit.enable": "true"}) as broker:
        with SchemaRegistryClient({"url": broker.schema_registry_url}) as client:

            def answers() -> bool:
                try:
                    return client.get_subjects() is not None
                except Exception:
                    return False

            wait_until(answers, "the registry answers")
        yield broker


@pytest.fixture
def registry(served: BrokerInProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": served.schema_registry_url}) as client:
        yield client


def options(served: BrokerInProcess, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": served.bootstrap_servers,
        "schema": "registry",
        "schema.registry.url": served.schema_registry_url,
        **more,
    }


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def produce(served: BrokerInProcess, topic: str, values: list[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": served.bootstrap_servers})
    for number, value in enumerate(values):
        producer.produce(topic, key=f"k{number}", value=value, headers=[("n", str(number).encode())])
    assert producer.flush(30) == 0


def consume(served: BrokerInProcess, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": served.bootstrap_servers, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, timeout=30)
    consumer.close()
    assert len(found) == count
    return found


def typed(spark: SparkSession, served: BrokerInProcess, topic: str, **more: str) -> DataFrame:
    return spark.read.format("penstock").options(**options(served, subscribe=topic, **more)).load()


def rows(frame: DataFrame) -> list[Any]:
    return [
        None if row.value is None else row.value.asDict(recursive=True) for row in frame.orderBy("offset").collect()
    ]


def messages(*fields: tuple[str, int]) -> Any:
    """A message Order with these fields, as protoc would make its class."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, type_) in enumerate(fields, 1):
        order.field.add(name=name, number=number, type=type_, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


INT64, DOUBLE, STRING = 3, 1, 9


def test_avro_of_older_and_newer_writers_is_read_by_the_newest_schema(
    spark: SparkSession, served: BrokerInProcess, registry: SchemaRegistryClient, topic_name: str
) -> None:
    old = AvroSerializer(registry, json.dumps(AVRO_OLD))
    new = AvroSerializer(registry, json.dumps(AVRO_NEW))
    values = [
        old({"id": 1, "region": "eu", "gone": "x"}, context(topic_name)),
        new({"id": 2**40, "region": "us", "amount": 9.5}, context(topic_name)),
        None,
        old({"id": 3, "region": "ü", "gone": None}, context(topic_name)),
    ]
    produce(served, topic_name, values)
    frame = typed(spark, served, topic_name)
    assert dict(frame.dtypes)["value"] == "struct<id:bigint,region:string,amount:double>"
    assert rows(frame) == [
        {"id": 1, "region": "eu", "amount": 0.5},
        {"id": 2**40, "region": "us", "amount": 9.5},
        None,
        {"id": 3, "region": "ü", "amount": 0.5},
    ]
    before = typed(spark, served, topic_name, schemaVersion="1", onDecodeError="null")
    assert dict(before.dtypes)["value"] == "struct<id:int,region:string,gone:string>"
    # A long does not go back into an int.
    assert [row and row["gone"] for row in rows(before)] == ["x", None, None, None]
    chosen = (
        spark.read.format("penstock").options(**options(served, subscribe=topic_name)).schema("value STRUCT<id: LONG>")
    )
    assert [row.value and row.value.id for row in chosen.load().collect()] == [1, 2**40, None, 3]


def test_protobuf_is_read_by_field_numbers_and_message_names(
    spark: SparkSession, served: BrokerInProcess, registry: SchemaRegistryClient, topic_name: str
) -> None:
    old = messages(("id", INT64), ("region", STRING))
    new = messages(("id", INT64), ("region", STRING), ("amount", DOUBLE))
    values = [
        ProtobufSerializer(old, registry)(old(id=1, region="eu"), context(topic_name)),
        ProtobufSerializer(new, registry)(new(id=2, region="us", amount=9.5), context(topic_name)),
    ]
    produce(served, topic_name, values)
    frame = typed(spark, served, topic_name)
    assert rows(frame) == [{"id": 1, "region": "eu", "amount": 0.0}, {"id": 2, "region": "us", "amount": 9.5}]


def test_json_is_read_by_the_newest_schema(
    spark: SparkSession, served: BrokerInProcess, registry: SchemaRegistryClient, topic_name: str
) -> None:
    old, new = (JSONSerializer(json.dumps(each), registry) for each in (JSON_OLD, JSON_NEW))
    values = [
        old({"id": 1, "region": "eu"}, context(topic_name)),
        new({"id": 2, "region": "us", "amount": 3}, context(topic_name)),
    ]
    produce(served, topic_name, values)
    assert rows(typed(spark, served, topic_name)) == [
        {"id": 1, "region": "eu", "amount": None},
        {"id": 2, "region": "us", "amount": 3.0},
    ]


def test_what_cannot_be_read_fails_or_is_null_or_goes_to_the_dead_letters(
    spark: SparkSession, served: BrokerInProcess, registry: SchemaRegistryClient, topic_name: str
) -> None:
    good = AvroSerializer(registry, json.dumps(AVRO_NEW))({"id": 1, "region": "eu", "amount": 1.0}, context(topic_name))
    unknown_schema = b"\0\0\x7f\xff\xff" + good[5:]
    cut_off = good[:7]
    produce(served, topic_name, [good, b"plain", good, unknown_schema, cut_off])
    with pytest.raises(PySparkException, match=r"offset 1 of .* cannot be read: it has no schema id"):
        typed(spark, served, topic_name).collect()
    found = typed(spark, served, topic_name, onDecodeError="null")
    assert [row and row["id"] for row in rows(found)] == [1, None, 1, None, None]
    letters = f"{topic_name}-dead"
    kept = typed(spark, served, topic_name, onDecodeError="dead-letter", deadLetterTopic=letters).select("value")
    assert [row.value.id for row in kept.collect()] == [1, 1]
    stored = consume(served, letters, 3)
    assert sorted(each.value() for each in stored) == sorted([b"plain", unknown_schema, cut_off])
    by_key = {each.key(): dict(each.headers()) for each in stored}
    plain = by_key[b"k1"]
    assert plain["n"] == b"1"
    assert plain["__connect.errors.topic"].decode() == topic_name
    assert plain["__connect.errors.offset"] == b"1"
    assert b"no schema id" in plain["__connect.errors.exception.message"]
    assert b"8388607" in by_key[b"k3"]["__connect.errors.exception.message"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"schema": "avro"}, "option schema is 'registry'"),
        ({"schema.registry.url": ""}, "needs the option schema.registry.url"),
        ({"onDecodeError": "dead-letter"}, "deadLetterTopic"),
        ({"onDecodeError": "skip"}, "onDecodeError is fail, null or dead-letter"),
        ({"subscribe": "a,b"}, "needs one topic"),
        ({"subjectNameStrategy": "RecordNameStrategy"}, "needs the option recordName"),
        ({}, "the schema of subject 'no-such-topic-value'"),
    ],
)
def test_mistakes_are_told_in_words(
    spark: SparkSession, served: BrokerInProcess, more: dict[str, str], said: str
) -> None:
    given = {**options(served, subscribe="no-such-topic"), **more}
    with pytest.raises(PySparkException, match=said):
        spark.read.format("penstock").options(**given).load()


EVERYTHING = (
    "id LONG, name STRING, small INT, ratio DOUBLE, flag BOOLEAN, data BINARY, at TIMESTAMP, "
    "tags ARRAY<STRING>, attributes MAP<STRING, LONG>, address STRUCT<city: STRING, zip: INT>"
)
MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
FULL = (7, "ü", 3, 0.25, True, b"\0\xff", MOMENT, ["a", "b"], {"x": 1}, ("Ulm", 89073))
EMPTY = (8, None, None, None, None, None, None, None, None, None)


def write(frame: DataFrame, served: BrokerInProcess, topic: str, **more: str) -> None:
    # One task keeps the order.
    rows_of = frame.coalesce(1).selectExpr("CAST(value.id AS STRING) AS key", "value")
    writer = rows_of.write.format("penstock").mode("append")
    writer.options(**options(served, topic=topic, **more)).save()


def struct_schema(fields: str) -> str:
    """`a LONG, b STRING` as fields of a struct."""
    depth = 0
    parts: list[str] = [""]
    for character in fields:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return "value STRUCT<" + ", ".join(part.strip().replace(" ", ": ", 1) for part in parts) + ">"


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json"])
def test_rows_come_back_as_they_were_written(
    spark: SparkSession, served: BrokerInProcess, topic_name: str, format_: str
) -> None:
    frame = spark.createDataFrame([(FULL,), (EMPTY,)], struct_schema(EVERYTHING))
    write(frame, served, topic_name, valueFormat=format_)
    full, empty = (row.asDict(recursive=True) for row in frame.select("value.*").collect())
    if format_ == "protobuf":
        # Protobuf's lists and maps are never absent.
        empty |= {"tags": [], "attributes": {}}
    if format_ == "json":
        # JSON has texts for bytes and times.
        full |= {"data": "AP8=", "at": "2024-02-29T12:30:15.123456Z"}
    assert rows(typed(spark, served, topic_name)) == [full, empty]


def test_confluents_deserializers_read_what_spark_wrote(
    spark: SparkSession, served: BrokerInProcess, registry: SchemaRegistryClient, topic_name: str
) -> None:
    frame = spark.createDataFrame(
        [((1, "eu", Decimal("12.50"), date(2024, 2, 29)),), ((2, None, None, None),)],
        "value STRUCT<id: LONG, region: STRING, price: DECIMAL(9, 2), day: DATE>",
    )
    write(frame, served, topic_name, recordName="shop.Order")
    read = AvroDeserializer(registry)
    found = [read(each.value(), context(topic_name)) for each in consume(served, topic_name, 2)]
    assert found == [
        {"id": 1, "region": "eu", "price": Decimal("12.50"), "day": date(2024, 2, 29)},
        {"id": 2, "region": None, "price": None, "day": None},
    ]
    assert json.loads(registry.get_latest_version(f"{topic_name}-value").schema.schema_str or "")["name"] == "Order"

    small = frame.selectExpr("struct(value.id, value.region) AS value")
    write(small, served, f"{topic_name}-json", valueFormat="json")
    from_json: Callable[..., Any] = JSONDeserializer(None, schema_registry_client=registry)
    assert [
        from_json(each.value(), context(f"{topic_name}-json")) for each in consume(served, f"{topic_name}-json", 2)
    ] == [
        {"id": 1, "region": "eu"},
        {"id": 2, "region": None},
    ]

    write(small, served, f"{topic_name}-proto", valueFormat="protobuf", recordName="shop.Order")
    order = messages(("id", INT64), ("region", STRING))
    from_protobuf = ProtobufDeserializer(order, {}, registry)
    made = [
        from_protobuf(each.value(), context(f"{topic_name}-proto"))
        for each in consume(served, f"{topic_name}-proto", 2)
    ]
    assert [(each.id, each.region) for each in made] == [(1, "eu"), (2, "")]


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json"])
def test_columns_come_and_go_under_the_registrys_rules(
    spark: SparkSession, served: BrokerInProcess, registry: SchemaRegistryClient, topic_name: str, format_: str
) -> None:
    def one(fields: str, *values: Any) -> DataFrame:
        return spark.createDataFrame([(values,)], struct_schema(fields))

    write(one("id LONG, region STRING", 1, "eu"), served, topic_name, valueFormat=format_)
    # In another order, so Protobuf's numbers must be those from before.
    write(one("amount DOUBLE, region STRING, id LONG", 2.5, "us", 2), served, topic_name, valueFormat=format_)
    assert len(registry.get_versions(f"{topic_name}-value")) == 2
    found = rows(typed(spark, served, topic_name))
    assert [(each["id"], each["region"], each["amount"]) for each in found] == [(1, "eu", None), (2, "us", 2.5)]
    with pytest.raises(PySparkException, match="the schema of subject"):
        write(one("id LONG, region BINARY, amount STRING", 3, b"x", "y"), served, topic_name, valueFormat=format_)


def test_the_subjects_own_schema_is_used_where_nothing_is_to_be_registered(
    spark: SparkSession, served: BrokerInProcess, registry: SchemaRegistryClient, topic_name: str
) -> None:
    registry.register_schema("shop.Order", Schema(json.dumps(AVRO_NEW), "AVRO"))
    frame = spark.createDataFrame([((5, "eu", 1.5),)], "value STRUCT<id: LONG, region: STRING, amount: DOUBLE>")
    more = {"subjectNameStrategy": "RecordNameStrategy", "recordName": "shop.Order"}
    write(frame, served, topic_name, autoRegisterSchemas="false", **more)
    assert len(registry.get_versions("shop.Order")) == 1
    assert rows(typed(spark, served, topic_name, **more)) == [{"id": 5, "region": "eu", "amount": 1.5}]
    short = frame.selectExpr("struct(value.id) AS value")
    with pytest.raises(PySparkException, match="does not fit the Avro schema"):
        write(short, served, topic_name, autoRegisterSchemas="false", **more)


def test_a_typed_stream_is_written_exactly_once(
    spark: SparkSession, served: BrokerInProcess, registry: SchemaRegistryClient, topic_name: str, tmp_path: Path
) -> None:
    """And goes on with the schema it was planned with when a newer one is registered."""
    old = AvroSerializer(registry, json.dumps(AVRO_OLD))
    produce(served, topic_name, [old({"id": n, "region": "eu", "gone": None}, context(topic_name)) for n in range(40)])
    copy = f"{topic_name}-copy"

    def run() -> None:
        source = spark.readStream.format("penstock").options(
            **options(served, subscribe=topic_name, startingOffsets="earliest", maxOffsetsPerTrigger="15")
        )
        writer = source.load().selectExpr("key", "struct(value.id AS id, value.region AS region) AS value").writeStream
        writer = writer.format("penstock").options(**options(served, topic=copy, exactlyOnce="true", sinkId=copy))
        run_to_end(writer.option("checkpointLocation", str(tmp_path)))

    run()
    new = AvroSerializer(registry, json.dumps(AVRO_NEW))
    produce(served, topic_name, [new({"id": 40, "region": "us", "amount": 1.0}, context(topic_name))])
    run()
    frame = typed(spark, served, copy, **{"kafka.isolation.level": "read_committed"})
    assert sorted(each["id"] for each in rows(frame)) == list(range(41))
