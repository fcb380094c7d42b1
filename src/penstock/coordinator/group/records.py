"""The records of `__consumer_offsets`: Kafka's own schemas and bytes, so that Kafka's tools read the topic.

A key opens with a 16-bit number that says which record it is; a value opens with its own version. A key without a
value takes the key's state away. Values are written in the version that Kafka 4.3 writes and read in all it reads.
"""

from functools import lru_cache
from struct import Struct
from typing import Any
from uuid import UUID

from penstock.base.ports import Bytes
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.record_schema import (
    ANY_VERSION,
    RecordPart,
    decode_part,
    encode_part,
    field,
    record_part,
    structure,
)
from penstock.protocol.messages import Malformed
from penstock.protocol.primitives import uvarint

_NEVER = ANY_VERSION


@record_part(1, flexible_from=_NEVER)
class OffsetCommitKey(RecordPart):
    group: str = field("string")
    topic: str = field("string")
    partition: int = field("int32")


@record_part(1, version=4, flexible_from=4)
class OffsetCommitValue(RecordPart):
    offset: int = field("int64")
    leader_epoch: int = field("int32", since=3, default=-1)
    metadata: str = field("string")
    commit_timestamp: int = field("int64")
    expire_timestamp: int = field("int64", since=1, until=1, default=-1)
    topic_id: UUID | None = field("uuid", since=4, tag=0, default=None)


@record_part(2, flexible_from=_NEVER)
class GroupMetadataKey(RecordPart):
    group: str = field("string")


@structure
class MemberMetadata:
    member_id: str = field("string")
    group_instance_id: str | None = field("string", since=3, default=None)
    client_id: str = field("string")
    client_host: str = field("string")
    rebalance_timeout: int = field("int32", since=1, default=-1)
    session_timeout: int = field("int32")
    subscription: bytes = field("bytes")
    assignment: bytes = field("bytes")


@record_part(2, version=3, version_max=4, flexible_from=4)
class GroupMetadataValue(RecordPart):
    protocol_type: str = field("string")
    generation: int = field("int32")
    protocol: str | None = field("string")
    leader: str | None = field("string")
    current_state_timestamp: int = field("int64", since=2, default=-1)
    members: tuple[MemberMetadata, ...] = field()


@record_part(3, flexible_from=_NEVER)
class ConsumerGroupMetadataKey(RecordPart):
    group_id: str = field("string")


@record_part(3, flexible_from=0)
class ConsumerGroupMetadataValue(RecordPart):
    epoch: int = field("int32")
    metadata_hash: int = field("int64", tag=0, default=0)


@record_part(4, flexible_from=_NEVER)
class ConsumerGroupPartitionMetadataKey(RecordPart):
    """Kafka before 4.1 wrote these; since then only tombstones of them."""

    group_id: str = field("string")


@structure
class PartitionRacks:
    partition: int = field("int32")
    racks: tuple[str, ...] = field("string")


@structure
class SubscribedTopic:
    topic_id: UUID = field("uuid")
    topic_name: str = field("string")
    num_partitions: int = field("int32")
    partition_metadata: tuple[PartitionRacks, ...] = field()


@record_part(4, flexible_from=0)
class ConsumerGroupPartitionMetadataValue(RecordPart):
    topics: tuple[SubscribedTopic, ...] = field()


@record_part(5, flexible_from=_NEVER)
class ConsumerGroupMemberMetadataKey(RecordPart):
    group_id: str = field("string")
    member_id: str = field("string")


@structure
class ClassicProtocol:
    name: str = field("string")
    metadata: bytes = field("bytes")


@structure
class ClassicMemberMetadata:
    # Kafka puts a byte in front of a nullable structure to say that it is there.
    presence: int = field("int8", default=1)
    session_timeout_ms: int = field("int32")
    supported_protocols: tuple[ClassicProtocol, ...] = field()


@record_part(5, flexible_from=0)
class ConsumerGroupMemberMetadataValue(RecordPart):
    instance_id: str | None = field("string")
    rack_id: str | None = field("string")
    client_id: str = field("string")
    client_host: str = field("string")
    subscribed_topic_names: tuple[str, ...] = field("string")
    subscribed_topic_regex: str | None = field("string")
    rebalance_timeout_ms: int = field("int32", default=-1)
    server_assignor: str | None = field("string")
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=None)


@record_part(6, flexible_from=_NEVER)
class ConsumerGroupTargetAssignmentMetadataKey(RecordPart):
    group_id: str = field("string")


@record_part(6, flexible_from=0)
class ConsumerGroupTargetAssignmentMetadataValue(RecordPart):
    assignment_epoch: int = field("int32")
    assignment_timestamp: int = field("int64", tag=0, default=0)


@record_part(7, flexible_from=_NEVER)
class ConsumerGroupTargetAssignmentMemberKey(RecordPart):
    group_id: str = field("string")
    member_id: str = field("string")


@structure
class TargetPartitions:
    topic_id: UUID = field("uuid")
    partitions: tuple[int, ...] = field("int32")


