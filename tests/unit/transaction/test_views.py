"""DescribeTransactions and ListTransactions."""

from types import SimpleNamespace

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.name_pattern_syntax import PatternError
from penstock.coordinator.transaction.views import TransactionFilter
from tests.unit.transaction.coordinator import OFFSETS, P0, P1, START_MS, Coordinator


def test_an_open_transaction_is_described_with_its_partitions_and_times() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer(transaction_timeout=1234)
    coordinator.advance(10)
    coordinator.add("t", producer, P1, P0, OFFSETS)
    described = coordinator.describe()
    assert described.error_code == ErrorCode.none
    assert (described.transaction_state, described.producer_id, described.producer_epoch) == ("Ongoing", 100, 0)
    assert described.transaction_timeout.total_seconds() == 1.234
    assert round(described.transaction_start_time.timestamp() * 1000) == START_MS + 10
    assert [(one.topic, one.partitions) for one in described.topics] == [
        ("__consumer_offsets", (7,)),
        ("orders", (0, 1)),
    ]


def test_what_is_not_there_is_described_by_an_error() -> None:
    coordinator = Coordinator()
    assert coordinator.describe().error_code == ErrorCode.transactional_id_not_found
    assert coordinator.describe("").error_code == ErrorCode.invalid_request


def listed_world() -> Coordinator:
    coordinator = Coordinator()
    coordinator.producer("resting")
    coordinator.advance(100)
    coordinator.add("open-1", coordinator.producer("open-1"), P0)
    coordinator.advance(100)
    producer = coordinator.producer("ending")
    coordinator.add("ending", producer, P0)
    coordinator.end("ending", producer)
    return coordinator


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["ending", "open-1", "resting"]),
        ({"state_filters": ("Ongoing", "PrepareCommit")}, ["ending", "open-1"]),
        ({"state_filters": ("Nonsense",)}, []),
        ({"state_filters": ("Dead",)}, []),
        ({"producer_id_filters": (100, 102)}, ["ending", "resting"]),
        ({"duration_filter": 99}, ["open-1", "resting"]),
        ({"duration_filter": 0}, ["open-1", "resting"]),
        ({"duration_filter": -1}, ["ending", "open-1", "resting"]),
        ({"transactional_id_pattern": "open-.*"}, ["open-1"]),
        ({"transactional_id_pattern": "open"}, []),
        ({"transactional_id_pattern": ""}, ["ending", "open-1", "resting"]),
        ({"state_filters": ("Ongoing",), "transactional_id_pattern": "end.*"}, []),
    ],
)
def test_what_is_listed_passes_every_filter(filters: dict[str, object], expected: list[str]) -> None:
    assert sorted(name for name, _ in listed_world().listed(**filters)) == expected


def test_states_that_do_not_exist_are_told_and_a_pattern_that_is_none_is_refused() -> None:
    request = SimpleNamespace(state_filters=("Ongoing", "ongoing", "X"), producer_id_filters=())
    assert TransactionFilter(request).unknown_states == ["ongoing", "X"]
    request.transactional_id_pattern = "("
    with pytest.raises(PatternError):
        TransactionFilter(request)
