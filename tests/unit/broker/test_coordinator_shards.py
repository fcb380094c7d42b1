"""Which node coordinates a group or a transactional id, and which does not say."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.coordinator_shards import CoordinatorShards

TOPIC = "__consumer_offsets"


def make_shards(*, is_in_doubt: bool) -> CoordinatorShards[Any]:
    image = SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})
    broker: Any = SimpleNamespace(
        life=SimpleNamespace(is_in_doubt=is_in_doubt),
        image=SimpleNamespace(topics={TOPIC: image}, brokers={1: None}),
    )
    return CoordinatorShards(broker, TOPIC, lambda partition: pytest.fail("nothing is led here"))


def test_a_node_names_the_leader_of_the_partition() -> None:
    assert make_shards(is_in_doubt=False).node_of("group") == 1


@pytest.mark.parametrize("ask", ["node_of", "runner_of"])
def test_a_node_in_doubt_about_itself_neither_coordinates_nor_says_who_does(ask: str) -> None:
    """It would tell the offsets of the past."""
    with pytest.raises(Refused) as refused:
        getattr(make_shards(is_in_doubt=True), ask)("group")
    assert refused.value.code is ErrorCode.coordinator_not_available
