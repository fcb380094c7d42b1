import contextlib
import dataclasses
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.metadata import records
from penstock.cluster.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    MetadataRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from penstock.protocol.messages import Malformed
from penstock.protocol.records import Record, build_batch
from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.apache_kafka import dump_log_segments

RECORD_CLASSES = [cls for cls in vars(records).values() if isinstance(cls, type) and hasattr(cls, "__api_key__")]

_SIZES = {"int8": (-128, 127), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1), "int32": (-(2**31), 2**31 - 1),
          "int64": (-(2**63), 2**63 - 1)}  # fmt: skip


def _values(field: "dataclasses.Field[Any]") -> st.SearchStrategy[Any]:
    annotation = str(field.type)
    for nested in (BrokerEndpoint, BrokerFeature, ControllerEndpoint, ControllerFeature):
        if nested.__name__ in annotation:
            return st.lists(instances(nested), max_size=2).map(tuple)
    kind = field.metadata["kafka_type"]
    one: st.SearchStrategy[Any]
    if kind in _SIZES:
        one = st.integers(*_SIZES[kind])
    elif kind == "bool":
        one = st.booleans()
    elif kind == "uuid":
        one = st.uuids()
    else:
        one = st.text(st.characters(codec="utf-8"), max_size=20)
    if "tuple" in annotation:
        one = st.lists(one, max_size=4).map(tuple)
        return one | st.none() if annotation.endswith("| None") else one
    return one | st.none() if kind == "string" and "None" in annotation else one


def instances(cls: type) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{field.name: _values(field) for field in dataclasses.fields(cls)})


def test_there_is_a_record_for_each_kind_that_the_image_replays() -> None:
    assert len(RECORD_CLASSES) == 18


@given(st.one_of([instances(cls) for cls in RECORD_CLASSES]))
def test_every_record_survives_the_way_to_bytes_and_back(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(st.binary(max_size=60))
def test_bytes_that_are_no_record_are_malformed_and_nothing_worse(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode_record(data)


@settings(max_examples=30)
@given(st.one_of([instances(cls) for cls in RECORD_CLASSES]), st.data())
def test_a_record_that_is_cut_short_is_malformed(record: MetadataRecord, data: st.DataObject) -> None:
    encoded = encode_record(record)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(Malformed):
        decode_record(encoded[:cut])


def test_the_frame_is_kafkas() -> None:
    topic_id = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)
    assert encode_record(TopicRecord(name="ab", topic_id=topic_id)).hex() == (
        "01" "02" "00" "03" "6162" "0102030405060708090a0b0c0d0e0f10" "00"
    )  # fmt: skip


def test_versions_that_differ_only_in_tagged_fields_are_read() -> None:
    record = PartitionRecord(
        partition_id=1, topic_id=uuid.UUID(int=7), replicas=(1,), isr=(1,), leader=1, leader_epoch=2, partition_epoch=3,
        directories=(None,),
    )  # fmt: skip
    encoded = bytearray(encode_record(record))
    assert encoded[2] == 2
    encoded[2] = 1
    assert decode_record(encoded) == record


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x02\x00",
        b"\x02\x02\x00",
        b"\x01\x7f\x00",
        b"\x01\x03\x00",
        b"\x01\x02\x01",
        b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_unknown_frames_keys_and_versions_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_record(data)


def test_bytes_after_a_record_are_refused() -> None:
    with pytest.raises(Malformed, match="left over"):
        decode_record(encode_record(NoOpRecord()) + b"\x00")


JARS = kafka_jars()


@pytest.mark.java
@pytest.mark.skipif(JARS is None, reason="Apache Kafka's jars are not here; scripts/kafka-jars fetches them")
def test_kafkas_own_tool_prints_every_kind_of_record(tmp_path: Path) -> None:
    topic_id, directory = uuid.UUID(int=11), uuid.UUID(int=12)
    end_point = BrokerEndpoint(name="PLAINTEXT", host="example", port=9092, security_protocol=0)
    feature = BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)
    everything: list[MetadataRecord] = [
        records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        records.RegisterBrokerRecord(
            broker_id=1, incarnation_id=uuid.UUID(int=9), broker_epoch=5, end_points=(end_point,), features=(feature,),
            rack="rack-a", fenced=True, log_dirs=(directory,), cordoned_log_dirs=(),
        ),
        records.UnfenceBrokerRecord(id=1, epoch=5),
        records.FenceBrokerRecord(id=1, epoch=5),
        records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1, log_dirs=(directory,)),
        records.BeginTransactionRecord(name="create"),
        TopicRecord(name="orders", topic_id=topic_id),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1234"),
        ConfigRecord(resource_type=2, resource_name="orders", name="segment.ms", value=None),
        PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=(1, 2), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0,
            leader_recovery_state=1, directories=(directory, None), eligible_leader_replicas=(2,), last_known_elr=(3,),
        ),
        records.EndTransactionRecord(),
        records.PartitionChangeRecord(
            partition_id=0, topic_id=topic_id, isr=(1, 2), leader=2, replicas=(2, 1), removing_replicas=(),
            adding_replicas=(3,), leader_recovery_state=0, eligible_leader_replicas=(), last_known_elr=(4,),
            directories=(None, directory),
        ),
        records.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
        NoOpRecord(),
        records.AbortTransactionRecord(reason="because"),
        records.RemoveTopicRecord(topic_id=topic_id),
        records.UnregisterBrokerRecord(broker_id=1, broker_epoch=5),
        records.RegisterControllerRecord(
            controller_id=3, incarnation_id=uuid.UUID(int=10),
            end_points=(ControllerEndpoint(name="CONTROLLER", host="third", port=9093, security_protocol=0),),
            features=(ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1),),
        ),
        records.ClearElrRecord(topic_name="orders"),
    ]  # fmt: skip
    segment = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(
        build_batch([Record(offset, 0, None, encode_record(record)) for offset, record in enumerate(everything)])
    )
    printed = dump_log_segments("--cluster-metadata-decoder", segment)
    lines = [line for line in printed.splitlines() if "payload:" in line]
    assert len(lines) == len(everything), printed
    for record, line in zip(everything, lines, strict=True):
        assert _kafka_name(type(record)) in line
    for words in (
        '"isr":[1],', '"eligibleLeaderReplicas":[2]', '"lastKnownElr":[3]', '"leaderRecoveryState":1', '"leader":2',
        '"addingReplicas":[3]', '"name":"retention.ms","value":"1234"', '"value":null', '"nextProducerId":1000',
        '"rack":"rack-a"', '"port":9092', '"maxSupportedVersion":30', '"cordonedLogDirs":[]', '"fenced":-1',
        '"reason":"because"', '"controllerId":3', '"host":"third"', '"topicName":"orders"',
    ):  # fmt: skip
        assert words in printed, words


def _kafka_name(cls: type) -> str:
    """PartitionChangeRecord -> PARTITION_CHANGE_RECORD."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in cls.__name__).lstrip("_").upper()
