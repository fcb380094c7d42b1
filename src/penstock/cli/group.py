"""penstock group: list, describe, seek, reset, delete."""

from typing import Annotated

import typer

from penstock.cli.failures import EXIT_FAILED, Misused, error_of, sentence_of
from penstock.cli.group_describe import describe
from penstock.cli.group_reset import reset
from penstock.cli.group_seek import seek
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption
from penstock.cli.printing import Output, print_rows

app = typer.Typer(help="Look at consumer groups, move them and delete them.", no_args_is_help=True)

# As people may write them: in any case, with or without separators.
_STATES = {
    state.lower(): state
    for state in (
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Assigning",
        "Reconciling",
        "Stable",
        "Dead",
    )
}
_TYPES = ("classic", "consumer", "share", "streams")


def list_groups(
    states: Annotated[
        list[str], typer.Option("--state", "-s", metavar="STATE", help="Only in this state: stable,empty; repeatable.")
    ] = NONE_GIVEN,
    types: Annotated[
        list[str], typer.Option("--type", "-t", metavar="TYPE", help="Only of this type: classic or consumer.")
    ] = NONE_GIVEN,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """List groups.

    penstock group list --state empty
    """
    wanted_states = [_state(text) for text in _pieces(states)]
    wanted_types = [_type(text) for text in _pieces(types)]
    from penstock.cli.connection import connect
    from penstock.cli.group_requests import list_groups as ask

    rows = [
        {"group": group.name, "type": group.type, "state": group.state, "protocol_type": group.protocol_type}
        for group in ask(connect(brokers, extra), wanted_states, wanted_types)
    ]
    print_rows(rows, ["group", "type", "state"], output)


def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="Group names.", show_default=False)],
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete groups with their committed offsets. Only groups without members can be deleted."""
    from confluent_kafka import KafkaException

    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    futures = cluster.asked(lambda: cluster.admin().delete_consumer_groups(list(dict.fromkeys(names))))
    rows = []
    for name, future in futures.items():
        problem = None
        try:
            future.result()
        except KafkaException as exception:
            problem = sentence_of(error_of(exception))
        rows.append({"group": name, "status": "failed" if problem else "deleted", "error": problem})
    failed = any(row["error"] for row in rows)
    print_rows(rows, ["group", "status", "error"] if failed else ["group", "status"], output)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _pieces(texts: list[str]) -> list[str]:
    return [piece.strip() for text in texts for piece in text.split(",") if piece.strip()]


def _state(text: str) -> str:
    state = _STATES.get(text.lower().replace("-", "").replace("_", ""))
    if state is None:
        raise Misused(f"there is no state '{text}': --state takes {', '.join(_STATES.values())}")
    return state


def _type(text: str) -> str:
    if text.lower() not in _TYPES:
        raise Misused(f"there is no type '{text}': --type takes {', '.join(_TYPES)}")
    return text.lower()


app.command("list")(list_groups)
app.command()(describe)
app.command()(seek)
app.command()(reset)
app.command()(delete)
