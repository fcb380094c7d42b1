"""How a member comes from what it has to what the target assignment gives it (KIP-848).

          target changed, nothing to give up
    STABLE ------------------------------------> STABLE in the target's epoch, or UNRELEASED_PARTITIONS
       |                                                          ^
       | something to give up                                     | gave it up
       v                                                          |
    UNREVOKED_PARTITIONS -----------------------------------------+
       stays in its epoch, is told the smaller assignment, and has its rebalance timeout to give the rest up

    UNRELEASED_PARTITIONS: in the target's epoch, with what is free of its target; looks again on each heartbeat.

A partition is free when no member has it or is still to give it up. That alone, not the target, decides who may have
what, so it holds also while a target is being written piece by piece.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.group.assignors import Partitions
from penstock.coordinator.group.consumer_state import ConsumerMember, EpochPartitions, MemberState

Owned = Mapping[UUID, Collection[int]]
"""The partitions that a member says it has."""

OwnersOf = Callable[[UUID], Mapping[int, str]]
"""The members that have the partitions of a topic; what is not there is free."""


class Goal(NamedTuple):
    """Where a member is to go, and what it says of where it is."""

    target_epoch: int
    target: Partitions
    topics: frozenset[UUID]
    """What it subscribes to. Of other topics it gets nothing, whatever an older target says."""
    has_subscription_changed: bool
    owned: Owned | None
    """None when its request did not say."""
    owners_of: OwnersOf
    own_ids: tuple[str, ...]
    """The member's id, and that of the static member whose place it takes: what they have is its own."""


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """The member's next state, or the member itself when it cannot move. Raises Refused."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.target_epoch:
                return _next(member, goal)
            return _without_unsubscribed(member, goal) if goal.has_subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not _owns_any(goal.owned, member.revoking):
                return _next(member, goal)
            return _without_unsubscribed(member, goal) if goal.has_subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, goal)
        case MemberState.UNKNOWN:
            if goal.owned is None or goal.owned:
                raise Refused(
                    ErrorCode.fenced_member_epoch,
                    f"Member {member.member_id} is in an unknown state. It must give up all its partitions and rejoin.",
                )
            return _next(member._replace(epoch=goal.target_epoch), goal)


def _owns_any(owned: Owned | None, partitions: EpochPartitions) -> bool:
    """Whether it has, or must be taken to have, one of these partitions."""
    if owned is None:
        return True
    return any(not partitions.get(topic, {}).keys().isdisjoint(numbers) for topic, numbers in owned.items())


def _next(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    for topic, epochs in member.assigned.items():
        target = _target_of_topic(goal, topic)
        _put(kept, topic, ((number, epoch) for number, epoch in epochs.items() if number in target))
        _put(revoking, topic, ((number, epoch) for number, epoch in epochs.items() if number not in target))
    if revoking and _owns_any(goal.owned, revoking):
        return member.at_epoch(member.epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
        )
    waits = False
    for topic in goal.target:
        missing = _target_of_topic(goal, topic) - kept.get(topic, {}).keys()
        owners = goal.owners_of(topic)
        free = [number for number in missing if number not in owners or owners[number] in goal.own_ids]
        waits = waits or len(free) < len(missing)
        _put(kept, topic, ((number, goal.target_epoch) for number in sorted(free)))
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.at_epoch(goal.target_epoch)._replace(state=state, assigned=kept, revoking={})


def _target_of_topic(goal: Goal, topic: UUID) -> frozenset[int]:
    return goal.target.get(topic, frozenset()) if topic in goal.topics else frozenset()


def _without_unsubscribed(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Takes partitions of topics that the member no longer wants from it at once, before there is a new target."""
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic in goal.topics}
    if len(kept) == len(member.assigned):
        return member
    revoking = {topic: dict(epochs) for topic, epochs in member.revoking.items()}
    for topic, epochs in member.assigned.items():
        if topic not in kept:
            _put(revoking, topic, epochs.items())
    moved = member.at_epoch(member.epoch)._replace(assigned=kept)
    if _owns_any(goal.owned, revoking):
        return moved._replace(state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)
    return moved


def _put(partitions: dict[UUID, dict[int, int]], topic: UUID, items: Iterable[tuple[int, int]]) -> None:
    if found := dict(items):
        partitions.setdefault(topic, {}).update(found)
