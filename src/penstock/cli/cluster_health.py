"""penstock cluster health and describe: whether anything needs a hand, and what the cluster is made of."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.failures import EXIT_FAILED
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption
from penstock.cli.printing import Output, human_bytes, plural, print_json, print_pairs, print_rows, say

if TYPE_CHECKING:
    from penstock.cli.cluster_state import ClusterState, NodeState, Place

_SHOWN_PLACES = 5


def health(
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell whether the cluster is healthy; exit code 1 if it is not.

    It is while it has a controller, all voters and brokers take part, and all replicas are in sync.
    """
    from penstock.cli.cluster_state import ask_state
    from penstock.cli.connection import connect

    report = health_report(ask_state(connect(brokers, extra)))
    if output is Output.JSON:
        print_json(report)
    else:
        problems = report.pop("problems")
        print_pairs(report)
        if problems:
            say()
            say("\n".join(problems))
    if not report["healthy"]:
        raise typer.Exit(EXIT_FAILED)


def health_report(state: "ClusterState") -> dict[str, Any]:
    quorum = state.quorum
    fenced = [node.id for node in state.nodes.values() if node.is_fenced]
    partitions = state.partitions
    offline = [place for place, one in partitions.items() if one.leader is None]
    under_replicated = [place for place, one in partitions.items() if one.is_under_replicated]
    under_min_isr = [place for place, one in partitions.items() if len(one.isr) < one.min_isr]
    problems = []
    if quorum is None or quorum.leader < 0:
        why = f": {state.quorum_problem}" if state.quorum_problem else ""
        problems.append(f"no controller{why}. Topics cannot be changed, nor can leaders; see that most voters run")
    elif quorum.silent_voters:
        problems.append(f"silent in the quorum: {_nodes(quorum.silent_voters)}. See that it runs")
    if fenced:
        problems.append(f"not serving: {_nodes(fenced)}. See that it runs and reaches the controller")
    for places, what in (
        (offline, "without a leader: nobody can read or write them until one of their in-sync replicas is back"),
        (under_min_isr, "with fewer in-sync replicas than min.insync.replicas: writes with acks=all are refused"),
        (under_replicated, "with replicas that are not in sync"),
    ):
        if places:
            problems.append(f"{plural(len(places), 'partition')} {what}: {_places(places)}")
    return {
        "healthy": not problems,
        "cluster": state.cluster_id,
        "controller": None if quorum is None or quorum.leader < 0 else quorum.leader,
        "voters": [] if quorum is None else list(quorum.voter_lags),
        "silent_voters": [] if quorum is None else list(quorum.silent_voters),
        "nodes": list(state.nodes),
        "fenced_nodes": fenced,
        "partitions": len(partitions),
        "offline": len(offline),
        "under_min_isr": len(under_min_isr),
        "under_replicated": len(under_replicated),
        "moving": sum(bool(one.adding or one.removing) for one in partitions.values()),
        "problems": problems,
    }


def _nodes(ids: Iterable[int]) -> str:
    numbers = [str(number) for number in ids]
    return f"node{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _places(places: "list[Place]") -> str:
    names = [f"{topic}-{index}" for topic, index in places[:_SHOWN_PLACES]]
    rest = len(places) - len(names)
    return ", ".join(names) + (f" and {rest:,} more" if rest else "")


def describe(
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the nodes with what each leads and holds, and the metadata quorum."""
    from penstock.cli.cluster_state import ask_state
    from penstock.cli.connection import connect

    state = ask_state(connect(brokers, extra), with_sizes=True)
    summary = _summary(state)
    nodes = _node_rows(state)
    if output is Output.JSON:
        print_json(summary | {"nodes": nodes})
        return
    print_pairs(summary)
    say()
    rows = [row | {"bytes": None if row["bytes"] is None else human_bytes(row["bytes"])} for row in nodes]
    columns = ["id", "host", "port", "rack", "state", "quorum", "lag", "leads", "replicas", "bytes"]
    print_rows(rows, columns, Output.TEXT)


def _summary(state: "ClusterState") -> dict[str, Any]:
    quorum = state.quorum
    return {
        "cluster": state.cluster_id,
        "controller": None if quorum is None else quorum.leader,
        "epoch": None if quorum is None else quorum.epoch,
        "metadata_offset": None if quorum is None else quorum.high_watermark,
        "topics": len({topic for topic, _ in state.partitions}),
        "partitions": len(state.partitions),
    }


def _node_rows(state: "ClusterState") -> list[dict[str, Any]]:
    leads, replicas = state.leader_counts(), state.replica_counts()
    rows = []
    for node in state.nodes.values():
        part, lag = _part_in_quorum(state, node)
        sizes = state.bytes_by_node.get(node.id)
        rows.append(
            {
                "id": node.id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "state": "fenced" if node.is_fenced else "serving",
                "quorum": part,
                "lag": lag,
                "leads": leads[node.id],
                "replicas": replicas[node.id],
                "bytes": None if sizes is None else sum(sizes.values()),
            }
        )
    return rows


def _part_in_quorum(state: "ClusterState", node: "NodeState") -> tuple[str | None, int | None]:
    quorum = state.quorum
    if quorum is None:
        return None, None
    if node.id in quorum.voter_lags:
        return "leader" if node.id == quorum.leader else "voter", quorum.voter_lags[node.id]
    return ("observer", quorum.observer_lags[node.id]) if node.id in quorum.observer_lags else (None, None)
