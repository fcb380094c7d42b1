"""Kafka's text files: what is written is read again, and what is wrong is said for people."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.checkpoints import (
    BadCheckpoint,
    MetaProperties,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
    format_topic_id,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
    parse_topic_id,
)

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


@given(st.dictionaries(st.tuples(topics, st.integers(0, 9999)), st.integers(0, 2**63 - 1)))
def test_offsets_are_read_as_written(offsets: dict[tuple[str, int], int]) -> None:
    assert parse_offsets(format_offsets(offsets), "x") == offsets


@given(st.uuids())
def test_partition_metadata_is_read_as_written(topic_id: UUID) -> None:
    assert parse_partition_metadata(format_partition_metadata(topic_id), "x") == topic_id
    assert parse_topic_id(format_topic_id(topic_id)) == topic_id
    assert len(format_topic_id(topic_id)) == 22


def test_meta_properties_are_read_as_written() -> None:
    meta = MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 5, "sFA_fAfDTSWh9I9UE7FyHg")
    assert parse_meta_properties(format_meta_properties(meta), "x") == meta


def test_an_empty_checkpoint_was_never_written() -> None:
    assert parse_offsets(b"", "x") == {}
    assert parse_offsets(b"0\n", "x") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"x",
        b"0\n2\na 0 5\n",
        b"0\n0\na 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na b 5\n",
        b"0\n1\na 0 5 6\n",
        b"\xff\n0\n",
    ],
)
def test_bad_checkpoints_are_named_with_a_way_out(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match=r"^some/file cannot be read: .* made anew\.$"):
        parse_offsets(data, "some/file")


@pytest.mark.parametrize("data", [b"", b"version: 1\ntopic_id: x", b"version: 0", b"version: 0\ntopic_id: !", b"\xff"])
def test_bad_partition_metadata_is_named(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="some/file"):
        parse_partition_metadata(data, "some/file")


@pytest.mark.parametrize(
    "data", [b"", b"version=0", b"version=1\n", b"version=1\ncluster.id=a\ndirectory.id=b\nnode.id=x"]
)
def test_bad_meta_properties_are_named(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="some/file"):
        parse_meta_properties(data, "some/file")
