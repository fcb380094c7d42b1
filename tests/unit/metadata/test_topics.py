import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.names import collision_key, is_legal_topic_name
from penstock.cluster.metadata.topics import PARTITIONS_PER_REQUEST_MAX, CreatedTopic, MorePartitions, NewTopic


def create(cluster: Any, *topics: NewTopic, validate_only: bool = False) -> list[CreatedTopic]:
    answer: list[CreatedTopic] = cluster.do(cluster.controller.create_topics(topics, validate_only=validate_only))
    return answer


def refusal(cluster: Any, topic: NewTopic) -> tuple[ErrorCode, str | None]:
    before = len(cluster.image.topics)
    (answer,) = create(cluster, topic)
    assert len(cluster.image.topics) == before
    return answer.error_code, answer.error_message


def test_a_topic_is_made_with_its_partitions_led_by_their_first_replica(cluster: Any) -> None:
    (answer,) = create(cluster, NewTopic("orders", 3, 1, configs=[("retention.ms", "1000")]))
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (ErrorCode.none, 3, 1)
    topic = cluster.image.topics["orders"]
    assert topic.id == answer.topic_id
    assert cluster.image.topics_by_id[topic.id] is topic
    assert sorted(topic.partitions) == [0, 1, 2]
    for partition in topic.partitions.values():
        assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert cluster.controller.topic_settings("orders")["retention.ms"] == 1000
    assert {entry.name: entry.value for entry in answer.configs}["retention.ms"] == "1000"


def test_minus_one_means_the_brokers_default(make_cluster: Any) -> None:
    cluster = make_cluster(None, None, num_partitions="5", default_replication_factor="2")
    (answer,) = create(cluster, NewTopic("orders"))
    assert (answer.num_partitions, answer.replication_factor) == (5, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        ("a b", "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', "
         "'_' and '-'"),
        ("a/b", "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', "
         "'_' and '-'"),
        ("x" * 250, f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)  # fmt: skip
def test_names_that_are_not_allowed_are_refused_in_kafkas_words(cluster: Any, name: str, message: str) -> None:
    assert refusal(cluster, NewTopic(name)) == (ErrorCode.invalid_topic_exception, message)


@given(st.text(max_size=260))
def test_a_legal_name_is_one_harmless_directory_name(name: str) -> None:
    if is_legal_topic_name(name):
        assert 0 < len(name.encode()) <= 249
        assert not set(name) & set("/\\\0\n ")
        assert name not in (".", "..")


@given(st.text("ab._-", min_size=1, max_size=4), st.text("ab._-", min_size=1, max_size=4))
def test_names_collide_when_dots_and_underscores_are_taken_for_the_same(one: str, other: str) -> None:
    same = one.replace(".", "_") == other.replace(".", "_")
    both_have_one = all("." in name or "_" in name for name in (one, other))
    assert (collision_key(one) == collision_key(other) is not None) == (same and both_have_one)


def test_a_name_that_collides_is_refused_until_the_other_is_gone(cluster: Any) -> None:
    create(cluster, NewTopic("a.b"))
    message = "Topic 'a_b' collides with existing topic: a.b"
    assert refusal(cluster, NewTopic("a_b")) == (ErrorCode.invalid_topic_exception, message)
    cluster.do(cluster.controller.delete_topics([("a.b", None)]))
    assert create(cluster, NewTopic("a_b"))[0].error_code is ErrorCode.none


def test_of_two_names_that_collide_in_one_request_only_the_first_is_made(cluster: Any) -> None:
    codes = [topic.error_code for topic in create(cluster, NewTopic("c.d"), NewTopic("c_d"))]
    assert sorted(codes) == [ErrorCode.none, ErrorCode.invalid_topic_exception]


def test_a_topic_that_is_there_is_refused(cluster: Any) -> None:
    create(cluster, NewTopic("orders"))
    assert refusal(cluster, NewTopic("orders")) == (ErrorCode.topic_already_exists, "Topic 'orders' already exists.")


def test_a_name_that_comes_twice_is_refused_once_and_the_others_are_made(cluster: Any) -> None:
    answer = create(cluster, NewTopic("twice"), NewTopic("twice"), NewTopic("once"))
    assert {(topic.name, topic.error_code) for topic in answer} == {
        ("twice", ErrorCode.invalid_request),
        ("once", ErrorCode.none),
    }
    assert list(cluster.image.topics) == ["once"]


def test_the_metadata_topic_cannot_be_made(cluster: Any) -> None:
    assert refusal(cluster, NewTopic("__cluster_metadata"))[0] is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("t", 0, 1), ErrorCode.invalid_partitions),
        (NewTopic("t", -2, 1), ErrorCode.invalid_partitions),
        (NewTopic("t", 10**9, 1), ErrorCode.policy_violation),
        (NewTopic("t", PARTITIONS_PER_REQUEST_MAX + 1, 1), ErrorCode.policy_violation),
        (NewTopic("t", 1, 0), ErrorCode.invalid_replication_factor),
        (NewTopic("t", 1, -2), ErrorCode.invalid_replication_factor),
        (NewTopic("t", 1, 2), ErrorCode.invalid_replication_factor),
        (NewTopic("t", 1, -1, [(0, [1])]), ErrorCode.invalid_request),
        (NewTopic("t", -1, 1, [(0, [1])]), ErrorCode.invalid_request),
        (NewTopic("t", -1, -1, [(1, [1])]), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", -1, -1, [(0, [])]), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", -1, -1, [(0, [1, 1])]), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", -1, -1, [(0, [9])]), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", -1, -1, [(0, [1]), (0, [1])]), ErrorCode.invalid_replica_assignment),
        (NewTopic("t", 1, 1, configs=[("nope", "1")]), ErrorCode.invalid_config),
        (NewTopic("t", 1, 1, configs=[("retention.ms", "x")]), ErrorCode.invalid_config),
        (NewTopic("t", 1, 1, configs=[("retention.ms", None)]), ErrorCode.invalid_config),
    ],
)
def test_a_bad_topic_gets_kafkas_error_code(cluster: Any, topic: NewTopic, code: ErrorCode) -> None:
    assert refusal(cluster, topic)[0] is code


