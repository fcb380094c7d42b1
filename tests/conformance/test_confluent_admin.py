"""confluent-kafka's AdminClient: topics, settings, records, offsets, the cluster."""

from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.conformance.confluent import SECONDS_MAX, create, make_consumer, make_producer, send_all
from tests.e2e.node import Node


@pytest.fixture
def admin(shared_broker: Node) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_broker.bootstrap, "log_level": 0})


def result_of(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(SECONDS_MAX)


def error_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as failed:
        result_of(futures)
    code: int = failed.value.args[0].code()
    return code


def topic_config(admin: AdminClient, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described: dict[str, Any] = result_of(admin.describe_configs([resource]))
    return described


def test_a_topic_is_created_described_and_deleted(admin: AdminClient, topic_name: str) -> None:
    result_of(admin.create_topics([NewTopic(topic_name, 3, 1, config={"retention.ms": "60000"})]))
    described = result_of(admin.describe_topics(TopicCollection([topic_name])))
    assert described.name == topic_name
    assert not described.is_internal
    assert [(one.id, one.leader.id, [node.id for node in one.isr]) for one in described.partitions] == [
        (0, 1, [1]), (1, 1, [1]), (2, 1, [1]),
    ]  # fmt: skip
    result_of(admin.delete_topics([topic_name]))
    assert topic_name not in admin.list_topics(timeout=30).topics
    assert error_of(admin.delete_topics([topic_name])) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("partitions", "replicas", "configs", "code"),
    [
        (0, 1, {}, KafkaError.INVALID_PARTITIONS),
        (1, 2, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        (1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        (1, 1, {"no.such.thing": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    admin: AdminClient, topic_name: str, partitions: int, replicas: int, configs: dict[str, str], code: int
) -> None:
    topic = NewTopic(topic_name, partitions, replicas, config=configs)
    assert error_of(admin.create_topics([topic])) == code


def test_a_topic_cannot_be_created_twice(shared_broker: Node, admin: AdminClient, topic_name: str) -> None:
    create(shared_broker, topic_name)
    again = admin.create_topics([NewTopic(topic_name, 1, 1)])
    assert error_of(again) == KafkaError.TOPIC_ALREADY_EXISTS


def test_validating_creates_nothing(admin: AdminClient, topic_name: str) -> None:
    result_of(admin.create_topics([NewTopic(topic_name, 1, 1)], validate_only=True))
    assert topic_name not in admin.list_topics(timeout=30).topics


def test_settings_are_set_appended_and_deleted_incrementally(
    shared_broker: Node, admin: AdminClient, topic_name: str
) -> None:
    create(shared_broker, topic_name, configs={"cleanup.policy": "delete"})

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic_name, incremental_configs=[entry])
        result_of(admin.incremental_alter_configs([resource]))

    alter("segment.ms", "1234", AlterConfigOpType.SET)
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    described = topic_config(admin, topic_name)
    assert described["segment.ms"].value == "1234"
    assert described["segment.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert set(described["cleanup.policy"].value.split(",")) == {"delete", "compact"}
    alter("segment.ms", None, AlterConfigOpType.DELETE)
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    described = topic_config(admin, topic_name)
    assert described["segment.ms"].value == "604800000"
    assert described["segment.ms"].is_default
    assert described["cleanup.policy"].value == "compact"


def test_alter_configs_replaces_all_settings(shared_broker: Node, admin: AdminClient, topic_name: str) -> None:
    create(shared_broker, topic_name, configs={"segment.ms": "1234"})
    resource = ConfigResource(ResourceType.TOPIC, topic_name, set_config={"retention.ms": "60000"})
    with pytest.warns(DeprecationWarning, match="incremental"):
        result_of(admin.alter_configs([resource]))
    described = topic_config(admin, topic_name)
    assert (described["retention.ms"].value, described["segment.ms"].value) == ("60000", "604800000")


def test_the_settings_of_the_broker_are_described(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    described = result_of(admin.describe_configs([resource]))
    assert described["message.max.bytes"].value == "1048588"
    assert described["node.id"].is_read_only


def test_partitions_are_added_and_never_taken_away(shared_broker: Node, admin: AdminClient, topic_name: str) -> None:
    create(shared_broker, topic_name)
    result_of(admin.create_partitions([NewPartitions(topic_name, 4)]))
    assert len(admin.list_topics(topic_name, timeout=30).topics[topic_name].partitions) == 4
    assert error_of(admin.create_partitions([NewPartitions(topic_name, 2)])) == KafkaError.INVALID_PARTITIONS


def test_records_are_deleted_up_to_an_offset(shared_broker: Node, admin: AdminClient, topic_name: str) -> None:
    create(shared_broker, topic_name)
    send_all(make_producer(shared_broker), topic_name, [b"v"] * 10)
    assert result_of(admin.delete_records([TopicPartition(topic_name, 0, 4)])).low_watermark == 4
    consumer = make_consumer(shared_broker)
    assert consumer.get_watermark_offsets(TopicPartition(topic_name, 0), timeout=30) == (4, 10)
    consumer.close()
    assert error_of(admin.delete_records([TopicPartition(topic_name, 0, 11)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_list_offsets_knows_earliest_latest_timestamp_and_the_maximum(
    shared_broker: Node, admin: AdminClient, topic_name: str
) -> None:
    create(shared_broker, topic_name)
    producer = make_producer(shared_broker)
    for timestamp in (1000, 3000, 2000):
        producer.produce(topic_name, b"v", timestamp=timestamp)
        assert producer.flush(30) == 0
    partition = TopicPartition(topic_name, 0)
    specs: Any = OffsetSpec

    def offset(spec: Any, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        found: int = result_of(admin.list_offsets({partition: spec}, isolation_level=level)).offset
        return found

    assert offset(specs.earliest()) == 0
    assert offset(specs.latest()) == 3
    assert offset(specs.latest(), IsolationLevel.READ_COMMITTED) == 3
    assert offset(specs.max_timestamp()) == 1
    assert offset(specs.for_timestamp(1500)) == 1
    assert offset(specs.for_timestamp(9000)) == -1


def test_the_cluster_describes_itself(shared_broker: Node, admin: AdminClient) -> None:
    described = admin.describe_cluster(include_authorized_operations=True).result(SECONDS_MAX)
    assert [(node.id, node.host, node.port) for node in described.nodes] == [(1, "127.0.0.1", shared_broker.port)]
    assert described.controller.id == 1
    assert described.cluster_id
    assert described.authorized_operations
