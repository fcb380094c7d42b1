"""One table of settings: names, types, defaults, bounds and docs, from which everything else is derived.

`topics`, `brokers` and `coordinators` hold the declarations, `definition` says what a declaration is, `node` is one
node's current values, `effective` explains where each value comes from (as DescribeConfigs shows it) and `reference`
prints docs/settings.md. Names, types and defaults are those of Kafka 4.3 wherever Kafka has the setting.
"""

from penstock.base.settings.brokers import BROKER_SETTINGS
from penstock.base.settings.coordinators import GROUP_SETTINGS
from penstock.base.settings.definition import InvalidValue, Kind, Setting
from penstock.base.settings.effective import (
    ConfigSource,
    Described,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from penstock.base.settings.node import InvalidSettings, NodeSettings
from penstock.base.settings.reference import reference_markdown
from penstock.base.settings.topics import TOPIC_SETTINGS

__all__ = [
    "BROKER_SETTINGS",
    "GROUP_SETTINGS",
    "TOPIC_SETTINGS",
    "ConfigSource",
    "Described",
    "InvalidSettings",
    "InvalidValue",
    "Kind",
    "NodeSettings",
    "Setting",
    "describe_broker",
    "describe_cluster_default",
    "describe_group",
    "describe_topic",
    "reference_markdown",
]