def test_replicas_go_where_the_request_says(make_cluster: Any) -> None:
    cluster = make_cluster(None, None, None)
    create(cluster, NewTopic("orders", assignments=[(1, [3, 1]), (0, [2, 3])]))
    partitions = cluster.image.topics["orders"].partitions
    assert [(partitions[index].replicas, partitions[index].leader) for index in (0, 1)] == [((2, 3), 2), ((3, 1), 3)]


def test_partitions_of_one_topic_have_equally_many_replicas(make_cluster: Any) -> None:
    cluster = make_cluster(None, None)
    code, message = refusal(cluster, NewTopic("orders", assignments=[(0, [1, 2]), (1, [1])]))
    assert code is ErrorCode.invalid_replica_assignment
    assert message is not None
    assert "not consistent with previous partitions, which have 2 replica(s)" in message


def test_validating_changes_nothing(cluster: Any) -> None:
    (answer,) = create(cluster, NewTopic("orders", 2, 1), validate_only=True)
    assert (answer.error_code, answer.num_partitions) == (ErrorCode.none, 2)
    assert cluster.image.topics == {}
    decision = cluster.controller.create_partitions([MorePartitions("orders", 2)], validate_only=True)
    assert decision.records == []


def test_topic_ids_are_random_and_never_look_like_an_option(cluster: Any) -> None:
    answer = create(cluster, *(NewTopic(f"topic-{index}") for index in range(500)))
    ids = {topic.topic_id for topic in answer if topic.topic_id is not None}
    assert len(ids) == 500
    assert all(topic_id.version == 4 and topic_id.bytes[0] >> 2 != 62 for topic_id in ids)


