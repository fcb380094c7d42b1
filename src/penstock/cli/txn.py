"""penstock txn: list, describe, abort."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import Failed, Misused
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption, Yes
from penstock.cli.printing import Output, is_terminal, note, print_json, print_pairs, print_rows

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster
    from penstock.cli.txn_requests import Transaction

app = typer.Typer(help="Look at transactions, and end those that hang.", no_args_is_help=True)

_STATES = {
    state.lower(): state
    for state in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
}
_COLUMNS = ["transaction", "state", "producer_id", "epoch", "age", "timeout", "partitions"]


def list_transactions(
    states: Annotated[
        list[str], typer.Option("--state", "-s", metavar="STATE", help="Only in this state: ongoing; repeatable.")
    ] = NONE_GIVEN,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """List transactional ids, and how long their transactions have been open.

    penstock txn list --state ongoing
    """
    wanted = [_state(piece.strip()) for text in states for piece in text.split(",")]
    from penstock.cli.connection import connect
    from penstock.cli.txn_requests import list_transactions as ask
    from penstock.cli.txn_requests import now_ms

    rows = [_row(one, now_ms(), output) for one in ask(connect(brokers, extra), wanted)]
    if output is Output.TEXT:
        rows = [row | {"partitions": len(row["partitions"])} for row in rows]
    print_rows(rows, _COLUMNS, output)


def describe(
    name: Annotated[str, typer.Argument(metavar="TRANSACTIONAL-ID", help="The transaction.", show_default=False)],
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show one transactional id: its producer, its transaction and what that has written to."""
    from penstock.cli.connection import connect
    from penstock.cli.txn_requests import describe_transaction, now_ms

    row = _row(describe_transaction(connect(brokers, extra), name), now_ms(), output)
    if output is Output.JSON:
        print_json(row)
    else:
        print_pairs(row)


def abort(
    name: Annotated[
        str, typer.Argument(metavar="[TRANSACTIONAL-ID]", help="The transaction.", show_default=False)
    ] = "",
    topic: Annotated[
        str, typer.Option("--topic", help="End what hangs in a partition of this topic.", show_default=False)
    ] = "",
    partition: Annotated[int, typer.Option("--partition", "-p", help="Which one.", show_default=False)] = -1,
    producer_id: Annotated[
        int, typer.Option("--producer-id", help="Whose transaction, if several hang.", show_default=False)
    ] = -1,
    yes: Yes = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
) -> None:
    """Abort a transaction.

    By its id: its producer is fenced, and its transaction aborted in all partitions. With --topic and --partition: only
    there, for one that no coordinator knows of any more and that keeps committed reads from getting on.

    penstock txn abort payments-1
    penstock txn abort --topic orders --partition 0
    """
    if bool(name) == bool(topic) or (topic and partition < 0):
        raise Misused("say which one: a transactional id, or --topic and --partition")
    from penstock.cli.connection import connect
    from penstock.cli.txn_requests import abort_transaction, describe_transaction

    cluster = connect(brokers, extra)
    if topic:
        _abort_in_partition(cluster, topic, partition, producer_id, yes)
        return
    found = describe_transaction(cluster, name)
    _confirm(f"Abort the transaction of '{name}' ({found.state}) and fence its producer?", yes)
    abort_transaction(cluster, name)
    note(f"{name}: aborted")


def _abort_in_partition(cluster: "Cluster", topic: str, partition: int, producer_id: int, yes: bool) -> None:
    from penstock.cli.txn_requests import abort_in_partition, open_transactions

    found = [one for one in open_transactions(cluster, topic, partition) if producer_id in (-1, one.producer_id)]
    if not found:
        raise Failed(f"no such transaction is open in {topic}-{partition}")
    if len(found) > 1:
        ids = ", ".join(str(one.producer_id) for one in found)
        raise Misused(f"several transactions are open in {topic}-{partition}: choose one by --producer-id {ids}")
    (hanging,) = found
    _confirm(
        f"Abort the transaction of producer {hanging.producer_id} in {topic}-{partition}, open since offset "
        f"{hanging.start_offset}? Do this only if no coordinator knows of it (penstock txn list).",
        yes,
    )
    abort_in_partition(cluster, topic, partition, hanging)
    note(f"{topic}-{partition}: the transaction of producer {hanging.producer_id} is aborted")


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise Misused(f"{question} Nobody is here to answer: say --yes")
    typer.confirm(question, abort=True, err=True)


def _row(one: "Transaction", now_ms: int, output: Output) -> dict[str, Any]:
    row: dict[str, Any] = {
        "transaction": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "epoch": one.producer_epoch,
    }
    age_ms = one.age_ms(now_ms)
    if output is Output.JSON:
        row |= {"age_ms": age_ms, "timeout_ms": one.timeout_ms}
    else:
        row["age"] = None if age_ms is None else _seconds(age_ms)
        row["timeout"] = "never" if one.timeout_ms is None else _seconds(one.timeout_ms)
    return row | {"partitions": one.partitions}


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:,.1f} s"


def _state(text: str) -> str:
    state = _STATES.get(text.lower().replace("-", "").replace("_", ""))
    if state is None:
        raise Misused(f"there is no state '{text}'; there are {', '.join(_STATES.values())}")
    return state


app.command("list")(list_transactions)
app.command("describe")(describe)
app.command("abort")(abort)
