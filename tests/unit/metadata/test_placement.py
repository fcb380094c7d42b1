from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.image import BrokerImage
from penstock.cluster.metadata.placement import place_replicas
from penstock.cluster.metadata.records import RegisterBrokerRecord


class FixedRandom:
    def __init__(self, number: int) -> None:
        self._number = number

    def random_bytes(self, count: int) -> bytes:
        return (self._number % (1 << 8 * count)).to_bytes(count, "big")


def brokers(*racks: str | None, fenced: frozenset[int] = frozenset()) -> list[BrokerImage]:
    return [
        BrokerImage(
            RegisterBrokerRecord(
                broker_id=broker_id, incarnation_id=None, broker_epoch=0, end_points=(), features=(), rack=rack,
                fenced=broker_id in fenced,
            )
        )
        for broker_id, rack in enumerate(racks, start=1)
    ]  # fmt: skip


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    partitions=st.integers(1, 30),
    start=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_every_partition_has_distinct_replicas_led_by_a_serving_broker_spread_over_racks(
    racks: list[str | None], partitions: int, start: int, data: st.DataObject
) -> None:
    ids = range(1, len(racks) + 1)
    fenced = frozenset(data.draw(st.sets(st.sampled_from(ids), max_size=len(racks) - 1)))
    factor = data.draw(st.integers(1, len(racks)))
    placement = place_replicas(brokers(*racks, fenced=fenced), partitions, factor, FixedRandom(start))
    assert len(placement) == partitions
    for replicas in placement:
        assert len(set(replicas)) == factor
        assert replicas[0] not in fenced
        used = Counter(racks[broker - 1] or "" for broker in replicas)
        available = len({rack or "" for rack in racks})
        assert len(used) == min(factor, available)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5))
def test_leaders_and_replicas_are_spread_evenly_over_equal_brokers(start: int, count: int, rounds: int) -> None:
    placement = place_replicas(brokers(*[None] * count), count * rounds, count, FixedRandom(start))
    assert set(Counter(replicas[0] for replicas in placement).values()) == {rounds}


def test_with_one_broker_in_each_of_three_racks_every_broker_leads_in_turn() -> None:
    placement = place_replicas(brokers("a", "b", "c"), 3, 3, FixedRandom(0))
    assert placement == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]


@pytest.mark.parametrize(
    ("given_brokers", "factor", "words"),
    [
        (brokers(None), 2, "cannot be reached because only 1 broker(s) are registered"),
        (brokers(None, fenced=frozenset({1})), 1, "All brokers are currently fenced"),
        ([], 1, "All brokers are currently fenced"),
    ],
)
def test_too_few_brokers_are_refused(given_brokers: Any, factor: int, words: str) -> None:
    with pytest.raises(Refused) as caught:
        place_replicas(given_brokers, 1, factor, FixedRandom(0))
    assert caught.value.code is ErrorCode.invalid_replication_factor
    assert words in caught.value.message
