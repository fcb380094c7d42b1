"""A group as it will be once the records of a decision are replayed: decisions look at this, never change the group."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from penstock.coordinator.group.assignors import GroupSpec, MemberSpec
from penstock.coordinator.group.consumer_state import (
    ConsumerGroup,
    ConsumerMember,
    ResolvedRegex,
    subscribed_names,
)


class Change:
    """`removed` are members of the group as they are; `added` is one of them as it will be, or somebody new."""

    __slots__ = ("added", "group", "regexes", "removed")

    def __init__(
        self, group: ConsumerGroup, removed: Sequence[ConsumerMember] = (), added: ConsumerMember | None = None
    ) -> None:
        self.group = group
        self.removed = removed
        self.added = added
        self.regexes: dict[str, ResolvedRegex] = dict(group.regexes)

    def members(self) -> dict[str, ConsumerMember]:
        members = dict(self.group.members)
        for member in self.removed:
            del members[member.member_id]
        if self.added is not None:
            members[self.added.member_id] = self.added
        return members

    def regex_counts(self) -> Counter[str]:
        counts = self.group.regex_counts.copy()
        counts.subtract(member.topic_regex for member in self.removed if member.topic_regex is not None)
        if self.added is not None and self.added.topic_regex is not None:
            counts[self.added.topic_regex] += 1
        return +counts

    def topic_names(self) -> set[str]:
        """All that somebody in the group subscribes to."""
        counts = self.group.topic_counts.copy()
        for member in self.removed:
            counts.subtract(member.topic_names)
        names = set(+counts)
        if self.added is not None:
            names |= self.added.topic_names
        for expression in self.regex_counts():
            if (resolved := self.regexes.get(expression)) is not None:
                names |= resolved.topics
        return names

    def metadata_hash(self) -> int:
        """Of all that an assignment depends on besides the members. It need not be Kafka's own (KIP-1101 keeps the
        algorithm open): where a coordinator of another kind takes over, the group is assigned once more."""
        topics = self.group.topics
        digest = hashlib.blake2b(digest_size=8)
        found = False
        for name in sorted(self.topic_names()):
            topic_id = topics.topic_id(name)
            if topic_id is not None:
                found = True
                digest.update(b"%b%d\0%b\0" % (topic_id.bytes, topics.partition_count(name) or 0, name.encode()))
                for racks in topics.partition_racks(name) if self._has_racks() else ():
                    digest.update("\0".join(sorted(racks)).encode() + b"\n")
        return int.from_bytes(digest.digest(), signed=True) if found else 0

    def _has_racks(self) -> bool:
        """Whether some member says where it is: otherwise nobody asks where partitions are."""
        count = self.group.rack_member_count - sum(member.rack_id is not None for member in self.removed)
        return count > 0 or (self.added is not None and self.added.rack_id is not None)

    def preferred_assignor(self, offered: Sequence[str]) -> str:
        """The one that most members ask for; the first one offered where nobody asks."""
        counts = self.group.assignor_counts.copy()
        counts.subtract(member.server_assignor for member in self.removed if member.server_assignor is not None)
        if self.added is not None and self.added.server_assignor is not None:
            counts[self.added.server_assignor] += 1
        return max(offered, key=lambda name: counts[name])

    def topic_ids(self, member: ConsumerMember) -> frozenset[UUID]:
        """What the member subscribes to, as far as it exists."""
        topic_ids = map(self.group.topics.topic_id, subscribed_names(member, self.regexes))
        return frozenset(topic_id for topic_id in topic_ids if topic_id is not None)

    def spec(self) -> GroupSpec:
        """What an assignor is to know."""
        # Members with the same subscription share one set: thousands of them subscribe alike.
        known: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
        specs: dict[str, MemberSpec] = {}
        for member_id, member in self.members().items():
            subscription = (member.topic_names, member.topic_regex)
            topic_ids = known.get(subscription)
            if topic_ids is None:
                topic_ids = known[subscription] = self.topic_ids(member)
            target = self.group.target_of(member)
            specs[member_id] = MemberSpec(topic_ids, target, member.instance_id, member.rack_id)
        counts: dict[UUID, int] = {}
        racks: dict[UUID, Sequence[frozenset[str]]] = {}
        for topic_id in frozenset[UUID]().union(*known.values()):
            name = self.group.topics.topic_name(topic_id) or ""
            counts[topic_id] = self.group.topics.partition_count(name) or 0
            if self._has_racks():
                racks[topic_id] = self.group.topics.partition_racks(name)
        return GroupSpec(specs, counts, racks)
