"""Decisions about settings: AlterConfigs (all of a resource's at once) and IncrementalAlterConfigs (one by one).

Each resource is decided as a whole: if one of its changes is refused, none is made. Checks, codes and messages are
Kafka's; broker settings are refused with INVALID_REQUEST where others have INVALID_CONFIG.
"""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.settings import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, Kind, NodeSettings, Setting
from penstock.base.settings.definition import InvalidConfig
from penstock.base.settings.node import check_broker_overrides
from penstock.base.settings.topics import check_topic_overrides
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import (
    ALL_BROKERS,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
    TopicImage,
)
from penstock.cluster.metadata.names import check_topic_name
from penstock.cluster.metadata.records import ConfigRecord, MetadataRecord, PartitionChangeRecord

_SETTINGS_OF: dict[int, Mapping[str, Setting]] = {
    RESOURCE_TOPIC: TOPIC_SETTINGS,
    RESOURCE_BROKER: BROKER_SETTINGS,
    RESOURCE_GROUP: GROUP_SETTINGS,
}


class Operation(enum.IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    value: str | None
    operation: int = Operation.SET


@dataclass(frozen=True, slots=True)
class ResourceChanges:
    resource_type: int
    resource_name: str
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class AlteredResource:
    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


def alter_configs(
    image: MetadataImage, settings: NodeSettings, requested: Sequence[ResourceChanges], *, validate_only: bool
) -> Decision[list[AlteredResource]]:
    """Settings that are not named go back to their defaults."""
    return _decide(image, settings, requested, incremental=False, validate_only=validate_only)


def incremental_alter_configs(
    image: MetadataImage, settings: NodeSettings, requested: Sequence[ResourceChanges], *, validate_only: bool
) -> Decision[list[AlteredResource]]:
    """Settings that are not named stay as they are."""
    return _decide(image, settings, requested, incremental=True, validate_only=validate_only)


def _decide(
    image: MetadataImage,
    settings: NodeSettings,
    requested: Sequence[ResourceChanges],
    *,
    incremental: bool,
    validate_only: bool,
) -> Decision[list[AlteredResource]]:
    records: list[MetadataRecord] = []
    answer: list[AlteredResource] = []
    times = Counter((resource.resource_type, resource.resource_name) for resource in requested)
    for resource in requested:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.invalid_request, "Each resource must appear at most once.")
            records += _resource_records(image, settings, resource, incremental=incremental)
        except Refused as refused:
            answer.append(
                AlteredResource(resource.resource_type, resource.resource_name, refused.code, refused.message)
            )
        else:
            answer.append(AlteredResource(resource.resource_type, resource.resource_name))
    return Decision(answer, [] if validate_only else records + _changes_of_eligible(image, records))


def _changes_of_eligible(image: MetadataImage, changes: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    """Eligible leaders hold everything since their leader could not go on without them, which another
    `min.insync.replicas` may let it do. Where nobody leads they stay: nobody goes on.

    Kafka forgets them with any other value. If those in sync are too few for the new one too, they stay here: the
    leader may be gone already, and nobody else hold everything. It gets a new epoch, so that its ISR cannot grow before
    it has read the value: by the old one it would go on with too few.
    """
    concerned: dict[TopicImage, int] = {}
    for change in changes:
        if isinstance(change, ConfigRecord) and change.name == "min.insync.replicas":
            if change.resource_type == RESOURCE_TOPIC:
                # What a topic falls back to, brokers may each see otherwise.
                concerned[image.topics[change.resource_name]] = int(change.value or 0)
            else:
                concerned |= dict.fromkeys(image.topics.values(), 0)
    return [
        PartitionChangeRecord(topic_id=topic.id, partition_id=partition.index, leader=partition.leader)
        if len(partition.isr) < min(isr_min, len(partition.replicas))
        else PartitionChangeRecord(topic_id=topic.id, partition_id=partition.index, eligible_leader_replicas=())
        for topic, isr_min in concerned.items()
        for partition in topic.partitions.values()
        if partition.eligible_leader_replicas and partition.isr
    ]


def _resource_records(
    image: MetadataImage, settings: NodeSettings, resource: ResourceChanges, *, incremental: bool
) -> list[MetadataRecord]:
    _check_changes(resource.changes)
    if resource.resource_type == RESOURCE_BROKER_LOGGER and incremental:
        _refuse_loggers(image, resource)
        return []
    if resource.resource_type not in _SETTINGS_OF:
        raise Refused(ErrorCode.invalid_request, f"Unknown resource type {resource.resource_type}")
    _check_resource_name(image, resource)
    current = image.config_of(resource.resource_type, resource.resource_name)
    wanted: dict[str, str | None] = {} if incremental else dict.fromkeys(current)
    for change in resource.changes:
        wanted[change.name] = _new_value(resource.resource_type, change, current.get(change.name))
    in_force = {name: value for name, value in {**current, **wanted}.items() if value is not None}
    _check_values(settings, resource.resource_type, in_force)
    if resource.resource_type == RESOURCE_TOPIC and resource.resource_name not in image.topics:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"The topic '{resource.resource_name}' does not exist.")
    return [
        ConfigRecord(resource_type=resource.resource_type, resource_name=resource.resource_name, name=name, value=value)
        for name, value in wanted.items()
        if value != current.get(name)
    ]


