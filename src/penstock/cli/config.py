"""penstock config (and penstock cluster config): settings of nodes and topics, where they come from, what they mean."""

import re
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import Failed, Misused
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption, parse_pairs
from penstock.cli.printing import Output, note, print_json, print_pairs, print_rows, say

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster
    from penstock.cli.settings_requests import DescribedSetting, Resource

app = typer.Typer(help="Show and change settings of the cluster, of a node or of a topic.", no_args_is_help=True)

Topic = Annotated[str, typer.Option("--topic", "-t", help="A topic's settings.", show_default=False)]
Node = Annotated[
    int | None,
    typer.Option("--node", help="One node's settings. Without: the cluster's.", show_default=False),
]


@app.command("list")
def list_settings(
    pattern: Annotated[str, typer.Argument(metavar="REGEX", help="Only names that match.", show_default=False)] = "",
    topic: Topic = "",
    node: Node = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not at its default.")] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """List settings with their values and where these come from."""
    try:
        matches = re.compile(pattern).search
    except re.error as error:
        raise Misused(f"'{pattern}' is not a regular expression: {error}") from error
    _, settings = _described(brokers, extra, topic, node)
    chosen = [setting for setting in settings if matches(setting.name) and (setting.is_changed or not changed)]
    rows = [
        {"name": setting.name, "value": _value(setting), "source": setting.source, "type": setting.type}
        for setting in chosen
    ]
    print_rows(rows, ["name", "value", "source"], output)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The setting.", show_default=False)],
    topic: Topic = "",
    node: Node = None,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show one setting: value, source, meaning."""
    resource, settings = _described(brokers, extra, topic, node)
    setting = _named(name, settings, resource)
    if output is Output.JSON:
        print_json(
            {
                "name": setting.name,
                "value": setting.value,
                "source": setting.source,
                "type": setting.type,
                "read_only": setting.is_read_only,
                "documentation": setting.documentation,
                "synonyms": [{"name": n, "value": v, "source": s} for n, v, s in setting.synonyms],
            }
        )
        return
    pairs = {"name": setting.name, "value": _value(setting), "source": setting.source, "type": setting.type}
    if setting.is_read_only:
        pairs["changes"] = "only at start-up: penstock up -X " + setting.name + "=..."
    print_pairs(pairs)
    for synonym_name, value, source in setting.synonyms[1:]:
        say(f"  otherwise {synonym_name}={'' if value is None else value} ({source})")
    if setting.documentation:
        say()
        say(textwrap.fill(re.sub(r"<[^>]*>", "", setting.documentation), 100))


@app.command("set")
def set_settings(
    pairs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="New values.", show_default=False)],
    topic: Topic = "",
    node: Node = None,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
) -> None:
    """Set settings; they take effect at once.

    penstock config set log.retention.ms=3600000
    penstock config set retention.ms=3600000 --topic orders
    """
    # rpk writes `set NAME VALUE`.
    if len(pairs) == 2 and "=" not in pairs[0]:
        pairs = ["=".join(pairs)]
    _alter(parse_pairs(pairs, "set"), brokers, extra, topic, node)


@app.command()
def reset(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Settings.", show_default=False)],
    topic: Topic = "",
    node: Node = None,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
) -> None:
    """Take back what was set: the default applies again."""
    _alter(dict.fromkeys(names), brokers, extra, topic, node)


def _alter(
    values: dict[str, str] | dict[str, None], brokers: str, extra: list[str], topic: str, node: int | None
) -> None:
    from penstock.cli.connection import connect
    from penstock.cli.settings_requests import Change, alter

    resource = _resource(topic, node)
    problem = alter(connect(brokers, extra), resource, [Change(name, value) for name, value in values.items()])
    if problem:
        raise Failed(f"{resource.title} was not changed: {problem}")
    for name, value in values.items():
        note(
            f"{resource.title}: {name} is back to its default" if value is None else f"{resource.title}: {name}={value}"
        )


def _resource(topic: str, node: int | None) -> "Resource":
    from penstock.cli.settings_requests import node_resource, topic_resource

    if topic and node is not None:
        raise Misused("--topic and --node exclude each other")
    return topic_resource(topic) if topic else node_resource(node)


def _described(
    brokers: str, extra: list[str], topic: str, node: int | None
) -> "tuple[Resource, list[DescribedSetting]]":
    from penstock.cli.connection import connect
    from penstock.cli.settings_requests import describe, node_resource

    resource = _resource(topic, node)
    cluster = connect(brokers, extra)
    if not topic and node is None:
        # Asked for the cluster, brokers list only what was changed there; the values in force are a node's.
        resource = node_resource(_first_node(cluster))
    return resource, describe(cluster, resource)


def _first_node(cluster: "Cluster") -> int:
    return min(cluster.nodes())


def _named(name: str, settings: "list[DescribedSetting]", resource: "Resource") -> "DescribedSetting":
    import difflib

    by_name = {setting.name: setting for setting in settings}
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=1)
        raise Failed(f"{resource.title} has no setting '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    return by_name[name]


def _value(setting: "DescribedSetting") -> str | None:
    return "(hidden)" if setting.is_sensitive else setting.value
