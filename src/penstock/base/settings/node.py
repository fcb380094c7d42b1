"""One node's settings: what it was started with, what was altered since, and the typed values in force.

    topic's own value > altered on this node > altered for all nodes > given at the start > default

The last four are here; a topic's own values are laid over them by `topic_values`. Parsing happens when a layer
changes, so reading a value is a dictionary lookup and all topics without values of their own share one mapping.
"""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.base.settings.brokers import BROKER_SETTINGS, FAMILIES, NOT_OURS
from penstock.base.settings.definition import InvalidConfig, InvalidValue
from penstock.base.settings.topics import TOPIC_SETTINGS

if TYPE_CHECKING:
    from penstock.base.settings.effective import Described

FAMILY_OF = {name: family for family in FAMILIES for name in family}


class InvalidSettings(ValueError):
    """The node cannot start with these; `problems` has a sentence for each, and the message all of them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class NodeSettings:
    """Current values by name: `settings["num.partitions"]`. A setting without default and value is None."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        """`overrides` are names and texts, as given with -X. Raises InvalidSettings."""
        self.static: Mapping[str, str] = dict(overrides or {})
        self.cluster_dynamic: Mapping[str, str] = {}
        self.node_dynamic: Mapping[str, str] = {}
        if problems := _problems(self.static):
            raise InvalidSettings(problems)
        self._refresh()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def text(self, name: str) -> str | None:
        """The value in force as it goes on the wire."""
        return BROKER_SETTINGS[name].text(self._values[name])

    def use_dynamic(self, cluster: Mapping[str, str], node: Mapping[str, str]) -> None:
        """Takes over what was altered for all nodes and for this one. They were checked when they were written."""
        self.cluster_dynamic = dict(cluster)
        self.node_dynamic = dict(node)
        self._refresh()

    def topic_values(self, overrides: Mapping[str, str]) -> Mapping[str, Any]:
        """A topic's settings in force, typed, by name. `overrides` are its own, checked when they were written."""
        if not overrides:
            return self._topic_defaults
        values = dict(self._topic_defaults)
        for name, text in overrides.items():
            if (setting := TOPIC_SETTINGS.get(name)) is not None:
                values[name] = setting.parse(text)
        return values

    def _refresh(self) -> None:
        # Kept here for `effective.describe_topic`, so that it goes when the values change.
        self.described_topic_defaults: Mapping[str, Described] | None = None
        in_force = dict(self.static)
        for layer in (self.cluster_dynamic, self.node_dynamic):
            for name, text in layer.items():
                for relative in FAMILY_OF.get(name, ()):
                    in_force.pop(relative, None)
                in_force[name] = text
        self._values: dict[str, Any] = {
            name: setting.parse(in_force[name]) if name in in_force else setting.parsed_default()
            for name, setting in BROKER_SETTINGS.items()
        }
        self._topic_defaults: Mapping[str, Any] = MappingProxyType(
            {name: self._topic_default(name) for name in TOPIC_SETTINGS}
        )

    def _topic_default(self, name: str) -> Any:
        setting = TOPIC_SETTINGS[name]
        for synonym in setting.synonyms:
            value = self._values[synonym.name]
            if value is not None:
                return value * synonym.factor if synonym.factor != 1 else value
        return setting.parsed_default()


def check_broker_overrides(overrides: Mapping[str, str]) -> None:
    """Whether these may be altered while nodes run. Raises InvalidConfig.

    Names that are not in the table pass, as in Kafka: its tools set some (replication throttles) that are no settings
    of the broker otherwise.
    """
    fixed = [name for name in overrides if name in BROKER_SETTINGS and not BROKER_SETTINGS[name].dynamic]
    if fixed:
        raise InvalidConfig(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    for name, text in overrides.items():
        if name in BROKER_SETTINGS:
            BROKER_SETTINGS[name].parse(text)


def _problems(overrides: Mapping[str, str]) -> list[str]:
    problems = []
    for name, text in overrides.items():
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            problems.append(_unknown(name))
            continue
        try:
            setting.parse(text)
        except InvalidValue as error:
            shown = "(hidden)" if setting.is_sensitive else repr(text)
            default = "there is no default" if setting.default is None else f"the default is {setting.default!r}"
            problems.append(
                f"{name} cannot be {shown}: {error.complaint[0].lower()}{error.complaint[1:]}. "
                f"It is of type {setting.kind.name.lower()}; {default}. {setting.doc}"
            )
    return problems


def _unknown(name: str) -> str:
    if name in NOT_OURS:
        return f"{name} is a setting of Apache Kafka that Penstock does not have: {NOT_OURS[name]}. Leave it out."
    if name in TOPIC_SETTINGS:
        synonyms = TOPIC_SETTINGS[name].synonyms
        instead = f" To change it for all topics, set {synonyms[0].name}." if synonyms else ""
        return f"{name} is a setting of a topic, not of a node.{instead}"
    nearest = difflib.get_close_matches(name, BROKER_SETTINGS, n=1)
    if nearest:
        return f"There is no setting {name!r}. Did you mean {nearest[0]}?"
    return f"There is no setting {name!r}; docs/settings.md lists them all."
