from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.handlers import api_33_alter_configs, api_44_incremental_alter_configs
from penstock.broker.handlers.api_32_describe_configs import API as DESCRIBE
from penstock.broker.handlers.api_74_list_config_resources import API as LIST
from penstock.cluster.metadata.topics import NewTopic
from penstock.protocol.messages import Struct

ALTER, INCREMENTAL = api_33_alter_configs.API, api_44_incremental_alter_configs.API
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def with_topic(broker: Any) -> Any:
    broker._apply(broker.controller.create_topics([NewTopic("orders", configs=[("retention.ms", "1000")])]))
    return broker


def describe(broker: Any, kind: int, name: str, keys: Any = None, version: int = 4, **fields: Any) -> Any:
    resource = Struct(resource_type=kind, resource_name=name, configuration_keys=keys)
    (result,) = broker.ask(DESCRIBE, version, resources=[resource], **fields).results
    return result


@pytest.mark.parametrize("version", range(DESCRIBE.version_min, DESCRIBE.version_max + 1))
def test_a_topic_is_described_in_every_version(with_topic: Any, version: int) -> None:
    result = describe(with_topic, TOPIC, "orders", ["retention.ms"], version, include_synonyms=True)
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.config_source, entry.read_only) == ("retention.ms", "1000", 1, False)
    assert [(synonym.name, synonym.value) for synonym in entry.synonyms] == [("retention.ms", "1000")]
    if version >= 3:
        assert (entry.config_type, entry.documentation) == (5, None)


def test_synonyms_and_documentation_come_only_when_asked_for(with_topic: Any) -> None:
    (silent,) = describe(with_topic, TOPIC, "orders", ["max.message.bytes"]).configs
    (verbose,) = describe(
        with_topic, TOPIC, "orders", ["max.message.bytes"], include_synonyms=True, include_documentation=True
    ).configs
    assert (silent.synonyms, silent.documentation) == ((), None)
    assert [synonym.name for synonym in verbose.synonyms] == ["message.max.bytes"]
    assert "largest record batch" in verbose.documentation


def test_no_keys_and_null_both_mean_all_and_unknown_keys_are_left_out(with_topic: Any) -> None:
    everything = describe(with_topic, TOPIC, "orders").configs
    assert len(everything) > 30
    assert describe(with_topic, TOPIC, "orders", []).configs == everything
    assert describe(with_topic, TOPIC, "orders", ["nope"]).configs == ()


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", ErrorCode.unknown_topic_or_partition, ""),
        (TOPIC, "..", ErrorCode.invalid_topic_exception, "Topic name is invalid: '..' is not allowed"),
        (BROKER, "2", ErrorCode.invalid_request, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", ErrorCode.invalid_request, "Broker id must be an integer, but it is: x"),
        (LOGGER, "2", ErrorCode.invalid_request, "Unexpected broker id, expected 1 but received 2"),
        (LOGGER, "", ErrorCode.invalid_request, "Broker id must not be empty"),
        (GROUP, "", ErrorCode.invalid_request, "Group name must not be empty"),
        (METRICS, "m", ErrorCode.invalid_request, "Unsupported resource type: 16"),
        (0, "x", ErrorCode.invalid_request, "Unsupported resource type: 0"),
    ],
)
def test_what_cannot_be_described_says_why(
    with_topic: Any, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    result = describe(with_topic, kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, ())


def test_the_node_and_its_groups_are_described_and_it_has_no_loggers(with_topic: Any) -> None:
    entries = {entry.name: entry for entry in describe(with_topic, BROKER, "1").configs}
    assert (entries["node.id"].value, entries["node.id"].read_only) == ("1", True)
    assert [entry.name for entry in describe(with_topic, GROUP, "anyone", ["consumer.session.timeout.ms"]).configs]
    assert describe(with_topic, LOGGER, "1").configs == ()


def alter(broker: Any, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1) -> Any:
    configs = [Struct(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = Struct(resource_type=kind, resource_name=name, configs=configs)
    (answer,) = broker.ask(INCREMENTAL, version, resources=[resource], validate_only=False).responses
    return answer


@pytest.mark.parametrize("version", range(INCREMENTAL.version_min, INCREMENTAL.version_max + 1))
def test_settings_are_altered_one_by_one_in_every_version(with_topic: Any, version: int) -> None:
    answer = alter(
        with_topic, TOPIC, "orders", ("segment.ms", 0, "7"), ("cleanup.policy", 2, "compact"), version=version
    )
    assert (answer.error_code, answer.resource_type, answer.resource_name) == (ErrorCode.none, TOPIC, "orders")
    entries = {entry.name: entry.value for entry in describe(with_topic, TOPIC, "orders").configs}
    assert (entries["segment.ms"], entries["retention.ms"]) == ("7", "1000")
    assert entries["cleanup.policy"] == "delete,compact"


@pytest.mark.parametrize("version", range(ALTER.version_min, ALTER.version_max + 1))
def test_settings_are_replaced_in_every_version(with_topic: Any, version: int) -> None:
    configs = [Struct(name="segment.ms", value="7")]
    resource = Struct(resource_type=TOPIC, resource_name="orders", configs=configs)
    (answer,) = with_topic.ask(ALTER, version, resources=[resource], validate_only=False).responses
    assert answer.error_code is ErrorCode.none
    assert with_topic.image.topic_configs("orders") == {"segment.ms": "7"}


def test_altering_the_broker_changes_what_topics_without_an_own_value_have(with_topic: Any) -> None:
    alter(with_topic, BROKER, "", ("message.max.bytes", 0, "2000"))
    (entry,) = describe(with_topic, TOPIC, "orders", ["max.message.bytes"]).configs
    assert (entry.value, entry.config_source) == ("2000", 3)
    alter(with_topic, BROKER, "1", ("message.max.bytes", 0, "3000"))
    (entry,) = describe(with_topic, TOPIC, "orders", ["max.message.bytes"]).configs
    assert (entry.value, entry.config_source) == ("3000", 2)
    assert [entry.name for entry in describe(with_topic, BROKER, "").configs] == ["message.max.bytes"]


def test_a_disk_that_takes_nothing_refuses_every_change(with_topic: Any) -> None:
    with_topic.disk_is_full = True
    assert alter(with_topic, TOPIC, "orders", ("segment.ms", 0, "7")).error_code is ErrorCode.kafka_storage_error
    resource = Struct(resource_type=TOPIC, resource_name="orders", configs=[])
    (answer,) = with_topic.ask(ALTER, 2, resources=[resource], validate_only=False).responses
    assert answer.error_code is ErrorCode.kafka_storage_error


def test_resources_are_listed_by_kind(with_topic: Any) -> None:
    alter(with_topic, GROUP, "g", ("consumer.session.timeout.ms", 0, "46000"))
    everything = with_topic.ask(LIST, 1, resource_types=[]).config_resources
    assert {(resource.resource_type, resource.resource_name) for resource in everything} == {
        (TOPIC, "orders"),
        (BROKER, "1"),
        (LOGGER, "1"),
        (GROUP, "g"),
    }
    only = with_topic.ask(LIST, 1, resource_types=[TOPIC]).config_resources
    assert [resource.resource_name for resource in only] == ["orders"]
    assert with_topic.ask(LIST, 0).config_resources == ()
    assert with_topic.ask(LIST, 1, resource_types=[99]).error_code is ErrorCode.unsupported_version
