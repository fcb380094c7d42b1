"""Decisions about topics: create, delete, add partitions. Checks, their order, codes and messages are Kafka's.

Requests and answers are plain data; the answers have the field names of the messages, so that a handler passes them on
as they are. Within one request every topic is decided on its own: one that is refused does not hold up the others.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random
from penstock.base.settings import Described, NodeSettings, describe_topic
from penstock.base.settings.definition import InvalidConfig
from penstock.base.settings.topics import check_topic_overrides
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import RESOURCE_TOPIC, MetadataImage, TopicImage
from penstock.cluster.metadata.names import METADATA_TOPIC, check_topic_name, collision_key
from penstock.cluster.metadata.placement import place_replicas
from penstock.cluster.metadata.records import (
    UNASSIGNED_DIRECTORY,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

# Kafka's limit too. It keeps one request from holding the controller for long, or from filling its memory.
PARTITIONS_PER_REQUEST_MAX = 10_000
USE_DEFAULT = -1
_ZERO_ID = uuid.UUID(int=0)
_ONE_ID = uuid.UUID(int=1)

Assignment = Sequence[int]


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    # (partition, replicas) pairs; none: the controller places the replicas.
    assignments: Sequence[tuple[int, Assignment]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topic_id: uuid.UUID | None = None
    topic_config_error_code: ErrorCode = ErrorCode.none
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[Described] = ()


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    name: str | None
    topic_id: uuid.UUID | None
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class MorePartitions:
    name: str
    count: int
    # The replicas of each new partition; none: the controller places them.
    assignments: Sequence[Assignment] | None = None


@dataclass(frozen=True, slots=True)
class PartitionsResult:
    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


def create_topics(
    image: MetadataImage, settings: NodeSettings, random: Random, requested: Sequence[NewTopic], *, validate_only: bool
) -> Decision[list[CreatedTopic]]:
    records: list[MetadataRecord] = []
    answer: list[CreatedTopic] = []
    creation = _Creation(image, settings, random)
    topics = creation.take_duplicates_out(requested, answer)
    accepted = creation.take_illegal_out(topics, answer)
    if sum(map(creation.partition_count, accepted)) > PARTITIONS_PER_REQUEST_MAX:
        answer += [_not_created(topic, _too_many_partitions()) for topic in accepted]
        return Decision(answer)
    for topic in accepted:
        try:
            answer.append(creation.create(topic, records))
        except Refused as refused:
            answer.append(_not_created(topic, refused))
    return Decision(answer, [] if validate_only else records)


class _Creation:
    """One CreateTopics request being decided."""

    def __init__(self, image: MetadataImage, settings: NodeSettings, random: Random) -> None:
        self._image = image
        self._settings = settings
        self._random = random

    def take_duplicates_out(self, requested: Sequence[NewTopic], answer: list[CreatedTopic]) -> list[NewTopic]:
        """A name that comes twice is answered once, and neither is made."""
        times = Counter(topic.name for topic in requested)
        for name, count in times.items():
            if count > 1:
                answer.append(_not_created(NewTopic(name), _duplicate_name()))
        return [topic for topic in requested if times[topic.name] == 1]

    def take_illegal_out(self, topics: Iterable[NewTopic], answer: list[CreatedTopic]) -> list[NewTopic]:
        accepted = []
        new_names: dict[str, str] = {}
        for topic in topics:
            try:
                self._check_name(topic.name, new_names)
            except Refused as refused:
                answer.append(_not_created(topic, refused))
            else:
                accepted.append(topic)
        return accepted

    def _check_name(self, name: str, new_names: dict[str, str]) -> None:
        """`new_names` are those of this request by their collision key: Kafka only looks at topics that are there
        already, and so lets two that collide be made at once."""
        if name == METADATA_TOPIC:
            raise Refused(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")
        check_topic_name(name)
        if name in self._image.topics:
            raise Refused(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        if (key := collision_key(name)) is not None:
            colliding = next(iter(self._image.colliding_names.get(key, ())), None) or new_names.get(key)
            if colliding is not None:
                raise Refused(
                    ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {colliding}"
                )
            new_names[key] = name

    def partition_count(self, topic: NewTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        if topic.num_partitions == USE_DEFAULT:
            return int(self._settings["num.partitions"])
        return max(topic.num_partitions, 0)

    def create(self, topic: NewTopic, records: list[MetadataRecord]) -> CreatedTopic:
        configs = _checked_configs(topic)
        placement = self._placement(topic)
        topic_id = new_topic_id(self._image, self._random)
        records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        for name, value in configs.items():
            records.append(ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=name, value=value))
        records += _partition_records(self._image, topic_id, placement, first_index=0)
        return CreatedTopic(
            topic.name,
            topic_id=topic_id,
            num_partitions=len(placement),
            replication_factor=len(placement[0]),
            configs=describe_topic(self._settings, configs),
        )

    def _placement(self, topic: NewTopic) -> list[tuple[int, ...]]:
        if topic.assignments:
            return self._assigned(topic)
        if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
            raise Refused(
                ErrorCode.invalid_replication_factor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
            raise Refused(
                ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
            )
        factor = topic.replication_factor
        if factor == USE_DEFAULT:
            factor = int(self._settings["default.replication.factor"])
        return place_replicas(self._image.brokers.values(), self.partition_count(topic), factor, self._random)

    def _assigned(self, topic: NewTopic) -> list[tuple[int, ...]]:
        for given, what in ((topic.replication_factor, "replication factor"), (topic.num_partitions, "numPartitions")):
            if given != USE_DEFAULT:
                raise Refused(
                    ErrorCode.invalid_request,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        by_index: dict[int, tuple[int, ...]] = {}
        factor: int | None = None
        for index, replicas in topic.assignments:
            if index in by_index:
                raise _bad_assignment(f"Found multiple manual partition assignments for partition {index}")
            _check_assignment(self._image, index, replicas, factor)
            factor = len(replicas)
            by_index[index] = tuple(replicas)
        if set(by_index) != set(range(len(by_index))):
            raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
        return [by_index[index] for index in range(len(by_index))]


def delete_topics(
    image: MetadataImage,
    settings: NodeSettings,
    requested: Sequence[tuple[str | None, uuid.UUID | None]],
) -> Decision[list[DeletedTopic]]:
    """Each of `requested` is a name or an id."""
    records: list[MetadataRecord] = []
    answer: list[DeletedTopic] = []
    names = Counter(name for name, topic_id in requested if name is not None and topic_id is None)
    ids = Counter(topic_id for name, topic_id in requested if name is None and topic_id is not None)
    for name, topic_id in _once_each(image, requested):
        try:
            if not settings["delete.topic.enable"]:
                raise Refused(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled (delete.topic.enable).")
            if name is not None and topic_id is None and names[name] > 1:
                raise _duplicate_name()
            topic = _topic_to_delete(image, name, topic_id)
            if names[topic.name] + ids[topic.id] > 1:
                raise _duplicate_name()
        except Refused as refused:
            known = image.topics.get(name) if name is not None else None
            shown_id = known.id if known is not None and ids[known.id] else topic_id
            answer.append(DeletedTopic(name, shown_id, refused.code, refused.message))
        else:
            records.append(RemoveTopicRecord(topic_id=topic.id))
            answer.append(DeletedTopic(topic.name, topic.id))
    return Decision(answer, records)


def _once_each(
    image: MetadataImage, requested: Sequence[tuple[str | None, uuid.UUID | None]]
) -> list[tuple[str | None, uuid.UUID | None]]:
    """Without repetitions; a topic that is named both ways is answered under its name alone."""
    names = {name for name, topic_id in requested if topic_id is None}
    once = []
    for name, topic_id in dict.fromkeys(requested):
        topic = image.topics_by_id.get(topic_id) if name is None and topic_id is not None else None
        if topic is None or topic.name not in names:
            once.append((name, topic_id))
    return once


def _topic_to_delete(image: MetadataImage, name: str | None, topic_id: uuid.UUID | None) -> TopicImage:
    if name is not None and topic_id is not None:
        raise Refused(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if name is not None:
        topic = image.topics.get(name)
        missing = Refused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
    elif topic_id is not None:
        topic = image.topics_by_id.get(topic_id)
        missing = Refused(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
    else:
        raise Refused(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if topic is None:
        raise missing
    return topic


def create_partitions(
    image: MetadataImage, random: Random, requested: Sequence[MorePartitions], *, validate_only: bool
) -> Decision[list[PartitionsResult]]:
    records: list[MetadataRecord] = []
    answer: list[PartitionsResult] = []
    times = Counter(topic.name for topic in requested)
    for topic in {topic.name: topic for topic in requested}.values():
        try:
            if times[topic.name] > 1:
                raise _duplicate_name()
            _add_partitions(image, random, topic, records)
        except Refused as refused:
            answer.append(PartitionsResult(topic.name, refused.code, refused.message))
        else:
            answer.append(PartitionsResult(topic.name))
    return Decision(answer, [] if validate_only else records)


def _add_partitions(
    image: MetadataImage, random: Random, requested: MorePartitions, records: list[MetadataRecord]
) -> None:
    topic = image.topics.get(requested.name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"The topic '{requested.name}' does not exist.")
    present = len(topic.partitions)
    if requested.count == present:
        raise Refused(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
    if requested.count < present:
        raise Refused(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} currently has {present} partition(s); {requested.count} would not be an increase.",
        )
    additional = requested.count - present
    if additional + len(records) > PARTITIONS_PER_REQUEST_MAX:
        raise _too_many_partitions()
    factor = len(topic.partitions[0].replicas)
    if requested.assignments is None:
        placement = place_replicas(image.brokers.values(), additional, factor, random)
    else:
        if len(requested.assignments) != additional:
            raise _bad_assignment(
                f"Attempted to add {additional} additional partition(s), but only {len(requested.assignments)} "
                "assignment(s) were specified."
            )
        for step, replicas in enumerate(requested.assignments):
            _check_assignment(image, present + step, replicas, factor)
        placement = [tuple(replicas) for replicas in requested.assignments]
    records += _partition_records(image, topic.id, placement, first_index=present)


def new_topic_id(image: MetadataImage, random: Random) -> uuid.UUID:
    """A random uuid of version 4 that is neither reserved nor, in its base64 form, taken for a command-line option."""
    while True:
        topic_id = uuid.UUID(bytes=random.random_bytes(16), version=4)
        starts_with_dash = topic_id.bytes[0] >> 2 == 62
        if not starts_with_dash and topic_id not in (_ZERO_ID, _ONE_ID) and topic_id not in image.topics_by_id:
            return topic_id


def _partition_records(
    image: MetadataImage, topic_id: uuid.UUID, placement: Sequence[tuple[int, ...]], *, first_index: int
) -> list[MetadataRecord]:
    directories: dict[tuple[int, ...], tuple[uuid.UUID | None, ...]] = {}
    in_sync: dict[tuple[int, ...], tuple[int, ...]] = {}
    for replicas in set(placement):
        in_sync[replicas] = tuple(broker for broker in replicas if image.brokers[broker].is_active)
        directories[replicas] = tuple(_directory(image, broker) for broker in replicas)
    return [
        PartitionRecord(
            partition_id=first_index + step,
            topic_id=topic_id,
            replicas=replicas,
            isr=in_sync[replicas],
            leader=in_sync[replicas][0],
            leader_epoch=0,
            partition_epoch=0,
            directories=directories[replicas],
        )
        for step, replicas in enumerate(placement)
    ]


def _directory(image: MetadataImage, broker_id: int) -> uuid.UUID | None:
    log_dirs = image.brokers[broker_id].log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY


def _check_assignment(image: MetadataImage, index: int, replicas: Assignment, factor: int | None) -> None:
    check_replicas(image, replicas)
    if factor is not None and len(replicas) != factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    if not any(image.brokers[broker].is_active for broker in replicas):
        raise _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )


def check_replicas(image: MetadataImage, replicas: Assignment) -> None:
    """Whether a person may ask for these replicas. Raises Refused."""
    if not replicas:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    for broker in replicas:
        if broker not in image.brokers:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
    for broker, count in Counter(replicas).items():
        if count > 1:
            raise _bad_assignment(f"The manual partition assignment includes the broker {broker} more than once.")


def _checked_configs(topic: NewTopic) -> Mapping[str, str]:
    nulls = [name for name, value in topic.configs if value is None]
    if nulls:
        raise Refused(ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(nulls)}")
    configs = {name: value for name, value in topic.configs if value is not None}
    try:
        check_topic_overrides(configs)
    except InvalidConfig as error:
        raise Refused(ErrorCode.invalid_config, str(error)) from error
    return configs


def _bad_assignment(message: str) -> Refused:
    return Refused(ErrorCode.invalid_replica_assignment, message)


def _not_created(topic: NewTopic, refused: Refused) -> CreatedTopic:
    return CreatedTopic(topic.name, refused.code, refused.message)


def _duplicate_name() -> Refused:
    return Refused(ErrorCode.invalid_request, "Duplicate topic name.")


def _too_many_partitions() -> Refused:
    return Refused(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
