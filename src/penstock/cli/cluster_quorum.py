"""penstock cluster promote and demote: who votes in the metadata quorum, one node at a time."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.errors import ErrorCode
from penstock.cli.failures import Failed
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, Yes
from penstock.cli.printing import note, say

if TYPE_CHECKING:
    from penstock.cli.cluster_state import QuorumState
    from penstock.cli.connection import Cluster
    from penstock.protocol.messages import Struct

_ADD_VOTER, _ADD_VOTER_VERSION = 80, 1
_REMOVE_VOTER, _REMOVE_VOTER_VERSION = 81, 0
_LISTENER = "CONTROLLER"
_TIMEOUT_MS = 10_000
# A node that has just come may still be behind, and two changes cannot be under way at once.
_PATIENCE_SECONDS = 15.0
_PAUSE_SECONDS = 0.3

Node = Annotated[int, typer.Argument(metavar="NODE", help="The node's id.")]


def promote(
    node: Node,
    address: Annotated[
        str,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            show_default=False,
            help="Where the other controllers reach it, if it is no broker, or not by the address that clients use.",
        ),
    ] = "",
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
) -> None:
    """Let a node vote that has joined the cluster (join = [...] in its file): the quorum grows by it.

    penstock cluster promote 2
    """
    from penstock.cli.cluster_state import ask_nodes, ask_quorum
    from penstock.cli.connection import connect, host_and_port
    from penstock.protocol.messages import Struct

    cluster = connect(brokers, extra)
    quorum = ask_quorum(cluster)
    if node in quorum.voter_lags:
        raise Failed(f"node {node} votes already")
    if node not in quorum.observer_lags:
        raise Failed(
            f"node {node} does not follow the metadata. Start it with join = [...] in its file, and wait until it is "
            "ready"
        )
    cluster_id, nodes = ask_nodes(cluster)
    if address:
        host, port = host_and_port(address)
    elif node in nodes:
        host, port = nodes[node].host, nodes[node].port
    else:
        raise Failed(f"node {node} is no broker: say with --address where the other controllers reach it")
    body = Struct(
        cluster_id=cluster_id,
        timeout_ms=_TIMEOUT_MS,
        voter_id=node,
        voter_directory_id=quorum.directories[node],
        listeners=[Struct(name=_LISTENER, host=host, port=port)],
        ack_when_committed=True,
    )
    _ask(cluster, _ADD_VOTER, _ADD_VOTER_VERSION, body)
    _show(ask_quorum(cluster))


def demote(
    node: Node,
    yes: Yes = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
) -> None:
    """Take a node out of those that vote. It goes on as a broker; its data stays where it is.

    penstock cluster demote 2
    """
    from penstock.cli.cluster_state import ask_nodes, ask_quorum
    from penstock.cli.connection import connect
    from penstock.protocol.messages import Struct

    cluster = connect(brokers, extra)
    quorum = ask_quorum(cluster)
    if node not in quorum.voter_lags:
        raise Failed(f"node {node} does not vote; those that do: {_listed(quorum)}")
    left = len(quorum.voter_lags) - 1
    if left == 2 and not yes:
        typer.confirm("Of two voters both must run, or nothing can be changed. Go on?", abort=True)
    cluster_id, _ = ask_nodes(cluster)
    body = Struct(cluster_id=cluster_id, voter_id=node, voter_directory_id=quorum.directories[node])
    _ask(cluster, _REMOVE_VOTER, _REMOVE_VOTER_VERSION, body)
    _show(ask_quorum(cluster))


def _ask(cluster: "Cluster", api_key: int, version: int, body: "Struct") -> None:
    """Again while the quorum is not ready for it."""
    from penstock.cli.wire import refusal, request

    deadline_s = time.monotonic() + _PATIENCE_SECONDS
    while True:
        answer: Any = request(cluster, cluster.address, api_key, version, body)
        problem = refusal(ErrorCode(answer.error_code), answer.error_message)
        if problem is None:
            return
        if answer.error_code != ErrorCode.request_timed_out or time.monotonic() > deadline_s:
            raise Failed(problem)
        time.sleep(_PAUSE_SECONDS)


def _show(quorum: "QuorumState") -> None:
    say(f"voters: {_listed(quorum)}")
    if len(quorum.voter_lags) % 2 == 0:
        note("an even number of voters survives no more failures than one voter less")


def _listed(quorum: "QuorumState") -> str:
    return ", ".join(str(one) for one in sorted(quorum.voter_lags))
