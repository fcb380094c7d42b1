"""What the parts of a shard share: its groups of either kind, timers, topics, settings, and memory of evictions."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.base.ports import Random
from penstock.base.settings import GROUP_SETTINGS
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group.requests import Eviction, TopicsView
from penstock.coordinator.requests import Settings
from penstock.coordinator.timers import Timers

EVICTIONS_KEPT_PER_GROUP = 10
_GROUPS_WITH_EVICTIONS_KEPT = 1000

PartitionCheck = Callable[[str, int], ErrorCode]
"""Whether a commit for this topic and partition is taken: by KIP-1251 an older epoch commits what it still owns."""

GroupOverrides = Callable[[str], Mapping[str, str]]
"""The settings that an operator gave to a group of its own, by the group's id."""


class Group(Protocol):
    """What offsets, listing and deletion need to know of a group, whichever protocol it speaks."""

    group_id: str

    @property
    def kind(self) -> Literal["classic", "consumer"]: ...

    def state_name(self) -> str:
        """As ListGroups shows it: Empty, Stable, PreparingRebalance, Assigning, ..."""

    def protocol_type_name(self) -> str:
        """As ListGroups shows it; empty for a group that only commits offsets."""

    def is_empty(self) -> bool:
        """Whether it has no members."""

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation_or_epoch: int, is_transactional: bool, version: int
    ) -> ErrorCode | PartitionCheck: ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode: ...

    def check_offset_delete(self) -> ErrorCode: ...

    def check_delete(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic_name: str) -> bool:
        """Whether members want this topic, so that its offsets neither expire nor are deleted."""

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        """From when the retention of an offset counts (KIP-211); None while the group keeps all its offsets."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that take away everything of the group but its offsets."""


class ShardState:
    __slots__ = ("_overrides_of", "evictions", "groups", "random", "settings", "timers", "topics")

    def __init__(self, settings: Settings, topics: TopicsView, random: Random, overrides_of: GroupOverrides) -> None:
        self.settings = settings
        self._overrides_of = overrides_of
        self.topics = topics
        self.random = random
        self.groups: dict[str, Group] = {}
        self.timers = Timers()
        self.evictions: dict[str, deque[Eviction]] = {}

    def setting_of(self, group_id: str, name: str) -> Any:
        """The group's own value, or what the node has for all groups."""
        text = self._overrides_of(group_id).get(name)
        return self.settings[f"group.{name}"] if text is None else GROUP_SETTINGS[name].parse(text)

    def note_eviction(self, group_id: str, member_id: str, at_ms: int, reason: str) -> None:
        kept = self.evictions.pop(group_id, None) or deque(maxlen=EVICTIONS_KEPT_PER_GROUP)
        kept.append(Eviction(member_id, at_ms, reason))
        # The group whose last eviction is the latest stands last; those of groups long gone make room.
        self.evictions[group_id] = kept
        if len(self.evictions) > _GROUPS_WITH_EVICTIONS_KEPT:
            del self.evictions[next(iter(self.evictions))]

    def random_uuid(self) -> UUID:
        return UUID(bytes=self.random.random_bytes(16), version=4)
