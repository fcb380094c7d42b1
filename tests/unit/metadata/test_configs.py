from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.configs import AlteredResource, Change, Operation, ResourceChanges
from penstock.cluster.metadata.topics import NewTopic

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32


@pytest.fixture
def with_topic(cluster: Any) -> Any:
    cluster.do(cluster.controller.create_topics([NewTopic("orders", configs=[("segment.ms", "7000")])]))
    return cluster


def alter(cluster: Any, kind: int, name: str, *changes: Change, **options: bool) -> AlteredResource:
    decision = cluster.controller.incremental_alter_configs([ResourceChanges(kind, name, changes)], **options)
    (answer,) = cluster.do(decision)
    assert isinstance(answer, AlteredResource)
    return answer


def own(cluster: Any, name: str = "orders") -> dict[str, str]:
    return dict(cluster.image.topic_configs(name))


def test_setting_and_deleting_leave_the_rest_alone(with_topic: Any) -> None:
    alter(with_topic, TOPIC, "orders", Change("retention.ms", "5"))
    assert own(with_topic) == {"segment.ms": "7000", "retention.ms": "5"}
    alter(with_topic, TOPIC, "orders", Change("segment.ms", None, Operation.DELETE))
    assert own(with_topic) == {"retention.ms": "5"}


def test_altering_all_at_once_deletes_what_is_not_named(with_topic: Any) -> None:
    resource = ResourceChanges(TOPIC, "orders", [Change("retention.ms", "5")])
    with_topic.do(with_topic.controller.alter_configs([resource]))
    assert own(with_topic) == {"retention.ms": "5"}


def test_lists_are_appended_to_and_subtracted_from_starting_with_the_default(with_topic: Any) -> None:
    steps = [
        (Operation.APPEND, "compact", "delete,compact"),
        (Operation.SUBTRACT, "delete", "compact"),
        (Operation.SUBTRACT, "compact", ""),
        (Operation.APPEND, "compact,compact,delete", "compact,delete"),
    ]
    for operation, value, expected in steps:
        alter(with_topic, TOPIC, "orders", Change("cleanup.policy", value, operation))
        assert own(with_topic)["cleanup.policy"] == expected


def test_validating_changes_nothing(with_topic: Any) -> None:
    answer = alter(with_topic, TOPIC, "orders", Change("retention.ms", "5"), validate_only=True)
    assert answer.error_code is ErrorCode.none
    assert own(with_topic) == {"segment.ms": "7000"}


def test_a_resource_is_altered_as_a_whole_or_not_at_all(with_topic: Any) -> None:
    answer = alter(with_topic, TOPIC, "orders", Change("retention.ms", "5"), Change("segment.bytes", "1"))
    assert answer.error_code is ErrorCode.invalid_config
    assert own(with_topic) == {"segment.ms": "7000"}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "message"),
    [
        (TOPIC, "orders", [Change("retention.ms", "7", Operation.APPEND)], ErrorCode.invalid_config,
         "Can't APPEND to key retention.ms because its type is not LIST."),
        (TOPIC, "orders", [Change("retention.ms", "1"), Change("retention.ms", "2")], ErrorCode.invalid_request,
         "Error due to duplicate config keys"),
        (TOPIC, "orders", [Change("retention.ms", "1", 9)], ErrorCode.invalid_request, "Unknown operation type 9"),
        (TOPIC, "orders", [Change("retention.ms", None)], ErrorCode.invalid_request,
         "Null value not supported for : retention.ms"),
        (TOPIC, "orders", [Change("nope", "1")], ErrorCode.invalid_config, "Unknown topic config name: nope"),
        (TOPIC, "nope", [Change("retention.ms", "1")], ErrorCode.unknown_topic_or_partition,
         "The topic 'nope' does not exist."),
        (TOPIC, "", [Change("retention.ms", "1")], ErrorCode.invalid_request,
         "Default topic resources are not allowed."),
        (TOPIC, "..", [Change("retention.ms", "1")], ErrorCode.invalid_topic_exception,
         "Topic name is invalid: '..' is not allowed"),
        (BROKER, "7", [Change("log.retention.ms", "1")], ErrorCode.invalid_request,
         "Unexpected broker id, expected 1, but received 7"),
        (BROKER, "x", [Change("log.retention.ms", "1")], ErrorCode.invalid_request,
         "Node id must be an integer, but it is: x"),
        (BROKER, "1", [Change("node.id", "2")], ErrorCode.invalid_request,
         "Cannot update these configs dynamically: [node.id]"),
        (BROKER, "", [Change("log.retention.ms", "abc")], ErrorCode.invalid_request,
         "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"),
        (LOGGER, "1", [Change("penstock", "DEBUG")], ErrorCode.invalid_config, "Logger penstock does not exist!"),
        (GROUP, "g", [Change("nope", "1")], ErrorCode.invalid_config, "Unknown group config name: nope"),
        (GROUP, "", [Change("nope", "1")], ErrorCode.invalid_request, "Default group resources are not allowed."),
        (GROUP, "g", [Change("consumer.session.timeout.ms", "1000")], ErrorCode.invalid_config,
         "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (0, "x", [Change("a", "b")], ErrorCode.invalid_request, "Unknown resource type 0"),
        (99, "x", [Change("a", "b")], ErrorCode.invalid_request, "Unknown resource type 99"),
    ],
)  # fmt: skip
def test_bad_changes_are_refused_in_kafkas_words(
    with_topic: Any, kind: int, name: str, changes: list[Change], code: ErrorCode, message: str
) -> None:
    answer = alter(with_topic, kind, name, *changes)
    assert (answer.error_code, answer.error_message) == (code, message)


def test_a_resource_that_comes_twice_is_refused_both_times(with_topic: Any) -> None:
    resource = ResourceChanges(TOPIC, "orders", [Change("retention.ms", "5")])
    answer = with_topic.do(with_topic.controller.incremental_alter_configs([resource, resource]))
    assert [entry.error_code for entry in answer] == [ErrorCode.invalid_request] * 2


def test_deleting_a_setting_that_is_not_there_is_no_mistake(with_topic: Any) -> None:
    answer = alter(with_topic, TOPIC, "orders", Change("nope", None, Operation.DELETE))
    assert answer.error_code is ErrorCode.none


def test_brokers_are_altered_one_by_one_or_all_together(with_topic: Any) -> None:
    alter(with_topic, BROKER, "1", Change("log.retention.ms", "1"))
    alter(with_topic, BROKER, "", Change("log.retention.ms", "2"), Change("somebody.elses", "3"))
    assert with_topic.image.config_of(BROKER, "1") == {"log.retention.ms": "1"}
    assert with_topic.image.config_of(BROKER, "") == {"log.retention.ms": "2", "somebody.elses": "3"}


def test_a_group_keeps_its_own_settings(with_topic: Any) -> None:
    alter(with_topic, GROUP, "g", Change("consumer.session.timeout.ms", "46000"))
    assert with_topic.image.config_of(GROUP, "g") == {"consumer.session.timeout.ms": "46000"}
