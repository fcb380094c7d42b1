import pytest

from penstock.base.settings import (
    ConfigSource,
    InvalidSettings,
    NodeSettings,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from penstock.log.config import LogConfig


def synonyms(
    node: NodeSettings, name: str, overrides: dict[str, str] | None = None
) -> list[tuple[str, str | None, int]]:
    (entry,) = describe_topic(node, overrides or {}, [name])
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def test_a_nearer_layer_goes_before_a_farther_one() -> None:
    node = NodeSettings({"message.max.bytes": "4"})
    assert (node["message.max.bytes"], node.topic_values({})["max.message.bytes"]) == (4, 4)
    node.use_dynamic({"message.max.bytes": "3"}, {})
    assert (node["message.max.bytes"], node.topic_values({})["max.message.bytes"]) == (3, 3)
    node.use_dynamic({"message.max.bytes": "3"}, {"message.max.bytes": "2"})
    assert (node["message.max.bytes"], node.topic_values({})["max.message.bytes"]) == (2, 2)
    assert node.topic_values({"max.message.bytes": "1"})["max.message.bytes"] == 1
    node.use_dynamic({}, {})
    assert node["message.max.bytes"] == 4


def test_the_synonyms_list_every_layer_as_kafka_lists_them() -> None:
    node = NodeSettings({"log.retention.hours": "24"})
    assert synonyms(node, "retention.ms") == []
    node.use_dynamic({"log.retention.ms": "8888"}, {"log.retention.ms": "9999"})
    assert synonyms(node, "retention.ms", {"retention.ms": "7"}) == [
        ("retention.ms", "7", ConfigSource.TOPIC),
        ("log.retention.ms", "9999", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "8888", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "24", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


def test_minutes_and_hours_become_milliseconds_and_the_finer_unit_wins() -> None:
    assert NodeSettings().topic_values({})["retention.ms"] == 168 * 3_600_000
    assert NodeSettings({"log.retention.hours": "2"}).topic_values({})["retention.ms"] == 2 * 3_600_000
    node = NodeSettings({"log.retention.hours": "2", "log.retention.minutes": "3"})
    assert node.topic_values({})["retention.ms"] == 3 * 60_000
    node.use_dynamic({"log.retention.ms": "5"}, {})
    assert node.topic_values({})["retention.ms"] == 5


def test_topics_without_settings_of_their_own_share_one_mapping() -> None:
    node = NodeSettings()
    assert node.topic_values({}) is node.topic_values({})


def test_the_logs_defaults_are_those_of_the_table() -> None:
    assert LogConfig.from_settings(NodeSettings().topic_values({})) == LogConfig()


def test_a_description_changes_when_the_layers_do() -> None:
    node = NodeSettings()
    (before,) = describe_topic(node, {}, ["compression.type"])
    node.use_dynamic({"compression.type": "zstd"}, {})
    (after,) = describe_topic(node, {}, ["compression.type"])
    assert (before.value, before.config_source) == ("producer", ConfigSource.DEFAULT)
    assert (after.value, after.config_source) == ("zstd", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_a_described_list_is_written_without_the_spaces_it_was_given_with() -> None:
    (entry,) = describe_topic(NodeSettings(), {"cleanup.policy": "delete, compact"}, ["cleanup.policy"])
    assert entry.value == "delete,compact"


def test_internal_settings_are_taken_but_not_described() -> None:
    node = NodeSettings()
    assert node.topic_values({"internal.segment.bytes": "100"})["internal.segment.bytes"] == 100
    assert "internal.segment.bytes" not in [entry.name for entry in describe_topic(node, {})]


def test_what_is_altered_but_in_no_table_is_described_without_its_value() -> None:
    node = NodeSettings()
    node.use_dynamic({}, {"somebody.elses.password": "secret"})
    (entry,) = describe_broker(node, ["somebody.elses.password"])
    assert (entry.value, entry.is_sensitive, entry.synonyms[0].value) == (None, True, None)


def test_the_cluster_default_describes_only_what_was_altered_for_all() -> None:
    node = NodeSettings({"num.partitions": "3"})
    node.use_dynamic({"log.retention.ms": "8"}, {"log.retention.ms": "9"})
    (entry,) = describe_cluster_default(node)
    assert (entry.name, entry.value, entry.config_source) == (
        "log.retention.ms",
        "8",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


def test_a_group_without_settings_has_the_brokers() -> None:
    node = NodeSettings({"group.consumer.session.timeout.ms": "50000"})
    (entry,) = describe_group(node, {}, ["consumer.session.timeout.ms"])
    assert (entry.value, entry.config_source) == ("50000", ConfigSource.STATIC_BROKER)
    (entry,) = describe_group(node, {"consumer.session.timeout.ms": "46000"}, ["consumer.session.timeout.ms"])
    assert (entry.value, entry.config_source) == ("46000", ConfigSource.GROUP)


def test_read_only_is_what_cannot_be_altered_while_the_node_runs() -> None:
    entries = {entry.name: entry for entry in describe_broker(NodeSettings())}
    assert entries["node.id"].read_only
    assert not entries["log.retention.ms"].read_only


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num.partition", "3", ["no setting 'num.partition'", "Did you mean num.partitions?"]),
        ("num.partitions", "0", ["cannot be '0'", "at least 1", "the default is '1'"]),
        ("num.io.threads", "8", ["Apache Kafka", "one event loop", "Leave it out"]),
        ("retention.ms", "1", ["a setting of a topic", "set log.retention.ms"]),
        ("qqq", "1", ["no setting 'qqq'", "docs/settings.md"]),
    ],
)
def test_a_node_that_cannot_start_says_what_is_wrong_and_what_to_do(name: str, text: str, words: list[str]) -> None:
    with pytest.raises(InvalidSettings) as caught:
        NodeSettings({name: text})
    for word in words:
        assert word in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        NodeSettings({"num.partitions": "x", "nope.nope": "1", "node.id": "2"})
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    "name",
    [
        "offsets.topic.segment.bytes",
        "share.coordinator.state.topic.segment.bytes",
        "transaction.state.log.segment.bytes",
    ],
)
def test_segments_of_coordinators_are_no_smaller_than_a_topic_may_have(name: str) -> None:
    node = NodeSettings({name: str(1 << 20)})
    assert LogConfig.from_settings(node.topic_values({"segment.bytes": str(node[name])})).segment_bytes == 1 << 20
    with pytest.raises(InvalidSettings, match=name):
        NodeSettings({name: str((1 << 20) - 1)})