@record_part(7, flexible_from=0)
class ConsumerGroupTargetAssignmentMemberValue(RecordPart):
    topic_partitions: tuple[TargetPartitions, ...] = field()


@record_part(8, flexible_from=_NEVER)
class ConsumerGroupCurrentMemberAssignmentKey(RecordPart):
    group_id: str = field("string")
    member_id: str = field("string")


@structure
class CurrentPartitions:
    topic_id: UUID = field("uuid")
    partitions: tuple[int, ...] = field("int32")
    # The epoch at which each partition was assigned, in the order of `partitions` (KIP-1251).
    assignment_epochs: tuple[int, ...] | None = field("int32", tag=0, default=None)


@record_part(8, flexible_from=0)
class ConsumerGroupCurrentMemberAssignmentValue(RecordPart):
    member_epoch: int = field("int32")
    previous_member_epoch: int = field("int32")
    state: int = field("int8")
    assigned_partitions: tuple[CurrentPartitions, ...] = field()
    partitions_pending_revocation: tuple[CurrentPartitions, ...] = field()


@record_part(16, flexible_from=_NEVER)
class ConsumerGroupRegularExpressionKey(RecordPart):
    group_id: str = field("string")
    regular_expression: str = field("string")


@record_part(16, flexible_from=0)
class ConsumerGroupRegularExpressionValue(RecordPart):
    topics: tuple[str, ...] = field("string")
    version: int = field("int64")
    timestamp: int = field("int64")


_CLASSES: dict[int, tuple[type[RecordPart], type[RecordPart]]] = {
    key.__api_key__: (key, value)
    for key, value in (
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    )
}
RECORD_PARTS = tuple(part for pair in _CLASSES.values() for part in pair)
# Key 0 is how Kafka before 0.9 wrote committed offsets; the bytes after it are those of key 1.
_LEGACY_OFFSET_COMMIT = 0
_INT16, _INT32, _INT64, _INT16_PAIR = Struct(">h"), Struct(">i"), Struct(">q"), Struct(">hh")
_COMMIT_HEAD = Struct(">hqi")
# The same, no metadata, and the time.
_PLAIN_COMMIT = Struct(">hqiBq")


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    key: Any = record.key
    value: Any = record.value
    if type(value) is OffsetCommitValue and value.expire_timestamp == -1:
        return _encode_commit(key, value)
    key_bytes = key.__api_key__.to_bytes(2) + encode_part(key, 0)
    if value is None:
        return key_bytes, None
    version = _version_to_write(value)
    return key_bytes, version.to_bytes(2) + encode_part(value, version)


def _encode_commit(key: OffsetCommitKey, value: OffsetCommitValue) -> tuple[bytes, bytes]:
    """The same bytes as from the schemas. Hot: groups commit all the time, and little else is ever written."""
    key_bytes = _commit_key_head(key.group, key.topic) + _INT32.pack(key.partition)
    topic_id = value.topic_id
    tags = b"\0" if topic_id is None else b"\x01\0\x10" + topic_id.bytes
    if not value.metadata:
        head = _PLAIN_COMMIT.pack(4, value.offset, value.leader_epoch, 1, value.commit_timestamp)
        return key_bytes, head + tags
    metadata = value.metadata.encode()
    return key_bytes, b"".join(
        (
            _COMMIT_HEAD.pack(4, value.offset, value.leader_epoch),
            uvarint(len(metadata) + 1),
            metadata,
            _INT64.pack(value.commit_timestamp),
            tags,
        )
    )


@lru_cache(maxsize=1024)
def _commit_key_head(group_id: str, topic_name: str) -> bytes:
    """All of the key but the partition."""
    group, topic = group_id.encode(), topic_name.encode()
    return b"".join((_INT16_PAIR.pack(1, len(group)), group, _INT16.pack(len(topic)), topic))


def decode_record(key: Bytes, value: Bytes | None) -> CoordinatorRecord | None:
    """The record; None for kinds that this version of Penstock does not know (share and streams groups). Raises
    Malformed."""
    number = _leading_int16(key, "key")
    classes = _CLASSES.get(1 if number == _LEGACY_OFFSET_COMMIT else number)
    if classes is None:
        return None
    key_class, value_class = classes
    decoded_key = decode_part(key_class, 0, key, 2)
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    version = _leading_int16(value, "value")
    if not 0 <= version <= value_class.__version_max__:
        raise Malformed(
            f"{value_class.__name__} has version {version}; "
            f"this version of Penstock reads 0-{value_class.__version_max__}"
        )
    return CoordinatorRecord(decoded_key, decode_part(value_class, version, value, 2))


def _version_to_write(value: RecordPart) -> int:
    # Only version 1 has room for an expiration of its own, which OffsetCommit 2-4 may ask for.
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != -1:
        return 1
    return value.__version__


def _leading_int16(data: Bytes, what: str) -> int:
    if len(data) < 2:
        raise Malformed(f"the {what} of a record of __consumer_offsets is {len(data)} bytes long; it opens with two")
    return int.from_bytes(data[:2], signed=True)
