"""Elections that somebody asks for (ElectLeaders, KIP-460), and those that keep the cluster in order: leadership goes
back to the preferred replicas, and where a topic allows it anybody leads rather than nobody.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.leadership import Leadership, TopicSettings
from penstock.cluster.metadata.partition_change import Election
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import NO_LEADER, MetadataRecord

# So that one round does not hold the controller for long.
ELECTIONS_PER_ROUND_MAX = 1000


class ElectionType(enum.IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectedPartition:
    topic: str
    partition_id: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


def elect_leaders(
    image: MetadataImage,
    topic_settings: TopicSettings,
    election_type: int,
    requested: Sequence[tuple[str, int]] | None,
) -> Decision[list[ElectedPartition]]:
    """None asks for all partitions; those that need no election are left out then. Raises Refused."""
    if election_type not in ElectionType.__members__.values():
        raise Refused(ErrorCode.invalid_request, f"Unknown election type {election_type}")
    leadership = Leadership(image, topic_settings)
    records: list[MetadataRecord] = []
    answer = []
    for topic, index in _all_partitions(image) if requested is None else requested:
        one = _elect(image, leadership, ElectionType(election_type), topic, index, records)
        if requested is not None or one.error_code != ErrorCode.election_not_needed:
            answer.append(one)
    return Decision(answer, records)


def _all_partitions(image: MetadataImage) -> Iterable[tuple[str, int]]:
    return [(topic.name, index) for topic in image.topics.values() for index in topic.partitions]


def _elect(
    image: MetadataImage,
    leadership: Leadership,
    election_type: ElectionType,
    topic_name: str,
    index: int,
    records: list[MetadataRecord],
) -> ElectedPartition:
    topic = image.topics.get(topic_name)
    if topic is None:
        return ElectedPartition(
            topic_name, index, ErrorCode.unknown_topic_or_partition, f"No such topic as {topic_name}"
        )
    partition = topic.partitions.get(index)
    if partition is None:
        message = f"No such partition as {topic_name}-{index}"
        return ElectedPartition(topic_name, index, ErrorCode.unknown_topic_or_partition, message)
    if election_type is ElectionType.PREFERRED:
        is_needed = partition.leader != partition.preferred_leader
        wanted, failure = Election.PREFERRED, ErrorCode.preferred_leader_not_available
    else:
        is_needed = partition.leader == NO_LEADER
        wanted, failure = Election.UNCLEAN, ErrorCode.eligible_leaders_not_available
    if not is_needed:
        return ElectedPartition(topic_name, index, ErrorCode.election_not_needed, _MESSAGES["election_not_needed"])
    record = leadership.change(partition, wanted).record(leadership.directory_of)
    if record is None or record.leader == NO_LEADER:
        # A leader that is about to go is better than none.
        return ElectedPartition(topic_name, index, failure, _MESSAGES[failure.name])
    records.append(record)
    return ElectedPartition(topic_name, index)


_MESSAGES = {
    "election_not_needed": "Leader election not needed for topic partition.",
    "preferred_leader_not_available": "The preferred leader was not available.",
    "eligible_leaders_not_available": "Eligible topic partition leaders are not available.",
}


def elect_preferred(image: MetadataImage, topic_settings: TopicSettings) -> Decision[bool]:
    """Gives leadership back to the preferred replicas that are in sync. The answer says whether there may be more."""
    return _round(image, topic_settings, image.index.not_preferred, Election.PREFERRED)


def elect_unclean(image: MetadataImage, topic_settings: TopicSettings) -> Decision[bool]:
    """Finds leaders for partitions without one, as their topics' settings allow: for when the settings have changed."""
    return _round(image, topic_settings, image.index.leaderless, None)


def _round(
    image: MetadataImage,
    topic_settings: TopicSettings,
    partitions: Iterable[PartitionImage],
    election: Election | None,
) -> Decision[bool]:
    leadership = Leadership(image, topic_settings)
    records: list[MetadataRecord] = []
    for partition in partitions:
        if len(records) == ELECTIONS_PER_ROUND_MAX:
            return Decision(True, records)
        record = leadership.change(partition, election).record(leadership.directory_of)
        if record is not None and record.leader != NO_LEADER:
            records.append(record)
    return Decision(False, records)