def _check_changes(changes: Sequence[Change]) -> None:
    if len({change.name for change in changes}) < len(changes):
        raise Refused(ErrorCode.invalid_request, "Error due to duplicate config keys")
    unknown = [change.operation for change in changes if change.operation not in Operation.__members__.values()]
    if unknown:
        raise Refused(ErrorCode.invalid_request, f"Unknown operation type {unknown[0]}")
    nulls = [change.name for change in changes if change.value is None and change.operation != Operation.DELETE]
    if nulls:
        raise Refused(ErrorCode.invalid_request, f"Null value not supported for : {','.join(nulls)}")


def _check_resource_name(image: MetadataImage, resource: ResourceChanges) -> None:
    name = resource.resource_name
    if resource.resource_type == RESOURCE_TOPIC:
        if not name:
            raise Refused(ErrorCode.invalid_request, "Default topic resources are not allowed.")
        check_topic_name(name)
    elif resource.resource_type == RESOURCE_GROUP:
        if not name:
            raise Refused(ErrorCode.invalid_request, "Default group resources are not allowed.")
    elif name != ALL_BROKERS:
        _check_broker_id(image, name)


def _check_broker_id(image: MetadataImage, name: str) -> None:
    if not name.removeprefix("-").isdecimal() or not name.isascii():
        raise Refused(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
    if name not in map(str, image.brokers):
        known = ", ".join(map(str, sorted(image.brokers)))
        raise Refused(ErrorCode.invalid_request, f"Unexpected broker id, expected {known}, but received {name}")


def _refuse_loggers(image: MetadataImage, resource: ResourceChanges) -> None:
    """The broker has no loggers that could be altered over the wire."""
    _check_broker_id(image, resource.resource_name)
    for change in resource.changes:
        raise Refused(ErrorCode.invalid_config, f"Logger {change.name} does not exist!")


def _new_value(resource_type: int, change: Change, current: str | None) -> str | None:
    if change.operation == Operation.DELETE:
        return None
    if change.operation == Operation.SET:
        return change.value
    setting = _SETTINGS_OF[resource_type].get(change.name)
    operation = Operation(change.operation)
    if setting is None or setting.kind is not Kind.LIST:
        raise Refused(
            ErrorCode.invalid_config, f"Can't {operation.name} to key {change.name} because its type is not LIST."
        )
    items = _items(setting.default if current is None else current)
    named = _items(change.value)
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys([*items, *named]))
    return ",".join(item for item in items if item not in named)


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _check_values(settings: NodeSettings, resource_type: int, in_force: dict[str, str]) -> None:
    try:
        if resource_type == RESOURCE_TOPIC:
            check_topic_overrides(in_force)
        elif resource_type == RESOURCE_BROKER:
            check_broker_overrides(in_force)
        else:
            _check_group_overrides(settings, in_force)
    except InvalidConfig as error:
        code = ErrorCode.invalid_request if resource_type == RESOURCE_BROKER else ErrorCode.invalid_config
        raise Refused(code, str(error)) from error


def _check_group_overrides(settings: NodeSettings, in_force: dict[str, str]) -> None:
    """`consumer.session.timeout.ms` must lie between group.consumer.min.session.timeout.ms and its max, and so on."""
    for name, text in in_force.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfig(f"Unknown group config name: {name}")
        value = setting.parse(text)
        kind, _, rest = name.partition(".")
        low, high = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
        if low in BROKER_SETTINGS and value < settings[low]:
            raise InvalidConfig(f"{name} must be greater than or equal to {low}")
        if high in BROKER_SETTINGS and value > settings[high]:
            raise InvalidConfig(f"{name} must be less than or equal to {high}")
