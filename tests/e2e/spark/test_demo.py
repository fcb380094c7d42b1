"""What `make up` ends with: orders, and a Spark pipeline on them that counts the large ones, exactly once."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import penstock.arrow
from penstock.pipeline.demo import COUNTS, ORDERS
from tests.e2e.node import Node, wait_until
from tests.e2e.spark.conftest import TEST_SECONDS_MAX

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(TEST_SECONDS_MAX),
]

RESULT_SECONDS_MAX = 180
WINDOW_SECONDS = 5


def values(node: Node, topic: str) -> list[dict[str, Any]]:
    table = penstock.arrow.read(topic, bootstrap_servers=node.bootstrap, columns=["value"])
    return [json.loads(value) for value in table["value"].to_pylist()]


def window_of(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) // WINDOW_SECONDS


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Node]:
    """Not started yet."""
    node = Node(tmp_path / "data", has_demo=True)
    yield node
    node.close()


def test_large_orders_are_counted_once_although_it_was_stopped_and_started(demo: Node) -> None:
    for _ in range(2):
        demo.start()
        wait_until(lambda: "first result" in demo.output, "the demo has a result", RESULT_SECONDS_MAX)
        demo.stop()
    demo.has_demo = False
    demo.start()
    large = [order for order in values(demo, ORDERS) if order["amount"] > 100]
    expected = Counter((window_of(order["ordered_at"]), order["region"]) for order in large)
    results = [
        ((window_of(result["window_start"]), result["region"]), result["orders"]) for result in values(demo, COUNTS)
    ]
    assert len(results) == len(dict(results)), "a window and region stand twice"
    # The pipeline was started in the middle of the first window.
    first = min(window for (window, _), _ in results)
    later = {key: count for key, count in results if key[0] > first}
    assert later
    assert later == {key: expected[key] for key in later}
