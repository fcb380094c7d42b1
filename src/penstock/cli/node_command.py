"""penstock node: one node of a cluster on real hosts, in the foreground, for systemd and its kin."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failures import Failed, Misused
from penstock.cli.node_file import NodeFile, read_node_file
from penstock.cli.printing import note, say


def node(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="What the node is, in TOML.")],
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines, without encryption or authentication.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check the file.")] = False,
) -> None:
    """Run one node of a cluster in the foreground; SIGTERM ends it, after its leaders have moved.

    docs/production.md has an example of the file, and of a systemd unit.
    """
    found = read_node_file(config)
    if not found.is_local and not insecure:
        raise Misused(
            f"{config} lets other machines connect to {found.host}:{found.port}, where everyone may read and write: "
            "there is no encryption and no authentication yet. If only trusted machines can reach it, say --insecure."
        )
    _check_settings(found, config)
    if check:
        say(f"{config} describes node {found.node_id}")
        return
    _run(found)


def _check_settings(found: NodeFile, config: Path) -> None:
    from penstock.base.settings import InvalidSettings, NodeSettings

    try:
        NodeSettings(found.overrides)
    except InvalidSettings as error:
        raise Failed("\n  ".join([f"{config} has settings that cannot be:", *error.problems])) from error


def _run(found: NodeFile) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    from penstock.broker.node import NodeConfig, StartRefused, run

    try:
        run(
            NodeConfig(
                found.node_id, found.data_directory, found.host, found.port, found.overrides, found.metrics_port
            ),
            on_ready=lambda address: say(f"ready {address}"),
            on_metrics=lambda address: note(f"metrics at http://{address}/metrics"),
        )
    except StartRefused as refusal:
        raise Failed(f"node {found.node_id} did not start: {refusal}") from refusal
