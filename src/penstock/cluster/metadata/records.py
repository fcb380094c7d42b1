"""The records of the metadata log: Kafka's own schemas and bytes, so that Kafka's tools read our `__cluster_metadata`.

A value is framed by three unsigned varints (frame version 1, the record's api key, its version) before the body.
Records are written in the highest version that Kafka 4.3 has. Where a newer version only added tagged fields, the
older ones are read too: their bytes are the same.

The classes are declared in kio's manner, so that its native reader and our one writer serve them like any message.
"""

import dataclasses
import uuid
from dataclasses import dataclass
from typing import Any, ClassVar, dataclass_transform

from kio.static.constants import EntityType

from penstock.base.ports import Bytes
from penstock.protocol.messages import Malformed, decode, encode, write_uvarint

FRAME_VERSION = 1
# The leader and the ISR of a change record stay as they are when these stand in their place.
NO_LEADER = -1
LEADER_UNCHANGED = -2
RECOVERED = 0
# The leader was elected uncleanly, and has not said yet that it is done with it.
RECOVERING = 1
RECOVERY_UNCHANGED = -1
# kio reads and writes the all-zero uuid, which stands for "no directory chosen yet", as None.
UNASSIGNED_DIRECTORY = None


class MetadataRecord:
    """What all of them are; subclasses are frozen dataclasses."""

    __slots__ = ()

    __type__: ClassVar = EntityType.data
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int]
    __version__: ClassVar[int]
    # The oldest version whose bytes the class reads as well.
    __version_min__: ClassVar[int]


