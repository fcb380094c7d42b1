"""Nodes that do not belong to the cluster are refused, with words that say what to do, and harm nothing."""

import pytest

from penstock.cli.children import NodeChild, NodeOptions
from tests.e2e.cluster.nodes import HOST, Cluster, NotStarted, await_ready
from tests.e2e.node import free_port


def refusal_of(child: NodeChild) -> str:
    with pytest.raises(NotStarted) as raised:
        await_ready(child)
    child.forget()
    return str(raised.value)


def test_who_does_not_belong_is_refused_with_words(cluster: Cluster) -> None:
    cluster.create_topic("kept")
    epoch_before = max_quorum_epoch(cluster)
    elsewhere = cluster.data.parent / "elsewhere"

    twin = refusal_of(cluster.child(2, port=free_port(), directory=elsewhere))
    assert "another node with the id 2 is running" in twin
    assert "Give this one an id of its own" in twin

    cluster.stop_node(3)
    properties = cluster.data / "node-3" / "meta.properties"
    own = properties.read_text()
    properties.write_text("".join(_foreign(line) for line in own.splitlines(keepends=True)))
    foreign = refusal_of(cluster.child(3))
    assert "belongs to another cluster" in foreign
    assert "controller.quorum.voters" in foreign
    properties.write_text(own)

    borrowed = NodeOptions(2, str(cluster.data / "node-3"), HOST, free_port(), cluster.settings)
    assert "belongs to node 3, not 2" in refusal_of(NodeChild(borrowed, elsewhere))
    in_use = NodeOptions(1, str(cluster.data / "node-1"), HOST, free_port(), cluster.settings)
    assert "in use by another node" in refusal_of(NodeChild(in_use, elsewhere))

    # And none of that has disturbed the others, or what the refused directory holds.
    assert max_quorum_epoch(cluster) <= epoch_before + 1
    cluster.start_node(3)
    cluster.await_in_sync("kept")


def _foreign(line: str) -> str:
    return "cluster.id=MkU3OEVBNTcwNTJENDM2Qg\n" if line.startswith("cluster.id=") else line


def max_quorum_epoch(cluster: Cluster) -> int:
    lines = [line for node_id in cluster.ports for line in cluster.log(node_id).splitlines() if " epoch " in line]
    return max(int(line.split(" epoch ")[1].split()[0]) for line in lines)
