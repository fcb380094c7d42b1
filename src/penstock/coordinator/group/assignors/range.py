"""The range assignor: of each topic, every subscriber gets one run of neighbouring partitions.

Members stand in the same order for every topic, so partitions with the same number of topics with the same partition
count go to the same member: that is what makes it fit for joins. Static members come first, by instance id; their
order, and so their ranges, survive a restart. It is not sticky.
"""

from collections.abc import Generator
from uuid import UUID

from penstock.coordinator.group.assignors.spec import STEPS_PER_SLICE, Assigning, GroupSpec, MemberSpec


def assign_range(group: GroupSpec) -> Assigning:
    members = sorted(group.members.items(), key=_order)
    subscribers = yield from _subscribers(members)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id, _ in members}
    steps = 0
    for topic in sorted(subscribers):
        partition_count = group.partition_counts[topic]
        share, extra = divmod(partition_count, len(subscribers[topic]))
        start = 0
        for member_id in subscribers[topic]:
            end = start + share + (extra > 0)
            extra -= 1
            if end == start:
                # Fewer partitions than subscribers: nothing is left for this one and those after it.
                break
            assigned[member_id][topic] = frozenset(range(start, end))
            start = end
        steps += partition_count + 1
        if steps >= STEPS_PER_SLICE:
            steps = 0
            yield
    return {**assigned}


def _order(item: tuple[str, MemberSpec]) -> tuple[bool, str]:
    member_id, member = item
    return (True, member_id) if member.instance_id is None else (False, member.instance_id)


def _subscribers(members: list[tuple[str, MemberSpec]]) -> Generator[None, None, dict[UUID, list[str]]]:
    subscriptions = {member.topics for _, member in members}
    if len(subscriptions) == 1:
        everyone = [member_id for member_id, _ in members]
        return dict.fromkeys(subscriptions.pop(), everyone)
    subscribers: dict[UUID, list[str]] = {}
    steps = 0
    for member_id, member in members:
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(member_id)
        steps += len(member.topics) + 1
        if steps >= STEPS_PER_SLICE:
            steps = 0
            yield
    return subscribers
