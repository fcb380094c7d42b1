"""Where each value comes from: the entries of DescribeConfigs and of CreateTopics' answer.

The field names are those of the messages, so that an entry is written as it is. The order of synonyms, and that they
begin only with the setting's own first broker name, is Kafka's: a `retention.ms` that comes from
`log.retention.hours` alone is described as a default without synonyms.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.base.settings.brokers import BROKER_SETTINGS
from penstock.base.settings.coordinators import GROUP_SETTINGS
from penstock.base.settings.definition import Kind, Setting
from penstock.base.settings.node import FAMILY_OF, NodeSettings
from penstock.base.settings.topics import TOPIC_SETTINGS


class ConfigSource(enum.IntEnum):
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class DescribedSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Described:
    name: str
    value: str | None
    read_only: bool
    config_source: ConfigSource
    is_sensitive: bool
    synonyms: tuple[DescribedSynonym, ...]
    config_type: Kind
    documentation: str | None


def describe_topic(
    node: NodeSettings, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[Described]:
    """All settings of a topic with `overrides` of its own, or those in `names`."""
    entries = dict(_topic_defaults(node))
    for name, text in overrides.items():
        default = entries.get(name)
        if default is not None:
            setting = TOPIC_SETTINGS[name]
            value = setting.text(setting.parse(text))
            own = DescribedSynonym(name, None if setting.is_sensitive else value, ConfigSource.TOPIC)
            entries[name] = _entry(setting, value, (own, *default.synonyms), read_only=False)
    if names is None:
        return list(entries.values())
    wanted = set(names)
    return [entry for name, entry in entries.items() if name in wanted]


def _topic_defaults(node: NodeSettings) -> Mapping[str, Described]:
    """Entries of a topic without settings of its own. They are made once for all topics, until the node's settings
    change: creating a thousand topics describes each of them."""
    if node.described_topic_defaults is None:
        values = node.topic_values({})
        node.described_topic_defaults = {
            name: _entry(
                setting,
                setting.text(values[name]),
                _broker_synonyms(node, setting.synonyms[0].name, setting) if setting.synonyms else (),
                read_only=False,
            )
            for name, setting in TOPIC_SETTINGS.items()
            if not setting.internal
        }
    return node.described_topic_defaults


def describe_broker(node: NodeSettings, names: Iterable[str] | None = None) -> list[Described]:
    """All settings of this node. Altered ones that are in no table come without a value: they may be secrets."""
    strangers = {*node.cluster_dynamic, *node.node_dynamic} - set(BROKER_SETTINGS)
    wanted = None if names is None else set(names)
    entries = []
    for name, setting in BROKER_SETTINGS.items():
        if wanted is None or name in wanted:
            synonyms = _broker_synonyms(node, name, setting)
            entries.append(_entry(setting, node.text(name), synonyms, read_only=not setting.dynamic))
    for name in sorted(strangers if wanted is None else strangers & wanted):
        entries.append(_stranger(name, _broker_synonyms(node, name, None)))
    return entries


def describe_cluster_default(node: NodeSettings, names: Iterable[str] | None = None) -> list[Described]:
    """What was altered for all nodes, and nothing else."""
    wanted = None if names is None else set(names)
    entries = []
    for name, text in sorted(node.cluster_dynamic.items()):
        if wanted is not None and name not in wanted:
            continue
        setting = BROKER_SETTINGS.get(name)
        hidden = setting is None or setting.is_sensitive
        synonyms = (DescribedSynonym(name, None if hidden else text, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        if setting is None:
            entries.append(_stranger(name, synonyms))
        else:
            entries.append(_entry(setting, text, synonyms, read_only=not setting.dynamic))
    return entries


def describe_group(
    node: NodeSettings, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[Described]:
    wanted = None if names is None else set(names)
    entries = []
    for name, setting in GROUP_SETTINGS.items():
        if wanted is not None and name not in wanted:
            continue
        if setting.synonyms:
            broker_name = setting.synonyms[0].name
            text = node.text(broker_name)
            synonyms = _broker_synonyms(node, broker_name, setting)
        else:
            text = setting.default
            synonyms = (DescribedSynonym(name, text, ConfigSource.DEFAULT),)
        if name in overrides:
            text = setting.text(setting.parse(overrides[name]))
            synonyms = (DescribedSynonym(name, text, ConfigSource.GROUP), *synonyms)
        entries.append(_entry(setting, text, synonyms, read_only=False))
    return entries


def _entry(setting: Setting, text: str | None, synonyms: tuple[DescribedSynonym, ...], *, read_only: bool) -> Described:
    return Described(
        name=setting.name,
        value=None if setting.is_sensitive else text,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=setting.is_sensitive,
        synonyms=synonyms,
        config_type=setting.kind,
        documentation=setting.doc,
    )


def _stranger(name: str, synonyms: tuple[DescribedSynonym, ...]) -> Described:
    return Described(name, None, True, synonyms[0].source, True, synonyms, Kind.UNKNOWN, None)


def _broker_synonyms(node: NodeSettings, name: str, setting: Setting | None) -> tuple[DescribedSynonym, ...]:
    """What the layers say about a broker setting and its relatives in other units, from the first mention of its
    own name on. Without a `setting` the name is a stranger's, whose values stay hidden."""
    hidden = setting is None or setting.is_sensitive
    found = []
    relatives = FAMILY_OF.get(name, (name,))
    for layer, source in (
        (node.node_dynamic, ConfigSource.DYNAMIC_BROKER),
        (node.cluster_dynamic, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (node.static, ConfigSource.STATIC_BROKER),
    ):
        found += [DescribedSynonym(n, None if hidden else layer[n], source) for n in relatives if n in layer]
    for relative in relatives:
        known = BROKER_SETTINGS.get(relative)
        if known is not None and known.default is not None:
            found.append(DescribedSynonym(relative, None if hidden else known.default, ConfigSource.DEFAULT))
    while found and found[0].name != name:
        found.pop(0)
    return tuple(found)
