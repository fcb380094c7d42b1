"""What an assignor is told, and what it gives back."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. Never holds an empty set."""

Assigning = Generator[None, None, dict[str, Partitions]]
"""The work of assigning: it yields between slices and returns the partitions of every member."""

STEPS_PER_SLICE = 1000
"""Members or partitions that an assignor handles between two yields: about a millisecond."""


class MemberSpec(NamedTuple):
    topics: frozenset[UUID]
    """What it subscribes to, as far as it exists."""
    assigned: Partitions
    """What the last assignment gave it."""
    instance_id: str | None = None
    rack_id: str | None = None


class GroupSpec(NamedTuple):
    """A picture of the group that does not change while the assignor works."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]
    """Of every topic that a member subscribes to."""
    partition_racks: Mapping[UUID, Sequence[frozenset[str]]]
    """The racks where each partition has replicas; a topic may be missing."""


Assignor = Callable[[GroupSpec], Assigning]
