import uuid
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.handlers.api_03_metadata import API
from penstock.cluster.metadata.records import FenceBrokerRecord
from penstock.cluster.metadata.topics import NewTopic
from penstock.protocol.messages import Struct

EVERY_VERSION = range(API.version_min, API.version_max + 1)


def asked(*names: str | uuid.UUID) -> list[Struct]:
    return [
        Struct(name=name, topic_id=None) if isinstance(name, str) else Struct(name=None, topic_id=name)
        for name in names
    ]


def create(broker: Any, *names: str) -> None:
    broker._apply(broker.controller.create_topics([NewTopic(name, 2) for name in names]))


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_topic_is_described_in_every_version(broker: Any, version: int) -> None:
    create(broker, "orders", "bills")
    answer = broker.ask(API, version, topics=asked("orders"))
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(1, "here", 9092)]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.none, "orders")
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (0, 1, (1,), (1,)),
        (1, 1, (1,), (1,)),
    ]
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert answer.cluster_id == "a-cluster"
    if version >= 10:
        assert topic.topic_id == broker.image.topics["orders"].id


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_all_topics_are_asked_for_with_null_or_in_version_0_with_nothing(broker: Any, version: int) -> None:
    create(broker, "orders", "bills")
    answer = broker.ask(API, version, topics=[] if version == 0 else None)
    assert {topic.name for topic in answer.topics} == {"orders", "bills"}
    if version > 0:
        assert broker.ask(API, version, topics=[]).topics == ()


def test_topics_are_found_by_id_from_version_12(broker: Any) -> None:
    create(broker, "orders")
    topic_id = broker.image.topics["orders"].id
    found, missing = broker.ask(API, 12, topics=asked(topic_id, uuid.UUID(int=99))).topics
    assert (found.error_code, found.name) == (ErrorCode.none, "orders")
    assert (missing.error_code, missing.name, missing.topic_id) == (
        ErrorCode.unknown_topic_id,
        None,
        uuid.UUID(int=99),
    )
    (too_early,) = broker.ask(API, 11, topics=asked(topic_id)).topics
    assert (too_early.error_code, too_early.name) == (ErrorCode.invalid_request, "")


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_missing_topic_is_made_and_answered_at_once_when_both_sides_allow_it(broker: Any, version: int) -> None:
    (topic,) = broker.ask(API, version, topics=asked("new"), allow_auto_topic_creation=True).topics
    assert topic.error_code is ErrorCode.none
    assert [partition.leader_id for partition in topic.partitions] == [1]


def test_a_missing_topic_is_not_made_against_the_will_of_client_or_broker(broker: Any, make_broker: Any) -> None:
    (topic,) = broker.ask(API, 12, topics=asked("new"), allow_auto_topic_creation=False).topics
    assert topic.error_code is ErrorCode.unknown_topic_or_partition
    unwilling = make_broker(auto_create_topics_enable="false")
    (topic,) = unwilling.ask(API, 12, topics=asked("new"), allow_auto_topic_creation=True).topics
    assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert (broker.image.topics, unwilling.image.topics) == ({}, {})


def test_internal_topics_are_left_to_their_coordinators(broker: Any) -> None:
    (topic,) = broker.ask(API, 12, topics=asked("__consumer_offsets"), allow_auto_topic_creation=True).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.unknown_topic_or_partition, True)


def test_what_cannot_be_made_says_why(broker: Any, make_broker: Any) -> None:
    create(broker, "a.b")
    topics = broker.ask(API, 12, topics=asked("a_b", "..", ""), allow_auto_topic_creation=True).topics
    assert [topic.error_code for topic in topics] == [ErrorCode.invalid_topic_exception] * 3
    lonely = make_broker(default_replication_factor="3")
    (topic,) = lonely.ask(API, 12, topics=asked("new"), allow_auto_topic_creation=True).topics
    assert topic.error_code is ErrorCode.invalid_replication_factor
    broker.disk_is_full = True
    (topic,) = broker.ask(API, 12, topics=asked("new"), allow_auto_topic_creation=True).topics
    assert topic.error_code is ErrorCode.kafka_storage_error


def test_a_topic_named_twice_is_answered_once(broker: Any) -> None:
    create(broker, "orders")
    assert len(broker.ask(API, 12, topics=asked("orders", "orders")).topics) == 1


def test_authorized_operations_come_only_when_asked_for(broker: Any) -> None:
    create(broker, "orders")
    silent = broker.ask(API, 8, topics=asked("orders"))
    asked_for = broker.ask(
        API,
        8,
        topics=asked("orders"),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    nobody_asked = -(2**31)
    assert silent.cluster_authorized_operations == nobody_asked
    assert silent.topics[0].topic_authorized_operations == nobody_asked
    assert asked_for.cluster_authorized_operations == 8096
    assert asked_for.topics[0].topic_authorized_operations == 3576


def test_a_partition_whose_leader_is_fenced_has_none_to_offer(broker: Any) -> None:
    create(broker, "orders")
    broker.add_broker(2, "there")
    broker.image.replay(FenceBrokerRecord(id=1, epoch=broker.image.brokers[1].epoch))
    answer = broker.ask(API, 12, topics=asked("orders"))
    assert [node.node_id for node in answer.brokers] == [2]
    partition = answer.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (
        ErrorCode.leader_not_available,
        -1,
        (1,),
    )


def test_a_broker_that_was_away_for_a_moment_is_still_named(broker: Any) -> None:
    broker.add_broker(2, "there")
    fenced = FenceBrokerRecord(id=2, epoch=broker.image.brokers[2].epoch)

    def named() -> list[int]:
        return [node.node_id for node in broker.ask(API, 12, topics=[]).brokers]

    broker.image.replay(fenced)
    assert named() == [1], "it was never seen to serve, or long ago"
    broker.absences.follow(fenced)
    assert named() == [1, 2]
    broker.now_ms = 9000
    assert named() == [1]


def test_the_last_one_to_leave_names_all_that_may_come_back(broker: Any) -> None:
    broker.add_broker(2, "there")
    for broker_id in (1, 2):
        broker.image.replay(FenceBrokerRecord(id=broker_id, epoch=broker.image.brokers[broker_id].epoch))
    assert [node.node_id for node in broker.ask(API, 12, topics=[]).brokers] == [1, 2]