def test_deleting_takes_the_topic_its_id_and_its_settings_away(cluster: Any) -> None:
    (by_name, by_id) = create(cluster, NewTopic("one", configs=[("retention.ms", "5")]), NewTopic("two"))
    deleted = cluster.do(cluster.controller.delete_topics([("one", None), (None, by_id.topic_id)]))
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in deleted] == [
        ("one", by_name.topic_id, ErrorCode.none),
        ("two", by_id.topic_id, ErrorCode.none),
    ]
    assert (cluster.image.topics, cluster.image.topics_by_id, cluster.image.configs) == ({}, {}, {})


def test_deleting_what_is_not_there_or_named_badly_is_refused(cluster: Any) -> None:
    (topic,) = create(cluster, NewTopic("orders"))
    stranger = uuid.UUID(int=77)
    answer = cluster.do(
        cluster.controller.delete_topics([("nope", None), (None, stranger), ("orders", topic.topic_id), (None, None)])
    )
    assert [entry.error_code for entry in answer] == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
    ]


def test_a_topic_named_twice_is_not_deleted(cluster: Any) -> None:
    (topic,) = create(cluster, NewTopic("orders"))
    twice = cluster.do(cluster.controller.delete_topics([("orders", None), ("orders", None)]))
    assert [entry.error_code for entry in twice] == [ErrorCode.invalid_request]
    both = cluster.do(cluster.controller.delete_topics([("orders", None), (None, topic.topic_id)]))
    assert [(entry.name, entry.error_code) for entry in both] == [("orders", ErrorCode.invalid_request)]
    assert "orders" in cluster.image.topics


def test_nothing_is_deleted_where_deletion_is_disabled(make_cluster: Any) -> None:
    cluster = make_cluster(delete_topic_enable="false")
    create(cluster, NewTopic("orders"))
    (answer,) = cluster.do(cluster.controller.delete_topics([("orders", None)]))
    assert answer.error_code is ErrorCode.topic_deletion_disabled


def test_partitions_are_added_up_to_the_new_count(cluster: Any) -> None:
    create(cluster, NewTopic("orders", 2))
    (answer,) = cluster.do(cluster.controller.create_partitions([MorePartitions("orders", 5)]))
    assert answer.error_code is ErrorCode.none
    assert sorted(cluster.image.topics["orders"].partitions) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (MorePartitions("orders", 2), ErrorCode.invalid_partitions),
        (MorePartitions("orders", 1), ErrorCode.invalid_partitions),
        (MorePartitions("orders", -1), ErrorCode.invalid_partitions),
        (MorePartitions("orders", 10**9), ErrorCode.policy_violation),
        (MorePartitions("nope", 5), ErrorCode.unknown_topic_or_partition),
        (MorePartitions("orders", 4, [[1]]), ErrorCode.invalid_replica_assignment),
        (MorePartitions("orders", 3, [[7]]), ErrorCode.invalid_replica_assignment),
        (MorePartitions("orders", 3, [[]]), ErrorCode.invalid_replica_assignment),
        (MorePartitions("orders", 3, [[1, 1]]), ErrorCode.invalid_replica_assignment),
    ],
)
def test_bad_additions_get_kafkas_error_code(cluster: Any, requested: MorePartitions, code: ErrorCode) -> None:
    create(cluster, NewTopic("orders", 2))
    (answer,) = cluster.do(cluster.controller.create_partitions([requested]))
    assert answer.error_code is code
    assert len(cluster.image.topics["orders"].partitions) == 2


def test_an_addition_that_comes_twice_is_refused_once(cluster: Any) -> None:
    create(cluster, NewTopic("orders", 2))
    answer = cluster.do(
        cluster.controller.create_partitions([MorePartitions("orders", 3), MorePartitions("orders", 4)])
    )
    assert [entry.error_code for entry in answer] == [ErrorCode.invalid_request]
