"""kcat -G: a balanced consumer in a shell."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.conformance.confluent import create
from tests.conformance.group_clients import eager_node, fill, new_group
from tests.e2e.node import Node

pytestmark = pytest.mark.kcat


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = eager_node(tmp_path_factory.mktemp("kcat-groups") / "data").start()
    yield node
    node.close()


def kcat(node: Node, group_id: str, topic: str, count: int) -> list[int]:
    command = ["kcat", "-b", node.bootstrap, "-G", group_id, "-q", "-c", str(count), "-X", "auto.offset.reset=earliest"]
    printed = subprocess.run([*command, topic], stdout=subprocess.PIPE, timeout=60, check=True).stdout
    return sorted(int(line) for line in printed.split())


def test_it_reads_everything_and_goes_on_where_it_stopped(node: Node, topic_name: str) -> None:
    create(node, topic_name, 3)
    fill(node, topic_name, 60, 3)
    group_id = new_group()
    assert kcat(node, group_id, topic_name, 60) == list(range(60))
    fill(node, topic_name, 30, 3, start=60)
    assert kcat(node, group_id, topic_name, 30) == list(range(60, 90))
    assert kcat(node, new_group(), topic_name, 90) == list(range(90))
