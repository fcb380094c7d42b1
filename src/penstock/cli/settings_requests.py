"""Settings of topics and brokers as a cluster has them: asked with their documentation, changed one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.connection import Cluster
from penstock.cli.failures import Failed
from penstock.cli.wire import refusal, request
from penstock.protocol.messages import Struct

DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION = 32, 4
INCREMENTAL_ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS_VERSION = 44, 1

_SET, _DELETE = 0, 1
_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")
_SOURCES = {
    1: "topic",
    2: "node",
    3: "cluster",
    4: "start-up option",
    5: "default",
    6: "node logger",
}
_DEFAULT_SOURCE = 5


@dataclass(frozen=True)
class Resource:
    """Whose settings: a topic's, one node's, or (a node without a name) all nodes' common default."""

    type_code: int
    name: str

    @property
    def title(self) -> str:
        if self.type_code == _TOPIC:
            return f"topic {self.name}"
        return f"node {self.name}" if self.name else "the cluster"


_TOPIC, _BROKER = 2, 4


def topic_resource(name: str) -> Resource:
    return Resource(_TOPIC, name)


def node_resource(node_id: int | None) -> Resource:
    return Resource(_BROKER, "" if node_id is None else str(node_id))


@dataclass(frozen=True)
class DescribedSetting:
    name: str
    value: str | None
    source: str
    type: str
    is_changed: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None
    # What would apply without this value, nearest first: (name, value, source).
    synonyms: tuple[tuple[str, str | None, str], ...]


@dataclass(frozen=True)
class Change:
    """A new value, or None to go back to what applies without one."""

    name: str
    value: str | None


def describe(cluster: Cluster, resource: Resource, names: Sequence[str] | None = None) -> list[DescribedSetting]:
    body = Struct(
        resources=[Struct(resource_type=resource.type_code, resource_name=resource.name, configuration_keys=names)],
        include_synonyms=True,
        include_documentation=True,
    )
    address = _address_for(cluster, resource)
    (result,) = request(cluster, address, DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, body).results
    problem = refusal(result.error_code, result.error_message)
    if problem:
        raise Failed(f"{resource.title}: {problem}")
    return sorted((_described(config) for config in result.configs), key=lambda setting: setting.name)


def _described(config: Any) -> DescribedSetting:
    return DescribedSetting(
        name=config.name,
        value=config.value,
        source=_SOURCES.get(config.config_source, "unknown"),
        type=_TYPES[config.config_type] if config.config_type < len(_TYPES) else "unknown",
        is_changed=config.config_source != _DEFAULT_SOURCE,
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        documentation=config.documentation,
        synonyms=tuple((each.name, each.value, _SOURCES.get(each.source, "unknown")) for each in config.synonyms),
    )


def alter(cluster: Cluster, resource: Resource, changes: Sequence[Change]) -> str | None:
    """Makes all the changes or none; why it was refused, None when it was not."""
    configs = [
        Struct(name=change.name, config_operation=_DELETE if change.value is None else _SET, value=change.value)
        for change in changes
    ]
    resources = [Struct(resource_type=resource.type_code, resource_name=resource.name, configs=configs)]
    body = Struct(resources=resources, validate_only=False)
    address = _address_for(cluster, resource)
    answer = request(cluster, address, INCREMENTAL_ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS_VERSION, body)
    (result,) = answer.responses
    return refusal(result.error_code, result.error_message)


def _address_for(cluster: Cluster, resource: Resource) -> tuple[str, int]:
    """One node's own settings are asked of that node; anything else of whoever answered first."""
    if resource.type_code != _BROKER or not resource.name:
        return cluster.address
    nodes = cluster.nodes()
    if int(resource.name) not in nodes:
        raise Failed(f"there is no node {resource.name}; there is {', '.join(map(str, sorted(nodes)))}")
    return nodes[int(resource.name)]
