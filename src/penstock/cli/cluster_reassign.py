"""penstock cluster reassign and drain: replicas to other nodes, planned, shown, done and watched."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import Failed, Misused
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption, Yes
from penstock.cli.printing import Output, human_bytes, note, plural, print_json, print_rows, say
from penstock.cli.reassign_plan import CannotPlace, Move, plan_moves

if TYPE_CHECKING:
    from penstock.cli.cluster_state import ClusterState, Place
    from penstock.cli.connection import Cluster

Throttle = Annotated[
    float,
    typer.Option(
        "--throttle",
        metavar="MB/S",
        min=0,
        show_default=False,
        help="On average copy no more than this: partitions start one after the other.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would move.")]
_LATE_ROUNDS_MAX = 3


def reassign(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", help="Only these topics.", show_default=False)
    ] = NONE_GIVEN,
    to: Annotated[
        str, typer.Option("--to", metavar="NODES", help="Onto these nodes only, as 1,2,3.", show_default=False)
    ] = "",
    replicas: Annotated[
        int,
        typer.Option("-r", "--replicas", min=0, help="So many replicas instead of what there is.", show_default=False),
    ] = 0,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A plan in the form of Kafka's tool, or of -o json.", show_default=False),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back what is moving now.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Only show what is moving now.")] = False,
    throttle: Throttle = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Spread replicas evenly over nodes and racks, moving as little as possible, and wait until they are there.

    penstock cluster reassign orders --to 1,2,4 --throttle 50
    """
    if sum(map(bool, (cancel, status, file is not None))) > 1:
        raise Misused("--file, --cancel and --status exclude each other")
    from penstock.cli.cluster_state import ask_state
    from penstock.cli.connection import connect

    nodes_wanted = _node_ids(to)
    cluster = connect(brokers, extra)
    if status or cancel:
        _show_moving(cluster, topics, output, cancel=cancel)
        return
    state = ask_state(cluster, with_sizes=True)
    if file is not None:
        moves = _moves_of_file(state, file)
    else:
        chosen = _chosen(state, topics)
        moves = _planned(state, chosen, _target_racks(state, nodes_wanted), replicas or None)
    _go(cluster, state, moves, throttle, output, dry_run=dry_run, yes=yes)


