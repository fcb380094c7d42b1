"""penstock cluster: who is in it, how it is, and where its data is."""

import typer

from penstock.cli.cluster_health import describe, health
from penstock.cli.cluster_quorum import demote, promote
from penstock.cli.cluster_reassign import drain, reassign
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption
from penstock.cli.printing import Output, print_json, print_pairs, print_rows, say

app = typer.Typer(help="Look at the cluster and its settings, and move its data.", no_args_is_help=True)


@app.command()
def info(
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the cluster's id, its nodes and how much they hold."""
    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    metadata = cluster.metadata()
    described = cluster.answer(cluster.admin().describe_cluster())
    controller = described.controller.id if described.controller is not None else None
    nodes = [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == controller,
        }
        for node in sorted(described.nodes, key=lambda node: node.id)
    ]
    partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
    summary = {
        "cluster": described.cluster_id,
        "nodes": len(nodes),
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "without_leader": sum(partition.leader < 0 for partition in partitions),
        "under_replicated": sum(len(partition.isrs) < len(partition.replicas) for partition in partitions),
    }
    if output is Output.JSON:
        print_json(summary | {"nodes": nodes})
        return
    print_pairs(summary)
    say()
    print_rows(nodes, ["id", "host", "port", "rack", "controller"], Output.TEXT)


app.command()(health)
app.command()(describe)
app.command()(reassign)
app.command()(drain)
app.command()(promote)
app.command()(demote)
