"""One node for all fuzz tests of the session, watched while each of them runs."""

from collections.abc import Iterator

import pytest

from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node
from tests.fuzz.fuzzing import GROWTH_BYTES_MAX, Target, Watcher

# Topics whose settings make the broker look at batches in different ways.
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "repacked": {"compression.type": "gzip"},
    "bounded": {"message.timestamp.before.max.ms": "1000"},
}


@pytest.fixture(scope="session")
def fuzzed_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("fuzzed") / "data").start()
    with Wire(node.port) as wire:
        for name, configs in TOPICS.items():
            create_topic(wire, name, 2, dict(configs))
    yield node
    node.close()


@pytest.fixture
def target(fuzzed_node: Node) -> Iterator[Target]:
    target = Target(fuzzed_node)
    watcher = Watcher(fuzzed_node)
    watcher.start()
    fuzzed_node.forget_peak()
    before = fuzzed_node.resident_bytes
    yield target
    watcher.finish()
    target.check_log()
    assert fuzzed_node.resident_bytes_peak - before < GROWTH_BYTES_MAX