def drain(
    node: Annotated[int, typer.Argument(metavar="NODE", help="The node's id.", show_default=False)],
    throttle: Throttle = 0,
    dry_run: DryRun = False,
    yes: Yes = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move everything off a node, so that it can be taken away. What does not have to move stays where it is."""
    from penstock.cli.cluster_state import ask_state
    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    state = ask_state(cluster, with_sizes=True)
    if node not in state.nodes:
        raise Failed(f"there is no node {node}; there is {', '.join(map(str, state.nodes))}")
    has_moved = _go(cluster, state, _moves_off(state, node), throttle, output, dry_run=dry_run, yes=yes)
    # Topics made meanwhile may have come to the node: what is there now goes with another round.
    for _ in range(_LATE_ROUNDS_MAX if has_moved else 0):
        state = ask_state(cluster, with_sizes=True)
        moves = _moves_off(state, node)
        if not moves:
            break
        note(f"{plural(len(moves), 'partition')} came to node {node} meanwhile")
        _carry_out(cluster, state, moves, throttle)
    if state.quorum is not None and node in state.quorum.voter_lags:
        note(f"node {node} still votes in the metadata quorum: of its voters, most must run")


def _moves_off(state: "ClusterState", node: int) -> list[Move]:
    others = {other: one.rack for other, one in state.nodes.items() if other != node and not one.is_fenced}
    on_node = [place for place, replicas in _current(state).items() if node in replicas]
    return _planned(state, on_node, others, None, balanced=False)


def _node_ids(text: str) -> list[int]:
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if not all(piece.isdecimal() for piece in pieces):
        raise Misused(f"--to takes node ids, as 1,2,3, not '{text}'")
    return [int(piece) for piece in pieces]


def _target_racks(state: "ClusterState", wanted: list[int]) -> dict[int, str | None]:
    """The nodes to use, with their racks; by default all that serve. A fenced one could not catch up."""
    for node_id in wanted:
        if node_id not in state.nodes:
            raise Failed(f"there is no node {node_id}; there is {', '.join(map(str, state.nodes))}")
        if state.nodes[node_id].is_fenced:
            raise Failed(f"node {node_id} does not serve now, and could not take replicas")
    serving = [node_id for node_id, node in state.nodes.items() if not node.is_fenced]
    return {node_id: state.nodes[node_id].rack for node_id in wanted or serving}


def _chosen(state: "ClusterState", topics: list[str]) -> "list[Place]":
    known = {topic for topic, _ in state.partitions}
    for topic in topics:
        if topic not in known:
            raise Failed(f"there is no topic '{topic}'")
    return [place for place in state.partitions if not topics or place[0] in topics]


def _current(state: "ClusterState") -> "dict[Place, tuple[int, ...]]":
    """Where replicas are, or will be once what moves now has moved."""
    return {
        place: tuple(node for node in one.replicas if node not in one.removing)
        for place, one in state.partitions.items()
    }


def _planned(
    state: "ClusterState",
    chosen: "Iterable[Place]",
    racks: dict[int, str | None],
    replica_count: int | None,
    *,
    balanced: bool = True,
) -> list[Move]:
    try:
        return plan_moves(_current(state), racks, chosen=chosen, replica_count=replica_count, balanced=balanced)
    except CannotPlace as problem:
        raise Failed(
            f"{problem}. Add nodes, or ask for fewer replicas with `penstock cluster reassign -r`."
        ) from problem


def _moves_of_file(state: "ClusterState", file: Path) -> list[Move]:
    current = _current(state)
    moves = []
    try:
        for one in json.loads(file.read_text())["partitions"]:
            topic, partition, replicas = one["topic"], one["partition"], tuple(map(int, one["replicas"]))
            if (topic, partition) not in current:
                raise Failed(f"{file} has {topic}-{partition}, which is not there")
            if unknown := [node for node in replicas if node not in state.nodes]:
                raise Failed(f"{file} puts {topic}-{partition} on node {unknown[0]}, which is not there")
            moves.append(Move(topic, partition, current[topic, partition], replicas))
    except OSError as error:
        raise Failed(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f'{file} is no plan: it has {{"partitions": [{{"topic", "partition", "replicas"}}]}}') from error
    return [move for move in moves if move.before != move.after]


def _go(
    cluster: "Cluster",
    state: "ClusterState",
    moves: list[Move],
    throttle: float,
    output: Output,
    *,
    dry_run: bool,
    yes: bool,
) -> bool:
    """Whether anything moved."""
    rows = [_row(state, move) for move in moves]
    copied = sum(row["copies_bytes"] for row in rows)
    if output is Output.TEXT:
        _show(rows, copied)
    will_move = bool(moves) and not dry_run
    if will_move:
        if state.quorum is None:
            raise Failed(f"nothing can move without a controller, and there is none: {state.quorum_problem}")
        if not yes and not typer.confirm("Move them?", err=True):
            raise Failed("nothing was moved")
        _carry_out(cluster, state, moves, throttle)
    if output is Output.JSON:
        # Kafka's tool reads it too, and so does --file.
        print_json({"version": 1, "moved": will_move, "copies_bytes": copied, "partitions": rows})
    return will_move


def _show(rows: list[dict[str, Any]], copied: int) -> None:
    if not rows:
        say("nothing has to move")
        return
    columns = ["topic", "partition", "before", "replicas", "copies"]
    print_rows([row | {"copies": human_bytes(row["copies_bytes"])} for row in rows], columns, Output.TEXT)
    note(f"{plural(len(rows), 'partition')}, {human_bytes(copied)} to copy")


def _carry_out(cluster: "Cluster", state: "ClusterState", moves: list[Move], throttle: float) -> None:
    from penstock.cli.reassign_run import run_moves

    sizes = {move.place: state.size_of(move.place) * len(move.arriving) for move in moves}
    run_moves(cluster, moves, sizes, throttle * 1024 * 1024)


def _row(state: "ClusterState", move: Move) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "replicas": list(move.after),
        "before": list(move.before),
        "copies_bytes": state.size_of(move.place) * len(move.arriving),
    }


def _show_moving(cluster: "Cluster", topics: list[str], output: Output, *, cancel: bool) -> None:
    from penstock.cli.cluster_state import ask_moving
    from penstock.cli.reassign_run import alter

    moving = {place: both for place, both in ask_moving(cluster).items() if not topics or place[0] in topics}
    rows = [
        {"topic": topic, "partition": index, "arriving": list(adding), "leaving": list(removing)}
        for (topic, index), (adding, removing) in sorted(moving.items())
    ]
    print_rows(rows, ["topic", "partition", "arriving", "leaving"], output)
    if cancel and rows:
        alter(cluster, dict.fromkeys(moving))
        note(f"{plural(len(rows), 'move')} taken back")