_CLASSES: dict[int, type[MetadataRecord]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def _record(api_key: int, version: int = 0, version_min: int = 0) -> Any:
    """Declares a top-level record and enters it in the table that `decode_record` looks into."""

    def declare(cls: Any) -> Any:
        cls.__api_key__ = api_key
        cls.__version__ = version
        cls.__version_min__ = version_min
        record = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        _CLASSES[api_key] = record
        return record

    return declare


def _field(kafka_type: str, tag: int | None = None, default: Any = dataclasses.MISSING) -> Any:
    metadata: dict[str, Any] = {"kafka_type": kafka_type}
    if tag is not None:
        metadata["tag"] = tag
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(metadata=metadata, default=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[int] = 4
    __flexible__: ClassVar[bool] = True
    name: str = _field("string")
    host: str = _field("string")
    port: int = _field("uint16")
    security_protocol: int = _field("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeature:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[int] = 4
    __flexible__: ClassVar[bool] = True
    name: str = _field("string")
    min_supported_version: int = _field("int16")
    max_supported_version: int = _field("int16")


@_record(0, version=4, version_min=2)
class RegisterBrokerRecord(MetadataRecord):
    broker_id: int = _field("int32")
    is_migrating_zk_broker: bool = _field("bool", default=False)
    incarnation_id: uuid.UUID | None = _field("uuid")
    broker_epoch: int = _field("int64")
    end_points: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...]
    rack: str | None = _field("string")
    fenced: bool = _field("bool", default=True)
    in_controlled_shutdown: bool = _field("bool", default=False)
    log_dirs: tuple[uuid.UUID, ...] = _field("uuid", tag=0, default=())
    cordoned_log_dirs: tuple[uuid.UUID, ...] | None = _field("uuid", tag=1, default=None)


@_record(1)
class UnregisterBrokerRecord(MetadataRecord):
    broker_id: int = _field("int32")
    broker_epoch: int = _field("int64")


@_record(2)
class TopicRecord(MetadataRecord):
    name: str = _field("string")
    topic_id: uuid.UUID = _field("uuid")


@_record(3, version=2, version_min=1)
class PartitionRecord(MetadataRecord):
    partition_id: int = _field("int32", default=-1)
    topic_id: uuid.UUID = _field("uuid")
    replicas: tuple[int, ...] = _field("int32")
    isr: tuple[int, ...] = _field("int32")
    removing_replicas: tuple[int, ...] = _field("int32", default=())
    adding_replicas: tuple[int, ...] = _field("int32", default=())
    leader: int = _field("int32", default=NO_LEADER)
    leader_recovery_state: int = _field("int8", tag=0, default=RECOVERED)
    leader_epoch: int = _field("int32", default=-1)
    partition_epoch: int = _field("int32", default=-1)
    directories: tuple[uuid.UUID | None, ...] = _field("uuid")
    eligible_leader_replicas: tuple[int, ...] | None = _field("int32", tag=1, default=None)
    last_known_elr: tuple[int, ...] | None = _field("int32", tag=2, default=None)


@_record(4)
class ConfigRecord(MetadataRecord):
    resource_type: int = _field("int8")
    resource_name: str = _field("string")
    name: str = _field("string")
    value: str | None = _field("string")


@_record(5, version=2)
class PartitionChangeRecord(MetadataRecord):
    partition_id: int = _field("int32", default=-1)
    topic_id: uuid.UUID = _field("uuid")
    isr: tuple[int, ...] | None = _field("int32", tag=0, default=None)
    leader: int = _field("int32", tag=1, default=LEADER_UNCHANGED)
    replicas: tuple[int, ...] | None = _field("int32", tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = _field("int32", tag=3, default=None)
    adding_replicas: tuple[int, ...] | None = _field("int32", tag=4, default=None)
    leader_recovery_state: int = _field("int8", tag=5, default=RECOVERY_UNCHANGED)
    eligible_leader_replicas: tuple[int, ...] | None = _field("int32", tag=6, default=None)
    last_known_elr: tuple[int, ...] | None = _field("int32", tag=7, default=None)
    directories: tuple[uuid.UUID | None, ...] | None = _field("uuid", tag=8, default=None)


@_record(7)
class FenceBrokerRecord(MetadataRecord):
    id: int = _field("int32")
    epoch: int = _field("int64")


@_record(8)
class UnfenceBrokerRecord(MetadataRecord):
    id: int = _field("int32")
    epoch: int = _field("int64")


@_record(9)
class RemoveTopicRecord(MetadataRecord):
    topic_id: uuid.UUID = _field("uuid")


@_record(12)
class FeatureLevelRecord(MetadataRecord):
    name: str = _field("string")
    feature_level: int = _field("int16")


@_record(15)
class ProducerIdsRecord(MetadataRecord):
    broker_id: int = _field("int32")
    broker_epoch: int = _field("int64", default=-1)
    next_producer_id: int = _field("int64")


@_record(17, version=3)
class BrokerRegistrationChangeRecord(MetadataRecord):
    broker_id: int = _field("int32")
    broker_epoch: int = _field("int64")
    fenced: int = _field("int8", tag=0, default=0)
    in_controlled_shutdown: int = _field("int8", tag=1, default=0)
    log_dirs: tuple[uuid.UUID, ...] = _field("uuid", tag=2, default=())
    cordoned_log_dirs: tuple[uuid.UUID, ...] | None = _field("uuid", tag=3, default=None)


@_record(20)
class NoOpRecord(MetadataRecord):
    pass


@_record(23)
class BeginTransactionRecord(MetadataRecord):
    name: str | None = _field("string", tag=0, default=None)


@_record(24)
class EndTransactionRecord(MetadataRecord):
    pass


@_record(25)
class AbortTransactionRecord(MetadataRecord):
    reason: str | None = _field("string", tag=0, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEndpoint:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    name: str = _field("string")
    host: str = _field("string")
    port: int = _field("uint16")
    security_protocol: int = _field("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFeature:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    name: str = _field("string")
    min_supported_version: int = _field("int16")
    max_supported_version: int = _field("int16")


@_record(27)
class RegisterControllerRecord(MetadataRecord):
    controller_id: int = _field("int32")
    incarnation_id: uuid.UUID | None = _field("uuid")
    zk_migration_ready: bool = _field("bool", default=False)
    end_points: tuple[ControllerEndpoint, ...]
    features: tuple[ControllerFeature, ...]


@_record(28)
class ClearElrRecord(MetadataRecord):
    # Empty: of all topics.
    topic_name: str = _field("string")


def encode_record(record: MetadataRecord) -> bytes:
    out = bytearray((FRAME_VERSION,))
    write_uvarint(out, record.__api_key__)
    write_uvarint(out, record.__version__)
    out += encode(type(record), record)
    return bytes(out)


def decode_record(data: Bytes) -> MetadataRecord:
    """The record of one value of the metadata log. Raises Malformed."""
    frame_version, position = _read_uvarint(data, 0)
    if frame_version != FRAME_VERSION:
        raise Malformed(f"a metadata record has frame version {frame_version}; only {FRAME_VERSION} is known")
    api_key, position = _read_uvarint(data, position)
    version, position = _read_uvarint(data, position)
    cls = _CLASSES.get(api_key)
    if cls is None:
        raise Malformed(f"there is no metadata record with api key {api_key} in this version of Penstock")
    if not cls.__version_min__ <= version <= cls.__version__:
        known = f"{cls.__version_min__}-{cls.__version__}"
        raise Malformed(f"{cls.__name__} has version {version}; this version of Penstock reads {known}")
    record: MetadataRecord = decode(cls, data, position)
    return record


def _read_uvarint(data: Bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        if position >= len(data):
            raise Malformed("a metadata record is cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise Malformed("a metadata record opens with a varint of more than five bytes")
