"""What comes into a group coordinator besides kio's decoded requests, and what is read from several kinds of them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID


class TopicsView(Protocol):
    """The topics of the cluster as the coordinator sees them now."""

    version: int
    """Grows with every change."""

    def partition_count(self, topic_name: str) -> int | None: ...

    def topic_id(self, topic_name: str) -> UUID | None: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def names(self) -> Iterable[str]: ...

    def partition_racks(self, topic_name: str) -> Sequence[frozenset[str]]:
        """The racks where each partition has replicas; empty where brokers name no racks. Asked for often."""


class Eviction(NamedTuple):
    """Why the coordinator put a member out, for people who ask later."""

    member_id: str
    at_ms: int
    reason: str


# Keys and group metadata are in versions whose strings have a 16-bit length; a member id is up to 37 bytes longer than
# the name it is made of.
_RECORD_TEXT_BYTES_MAX = 32767 - 37


def fits_record(text: str) -> bool:
    return len(text) <= _RECORD_TEXT_BYTES_MAX // 4 or len(text.encode()) <= _RECORD_TEXT_BYTES_MAX


def instance_id_of(request: Any) -> str | None:
    """The `group.instance.id` of a static member; old versions of the requests know none."""
    instance_id: str | None = getattr(request, "group_instance_id", None)
    return instance_id


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    reason: str | None


def leaving_members(request: Any) -> list[LeavingMember]:
    """LeaveGroup before version 3 is about one member, later about any number."""
    if not hasattr(request, "members"):
        return [LeavingMember(request.member_id, None, None)]
    return [
        LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None))
        for member in request.members
    ]
