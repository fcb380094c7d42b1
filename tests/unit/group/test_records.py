import types
import typing
import uuid
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group import records
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.record_schema import decode_part, encode_part
from penstock.protocol.messages import Malformed
from penstock.protocol.records import Record, build_batch
from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.apache_kafka import dump_log_segments

KINDS = [
    ("OffsetCommit", 1),
    ("GroupMetadata", 2),
    ("ConsumerGroupMetadata", 3),
    ("ConsumerGroupPartitionMetadata", 4),
    ("ConsumerGroupMemberMetadata", 5),
    ("ConsumerGroupTargetAssignmentMetadata", 6),
    ("ConsumerGroupTargetAssignmentMember", 7),
    ("ConsumerGroupCurrentMemberAssignment", 8),
    ("ConsumerGroupRegularExpression", 16),
]
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def parts(cls: Any) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{field.name: values(field.type, field.metadata) for field in fields(cls)})


def values(kind: Any, metadata: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(kind) is types.UnionType:
        (inner,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
        return st.none() | values(inner, metadata)
    if typing.get_origin(kind) is tuple:
        return st.lists(values(typing.get_args(kind)[0], metadata), max_size=3).map(tuple)
    if is_dataclass(kind):
        # The byte that says that a structure is there is always 1.
        return parts(kind).map(_present)
    kafka_type = metadata["kafka_type"]
    if kafka_type in INTEGERS:
        bits = INTEGERS[kafka_type]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if kafka_type == "uuid":
        return st.uuids(version=4)
    return st.binary(max_size=20) if kafka_type == "bytes" else st.text(max_size=20)


def _present(part: Any) -> Any:
    if not hasattr(part, "presence"):
        return part
    return type(part)(**{field.name: getattr(part, field.name) for field in fields(part) if field.name != "presence"})


@pytest.mark.parametrize(("name", "number"), KINDS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_record_comes_back_from_its_bytes(name: str, number: int, data: st.DataObject) -> None:
    key_class, value_class = getattr(records, f"{name}Key"), getattr(records, f"{name}Value")
    key, value = data.draw(parts(key_class)), data.draw(st.none() | parts(value_class))
    key_bytes, value_bytes = encode_record(CoordinatorRecord(key, value))
    assert int.from_bytes(key_bytes[:2]) == number
    decoded = decode_record(key_bytes, value_bytes)
    assert decoded is not None
    assert decoded.key == key
    if value is None:
        assert decoded.value is None
    else:
        assert value_bytes is not None
        version = int.from_bytes(value_bytes[:2])
        assert all(
            getattr(decoded.value, field.name) == getattr(value, field.name)
            for field in fields(value)
            if field.metadata["since"] <= version <= field.metadata["until"]
        )


@pytest.mark.parametrize("version", range(5))
@given(value=parts(records.OffsetCommitValue) | parts(records.GroupMetadataValue))
@settings(max_examples=25, deadline=None)
def test_every_older_version_of_a_value_is_read_with_defaults_for_what_it_lacks(version: int, value: Any) -> None:
    cls: Any = type(value)
    decoded = decode_part(cls, version, bytes(encode_part(value, version)), 0)
    for field in fields(cls):
        if field.name == "members":
            assert [member.member_id for member in decoded.members] == [member.member_id for member in value.members]
        elif field.metadata["since"] <= version <= field.metadata["until"]:
            assert getattr(decoded, field.name) == getattr(value, field.name)
        else:
            assert getattr(decoded, field.name) == field.default


# As Apache Kafka 4.3.1 serializes the same values.
def test_the_bytes_are_apache_kafkas() -> None:
    member = CoordinatorRecord(
        records.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        records.ConsumerGroupMemberMetadataValue(
            instance_id="",
            rack_id="",
            client_id="c",
            client_host="h",
            subscribed_topic_names=("t",),
            subscribed_topic_regex="",
            server_assignor="",
            classic_member_metadata=records.ClassicMemberMetadata(
                session_timeout_ms=7,
                supported_protocols=(records.ClassicProtocol(name="range", metadata=b"\x01\x02"),),
            ),
        ),
    )
    key, value = encode_record(member)
    assert key.hex() == "000500016700016d"
    assert value is not None
    assert value.hex() == "000001010263026802027401ffffffff010100110100000007020672616e67650301020000"


def test_an_expiration_of_its_own_is_kept_by_writing_the_version_that_has_one() -> None:
    key = records.OffsetCommitKey(group="g", topic="t", partition=0)
    value = records.OffsetCommitValue(offset=1, metadata="", commit_timestamp=2, expire_timestamp=3)
    encoded = encode_record(CoordinatorRecord(key, value))
    assert encoded[1] is not None
    assert encoded[1][:2] == b"\x00\x01"
    assert decode_record(*encoded) == CoordinatorRecord(key, value)


def test_offsets_with_the_oldest_key_are_read_too() -> None:
    key, value = encode_record(
        CoordinatorRecord(
            records.OffsetCommitKey(group="g", topic="t", partition=0),
            records.OffsetCommitValue(offset=1, metadata="", commit_timestamp=2),
        )
    )
    assert decode_record(b"\x00\x00" + key[2:], value) == decode_record(key, value)


def test_records_of_kinds_we_do_not_have_are_passed_over() -> None:
    assert decode_record(b"\x00\x0b\x00\x01g", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00", None),
        (b"\x00\x02\x00\x05g", None),
        (b"\x00\x03\x00\x01g", b"\x00\x01\x00\x00\x00\x01\x00"),
    ],
)
def test_damaged_records_and_newer_versions_are_told_apart_from_good_ones(key: bytes, value: bytes | None) -> None:
    with pytest.raises(Malformed):
        decode_record(key, value)


JARS = kafka_jars()


@pytest.mark.java
@pytest.mark.skipif(JARS is None, reason="Apache Kafka's jars are not here; scripts/kafka-jars fetches them")
def test_kafkas_own_tool_prints_every_kind_of_record(tmp_path: Path) -> None:
    everything = [*_one_of_each(), CoordinatorRecord(records.GroupMetadataKey(group="gone"), None)]
    segment = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(
        build_batch([Record(offset, 0, *encode_record(record)) for offset, record in enumerate(everything)])
    )
    printed = dump_log_segments("--offsets-decoder", segment)
    lines = [line for line in printed.splitlines() if "payload:" in line]
    assert len(lines) == len(everything), printed
    for (_, number), line in zip(KINDS, lines, strict=False):
        assert f'"type":"{number}"' in line
        assert '"data":{' in line
    assert '"offset":42' in lines[0]
    assert '"memberId":"m1"' in lines[1]
    assert '"sessionTimeoutMs":45000' in lines[4]
    assert '"assignmentEpochs":[3,4]' in lines[7]
    assert "payload: <DELETE>" in lines[-1]


def _one_of_each() -> list[CoordinatorRecord]:
    topic_id = uuid.UUID(int=77)
    group, member = {"group_id": "g"}, {"group_id": "g", "member_id": "m"}
    return [
        CoordinatorRecord(
            records.OffsetCommitKey(group="g", topic="t", partition=3),
            records.OffsetCommitValue(
                offset=42, leader_epoch=2, metadata="m", commit_timestamp=1000, topic_id=topic_id
            ),
        ),
        CoordinatorRecord(
            records.GroupMetadataKey(group="g"),
            records.GroupMetadataValue(
                protocol_type="consumer",
                generation=5,
                protocol="range",
                leader="m1",
                current_state_timestamp=1000,
                members=(
                    records.MemberMetadata(
                        member_id="m1",
                        group_instance_id="i",
                        client_id="c",
                        client_host="/10.0.0.1",
                        rebalance_timeout=60000,
                        session_timeout=45000,
                        subscription=b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff",
                        assignment=b"",
                    ),
                ),
            ),
        ),
        CoordinatorRecord(
            records.ConsumerGroupMetadataKey(**group), records.ConsumerGroupMetadataValue(epoch=1, metadata_hash=9)
        ),
        CoordinatorRecord(
            records.ConsumerGroupPartitionMetadataKey(**group),
            records.ConsumerGroupPartitionMetadataValue(
                topics=(
                    records.SubscribedTopic(
                        topic_id=topic_id,
                        topic_name="t",
                        num_partitions=1,
                        partition_metadata=(records.PartitionRacks(partition=0, racks=("r",)),),
                    ),
                )
            ),
        ),
        CoordinatorRecord(
            records.ConsumerGroupMemberMetadataKey(**member),
            records.ConsumerGroupMemberMetadataValue(
                instance_id=None,
                rack_id="r",
                client_id="c",
                client_host="/10.0.0.1",
                subscribed_topic_names=("t",),
                subscribed_topic_regex=None,
                rebalance_timeout_ms=60000,
                server_assignor="uniform",
                classic_member_metadata=records.ClassicMemberMetadata(
                    session_timeout_ms=45000,
                    supported_protocols=(records.ClassicProtocol(name="range", metadata=b"x"),),
                ),
            ),
        ),
        CoordinatorRecord(
            records.ConsumerGroupTargetAssignmentMetadataKey(**group),
            records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=1, assignment_timestamp=1000),
        ),
        CoordinatorRecord(
            records.ConsumerGroupTargetAssignmentMemberKey(**member),
            records.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=(records.TargetPartitions(topic_id=topic_id, partitions=(0, 1)),)
            ),
        ),
        CoordinatorRecord(
            records.ConsumerGroupCurrentMemberAssignmentKey(**member),
            records.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=4,
                previous_member_epoch=3,
                state=0,
                assigned_partitions=(
                    records.CurrentPartitions(topic_id=topic_id, partitions=(0, 1), assignment_epochs=(3, 4)),
                ),
                partitions_pending_revocation=(),
            ),
        ),
        CoordinatorRecord(
            records.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*"),
            records.ConsumerGroupRegularExpressionValue(topics=("t",), version=1, timestamp=1000),
        ),
    ]


@given(key=parts(records.OffsetCommitKey), value=parts(records.OffsetCommitValue))
@settings(max_examples=100, deadline=None)
def test_the_short_way_of_commits_gives_the_bytes_of_the_schema(key: Any, value: Any) -> None:
    value = replace(value, expire_timestamp=-1)
    expected = (1).to_bytes(2) + encode_part(key, 0), (4).to_bytes(2) + encode_part(value, 4)
    assert encode_record(CoordinatorRecord(key, value)) == expected
