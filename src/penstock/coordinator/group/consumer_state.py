"""The state of a group that speaks the new protocol (KIP-848). It changes only by replaying records.

Three epochs. The group's grows whenever members, subscriptions or topics change. The target assignment's says for
which group epoch it was computed. A member's says up to which target it has come; it grows when the member has given
up what it must give up, and a partition becomes another member's only after that.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from enum import IntEnum
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group import consumer_records
from penstock.coordinator.group.assignors import Partitions
from penstock.coordinator.group.records import ClassicMemberMetadata
from penstock.coordinator.group.requests import TopicsView
from penstock.coordinator.group.state import PartitionCheck

EpochPartitions = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch at which it was assigned. Never holds an empty mapping."""

NO_PARTITIONS: EpochPartitions = MappingProxyType({})
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
NO_EPOCH = -1
CONSUMER_PROTOCOL_TYPE = "consumer"
# The first version of OffsetCommit that carries a member epoch.
_COMMIT_VERSION_WITH_EPOCHS = 9


class MemberState(IntEnum):
    """Where a member stands on its way to the target assignment. Numbers as in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it comes to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in the target's epoch, but others have not given up yet what it shall get."""
    UNKNOWN = 127
    """A later version of the software wrote a state that this one does not know."""


class ConsumerMember(NamedTuple):
    member_id: str
    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """How it speaks, when it is a member by the classic protocol."""
    assigned: EpochPartitions = NO_PARTITIONS
    revoking: EpochPartitions = NO_PARTITIONS

    def at_epoch(self, epoch: int) -> "ConsumerMember":
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def has_same_partitions(self, other: "ConsumerMember") -> bool:
        return self.assigned.keys() == other.assigned.keys() and all(
            numbers.keys() == other.assigned[topic_id].keys() for topic_id, numbers in self.assigned.items()
        )

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        for partitions in (self.assigned, self.revoking):
            if (epoch := partitions.get(topic_id, {}).get(partition)) is not None:
                return epoch
        return None


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched when there were the topics of `topics_version`."""

    topics: frozenset[str]
    topics_version: int
    resolved_ms: int


def subscribed_names(member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    if member.topic_regex is None or (resolved := regexes.get(member.topic_regex)) is None:
        return member.topic_names
    return member.topic_names | resolved.topics if member.topic_names else resolved.topics


class ConsumerGroup:
    __slots__ = (
        "assignment_epoch",
        "assignment_ms",
        "assignor_counts",
        "checked_topics_version",
        "classic_member_count",
        "classic_protocol_counts",
        "epoch",
        "group_id",
        "has_partition_metadata_record",
        "members",
        "metadata_hash",
        "owners",
        "rack_member_count",
        "regex_counts",
        "regexes",
        "static_member_ids",
        "target",
        "topic_counts",
        "topics",
    )

    def __init__(self, group_id: str, topics: TopicsView) -> None:
        self.group_id = group_id
        self.topics = topics
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        # When the target was computed; 0 when it never was.
        self.assignment_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_member_ids: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        # The member that has each partition, or still has to give it up. What is not here is free.
        self.owners: dict[UUID, dict[int, str]] = {}
        self.topic_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        self.regexes: dict[str, ResolvedRegex] = {}
        self.assignor_counts: Counter[str] = Counter()
        self.rack_member_count = 0
        self.classic_member_count = 0
        self.classic_protocol_counts: Counter[str] = Counter()
        # Kafka before 4.1 kept the subscribed topics' metadata in a record that is now to be removed.
        self.has_partition_metadata_record = False
        # Not from records: the topics for which `metadata_hash` is known to hold.
        self.checked_topics_version = -1

    # What the rest of the shard asks of any group.

    @property
    def kind(self) -> Literal["classic", "consumer"]:
        return "consumer"

    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def protocol_type_name(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    def is_empty(self) -> bool:
        return not self.members

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation_or_epoch: int, is_transactional: bool, version: int
    ) -> ErrorCode | PartitionCheck:
        # Without an epoch it comes from an administrator, or from a consumer that assigns itself partitions.
        if generation_or_epoch < 0 and not self.members:
            return ErrorCode.none
        if is_transactional and generation_or_epoch == NO_EPOCH and not member_id and instance_id is None:
            return ErrorCode.none
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not is_transactional and member.classic is None and version < _COMMIT_VERSION_WITH_EPOCHS:
            return ErrorCode.unsupported_version
        if generation_or_epoch == member.epoch:
            return ErrorCode.none
        if generation_or_epoch > member.epoch:
            return _wrong_epoch(member)
        return partial(self._check_older_commit, member, generation_or_epoch)

    def _check_older_commit(self, member: ConsumerMember, epoch: int, topic_name: str, partition: int) -> ErrorCode:
        """A commit from before the member's last epoch still counts for what it has held all the while (KIP-1251)."""
        topic_id = self.topics.topic_id(topic_name)
        since = None if topic_id is None else member.assignment_epoch(topic_id, partition)
        return _wrong_epoch(member) if since is None or epoch < since else ErrorCode.none

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.none
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if member_epoch == member.epoch else _wrong_epoch(member)

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.none

    def check_delete(self) -> ErrorCode:
        return ErrorCode.non_empty_group if self.members else ErrorCode.none

    def is_subscribed_to(self, topic_name: str) -> bool:
        return self.topic_counts[topic_name] > 0 or any(topic_name in regex.topics for regex in self.regexes.values())

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        return consumer_records.group_tombstones(self)

    # What its members are.

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_member_ids.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerMember) -> Partitions:
        """A static member that comes back under a new id takes over what was meant for it under the old one."""
        if member.member_id in self.target or member.instance_id is None:
            return self.target.get(member.member_id, {})
        return self.target.get(self.static_member_ids.get(member.instance_id, ""), {})

    def owners_of(self, topic_id: UUID) -> Mapping[int, str]:
        return self.owners.get(topic_id, {})

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of its target is still with another member."""
        return any(
            self.owners_of(topic_id).get(partition, member.member_id) != member.member_id
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    def supports_classic_protocols(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether the classic members and one with these protocols have one in common."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        return any(self.classic_protocol_counts[name] == self.classic_member_count for name in names)

    # Replaying.

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is not None:
            self._count(old, -1)
            self._disown(old)
        self._count(member, 1)
        for partitions in (member.assigned, member.revoking):
            for topic_id, epochs in partitions.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member.member_id))
        if member.instance_id is not None:
            self.static_member_ids[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        self._disown(member)
        instance_id = member.instance_id
        if instance_id is not None and self.static_member_ids.get(instance_id) == member_id:
            del self.static_member_ids[instance_id]

    def _disown(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, epochs in partitions.items():
                owners = self.owners.get(topic_id, {})
                for partition in epochs:
                    # In a compacted log the new owner's record may come before the old owner's last one.
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)

    def _count(self, member: ConsumerMember, by: int) -> None:
        for name in member.topic_names:
            _add(self.topic_counts, name, by)
        if member.topic_regex is not None:
            _add(self.regex_counts, member.topic_regex, by)
        if member.server_assignor is not None:
            _add(self.assignor_counts, member.server_assignor, by)
        if member.rack_id is not None:
            self.rack_member_count += by
        if member.classic is not None:
            self.classic_member_count += by
            for protocol in member.classic.supported_protocols:
                _add(self.classic_protocol_counts, protocol.name, by)


def _add(counts: Counter[str], key: str, by: int) -> None:
    counts[key] += by
    if counts[key] == 0:
        del counts[key]


def _wrong_epoch(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
