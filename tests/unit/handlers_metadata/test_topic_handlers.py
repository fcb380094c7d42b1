import uuid
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.handlers import api_19_create_topics, api_20_delete_topics, api_37_create_partitions
from penstock.broker.handlers.api_75_describe_topic_partitions import API as DESCRIBE
from penstock.cluster.metadata.topics import NewTopic
from penstock.protocol.messages import Struct

CREATE, DELETE, MORE = api_19_create_topics.API, api_20_delete_topics.API, api_37_create_partitions.API


def new(name: str, partitions: int = 2, **fields: Any) -> Struct:
    return Struct(name=name, num_partitions=partitions, replication_factor=1, **fields)


def test_a_topic_is_made_in_every_version(broker: Any) -> None:
    for version in range(CREATE.version_min, CREATE.version_max + 1):
        configs = [Struct(name="retention.ms", value="1000")]
        (topic,) = broker.ask(CREATE, version, topics=[new(f"topic-{version}", configs=configs)], timeout=1000).topics
        assert (topic.error_code, topic.name) == (ErrorCode.none, f"topic-{version}")
        if version >= 5:
            entries = {entry.name: (entry.value, entry.config_source) for entry in topic.configs}
            assert entries["retention.ms"] == ("1000", 1)
            assert entries["cleanup.policy"] == ("delete", 5)
            assert (topic.num_partitions, topic.replication_factor) == (2, 1)
        if version >= 7:
            assert topic.topic_id == broker.image.topics[topic.name].id


def test_a_refused_topic_has_its_code_and_message_and_validating_makes_nothing(broker: Any) -> None:
    answer = broker.ask(CREATE, 7, topics=[new(".."), new("fine")], timeout=1000, validate_only=True)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes == {"..": ErrorCode.invalid_topic_exception, "fine": ErrorCode.none}
    assert broker.image.topics == {}


def test_replicas_can_be_assigned_by_hand(broker: Any) -> None:
    topic = Struct(
        name="orders",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[Struct(partition_index=0, broker_ids=[1]), Struct(partition_index=1, broker_ids=[1])],
    )
    (answer,) = broker.ask(CREATE, 7, topics=[topic], timeout=1000).topics
    assert (answer.error_code, answer.num_partitions) == (ErrorCode.none, 2)


def test_topics_are_deleted_by_name_in_every_version_and_by_id_from_version_6(broker: Any) -> None:
    for version in range(DELETE.version_min, DELETE.version_max + 1):
        broker._apply(broker.controller.create_topics([NewTopic("orders")]))
        fields = {"topics": [Struct(name="orders", topic_id=None)]} if version >= 6 else {"topic_names": ["orders"]}
        (answer,) = broker.ask(DELETE, version, timeout=1000, **fields).responses
        assert (answer.error_code, answer.name) == (ErrorCode.none, "orders")
    broker._apply(broker.controller.create_topics([NewTopic("orders")]))
    topic_id = broker.image.topics["orders"].id
    (answer,) = broker.ask(DELETE, 6, topics=[Struct(name=None, topic_id=topic_id)], timeout=1000).responses
    assert (answer.error_code, answer.name, answer.topic_id) == (ErrorCode.none, "orders", topic_id)
    (answer,) = broker.ask(DELETE, 6, topics=[Struct(name=None, topic_id=uuid.UUID(int=5))], timeout=1000).responses
    assert answer.error_code is ErrorCode.unknown_topic_id


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)])
def test_disabled_deletion_is_told_in_a_code_the_version_knows(make_broker: Any, version: int, code: ErrorCode) -> None:
    broker = make_broker(delete_topic_enable="false")
    (answer,) = broker.ask(DELETE, version, topic_names=["orders"], timeout=1000).responses
    assert answer.error_code is code


def test_partitions_are_added_in_every_version(broker: Any) -> None:
    broker._apply(broker.controller.create_topics([NewTopic("orders", 1)]))
    for version in range(MORE.version_min, MORE.version_max + 1):
        topics = [Struct(name="orders", count=2 + version, assignments=None)]
        (answer,) = broker.ask(MORE, version, topics=topics, timeout=1000, validate_only=False).results
        assert answer.error_code is ErrorCode.none
    assert len(broker.image.topics["orders"].partitions) == 5
    by_hand = [Struct(name="orders", count=6, assignments=[Struct(broker_ids=[9])])]
    (answer,) = broker.ask(MORE, 3, topics=by_hand, timeout=1000, validate_only=False).results
    assert answer.error_code is ErrorCode.invalid_replica_assignment


def test_a_disk_that_takes_nothing_refuses_every_change(broker: Any) -> None:
    broker.disk_is_full = True
    created = broker.ask(CREATE, 7, topics=[new("orders")], timeout=1000).topics
    deleted = broker.ask(DELETE, 6, topics=[Struct(name="orders", topic_id=None)], timeout=1000).responses
    more = broker.ask(
        MORE, 3, topics=[Struct(name="orders", count=3, assignments=None)], timeout=1000, validate_only=False
    ).results
    for (answer,) in (created, deleted, more):
        assert (answer.error_code, answer.error_message) == (ErrorCode.kafka_storage_error, "the disk is full")


def describe(broker: Any, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return broker.ask(
        DESCRIBE,
        0,
        topics=[Struct(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Struct(topic_name=cursor[0], partition_index=cursor[1]),
    )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 100])
def test_following_the_cursor_visits_every_partition_once(broker: Any, limit: int) -> None:
    """KIP-966."""
    counts = {"a": 3, "b": 1, "c": 2}
    broker._apply(broker.controller.create_topics([NewTopic(name, count) for name, count in counts.items()]))
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        answer = describe(broker, limit=limit, cursor=cursor)
        page = [(topic.name, partition.partition_index) for topic in answer.topics for partition in topic.partitions]
        assert len(page) <= limit
        seen += page
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert seen == [(name, index) for name, count in counts.items() for index in range(count)]


def test_the_brokers_own_limit_holds_too(make_broker: Any) -> None:
    broker = make_broker(max_request_partition_size_limit="2")
    broker._apply(broker.controller.create_topics([NewTopic("a", 3)]))
    answer = describe(broker, limit=2000)
    assert (len(answer.topics[0].partitions), answer.next_cursor.partition_index) == (2, 2)


def test_topics_that_cannot_be_described_say_why(broker: Any) -> None:
    broker._apply(broker.controller.create_topics([NewTopic("a")]))
    answer = describe(broker, "nope", "a", "..")
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("..", ErrorCode.invalid_topic_exception),
        ("a", ErrorCode.none),
        ("nope", ErrorCode.unknown_topic_or_partition),
    ]


@pytest.mark.parametrize("cursor", [("a", -1), ("elsewhere", 0)])
def test_a_cursor_that_points_nowhere_is_an_invalid_request(broker: Any, cursor: tuple[str, int]) -> None:
    broker._apply(broker.controller.create_topics([NewTopic("a")]))
    (topic,) = describe(broker, "a", cursor=cursor).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.invalid_request, ())


def test_a_topic_deleted_between_two_pages_is_passed_over(broker: Any) -> None:
    broker._apply(broker.controller.create_topics([NewTopic("a", 2), NewTopic("c", 2)]))
    answer = describe(broker, cursor=("b", 1))
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("c", 2)]
