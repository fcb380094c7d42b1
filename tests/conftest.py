"""Nodes as processes, for the tests that prove things from outside (conformance, e2e, fuzz)."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.e2e.node import Node

MakeBroker = Callable[..., Node]

# The same examples in every run, so that what fails was changed; others are looked for by hand, with `make explore`.
# How long one takes says more about the machine.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("fixed")


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """Starts nodes of the test's own: `make_broker("-X", "name=value", data=...)`. Ends them all, and checks that they
    end cleanly and met no defect."""
    made: list[Node] = []

    def make(*arguments: str, data: Path | None = None) -> Node:
        node = Node(data or tmp_path / f"data-{len(made)}", *arguments)
        made.append(node)
        return node.start()

    yield make
    _close(made)


@pytest.fixture
def broker(make_broker: MakeBroker) -> Node:
    """A node of the test's own."""
    return make_broker()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all tests of the session that only need some broker: they use topics of their own."""
    node = Node(tmp_path_factory.mktemp("shared") / "data").start()
    yield node
    _close([node])


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


def _close(nodes: list[Node]) -> None:
    problems = []
    for node in nodes:
        try:
            node.close()
        except AssertionError as problem:
            problems.append(problem)
    if problems:
        raise problems[0]
