"""penstock.arrow.read: the slice that was asked for, as a table."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock.arrow
from penstock.client.errors import ClientError
from tests.integration.conftest import Penstock

START = datetime(2023, 11, 14, tzinfo=UTC)


@pytest.fixture
def records(penstock: Penstock, topic: str) -> str:
    """Twelve records a second apart, four in each of three partitions."""
    start_ms = int(START.timestamp() * 1000)
    lines = "".join(f"{start_ms + number * 1000} r{number}\n" for number in range(12))
    penstock("produce", topic, "--partitioner", "round-robin", "-f", "%d %v\\n", stdin=lines)
    return topic


def values(table: pa.Table) -> list[str]:
    return sorted((value.decode() for value in table["value"].to_pylist()), key=lambda value: int(value[1:]))


def test_a_table_has_all_columns_and_all_records(node: str, records: str) -> None:
    table = penstock.arrow.read(records, bootstrap_servers=node)
    assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert values(table) == [f"r{number}" for number in range(12)]
    assert set(table["topic"].to_pylist()) == {records}
    for partition in range(3):
        mine = table.filter(pc.equal(table["partition"], partition))
        assert mine["offset"].to_pylist() == [0, 1, 2, 3]
    assert min(table["timestamp"].to_pylist()) == START


def test_offsets_times_and_partitions_bound_it(node: str, records: str) -> None:
    def read(**bounds: object) -> list[str]:
        return values(penstock.arrow.read(records, bootstrap_servers=node, columns=["value"], **bounds))  # type: ignore[arg-type]

    everything = read()
    assert read(start=1, end=3, partitions=[0]) == read(partitions=[0])[1:3]
    assert read(start={0: 4, 1: 0, 2: 4}) == read(partitions=[1])
    assert read(start=START + timedelta(seconds=9)) == everything[9:]
    assert read(end=START + timedelta(seconds=3)) == everything[:3]
    assert read(start="latest") == []
    assert read(start=START + timedelta(days=1)) == []
    # What is not there is not asked for.
    assert read(start=-5, end=10**9) == everything


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"columns": ["colour"]}, "there is no column 'colour'"),
        ({"partitions": [7]}, "there is no partition 7"),
        ({"start": "yesterday"}, "'yesterday' is no place in a log"),
        ({"start": datetime(2024, 1, 1)}, "a time needs its zone"),
        ({"end": {0: 1}}, "no offset is given for partition 1"),
        ({"properties": {"security.protocol": "TLS"}}, "security.protocol is one of"),
    ],
)
def test_mistakes_are_told_in_words(node: str, records: str, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        penstock.arrow.read(records, bootstrap_servers=node, **arguments)  # type: ignore[arg-type]


def test_a_topic_that_is_not_there_is_named(node: str) -> None:
    with pytest.raises(ClientError, match="there is no topic 'nothing-here'"):
        penstock.arrow.read("nothing-here", bootstrap_servers=node)
