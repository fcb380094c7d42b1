"""The uniform assignor: members get as nearly the same number of partitions as can be, and keep what they have.

Balance comes first, then stickiness, then racks. Where all members subscribe to the same topics, sizes differ by one
at most and no more partitions move than that takes: the members that may have one more than the others are, as far as
possible, those that have it already. Among partitions that need an owner, each goes to a member in a rack where it
has a replica if such a member still has room (as KIP-881 wants it; Kafka 4's own uniform assignor ignores racks).

Where subscriptions differ, see `uniform_mixed`.
"""

from collections import deque
from collections.abc import Generator
from uuid import UUID

from penstock.coordinator.group.assignors.spec import STEPS_PER_SLICE, Assigning, GroupSpec
from penstock.coordinator.group.assignors.uniform_mixed import assign_mixed

_Owned = dict[str, dict[UUID, set[int]]]
_TopicPartition = tuple[UUID, int]


def assign_uniform(group: GroupSpec) -> Assigning:
    subscriptions = {member.topics for member in group.members.values()}
    if len(subscriptions) > 1:
        return (yield from assign_mixed(group))
    topics: frozenset[UUID] = next(iter(subscriptions), frozenset())
    owned, unassigned = yield from _kept(group, topics)
    unfilled = yield from _trimmed(group, topics, owned, unassigned)
    yield from _hand_out(group, unassigned, unfilled, owned)
    return {
        member_id: {topic: frozenset(partitions) for topic, partitions in topics_owned.items() if partitions}
        for member_id, topics_owned in owned.items()
    }


def _kept(group: GroupSpec, topics: frozenset[UUID]) -> Generator[None, None, tuple[_Owned, list[_TopicPartition]]]:
    """What members have and may keep, and the partitions that nobody has."""
    free = {topic: set(range(group.partition_counts[topic])) for topic in topics}
    owned: _Owned = {}
    steps = 0
    # In the order of their ids, so that the same group always comes to the same assignment.
    for member_id in sorted(group.members):
        mine: dict[UUID, set[int]] = {}
        for topic, partitions in group.members[member_id].assigned.items():
            if topic in free:
                mine[topic] = free[topic] & partitions
                free[topic] -= partitions
                steps += len(partitions)
        owned[member_id] = mine
        steps += 1
        if steps >= STEPS_PER_SLICE:
            steps = 0
            yield
    return owned, [(topic, partition) for topic in sorted(topics) for partition in sorted(free[topic])]


def _trimmed(
    group: GroupSpec, topics: frozenset[UUID], owned: _Owned, unassigned: list[_TopicPartition]
) -> Generator[None, None, dict[str, int]]:
    """Takes from members what is above their share; returns who has room for how many."""
    share, extra = divmod(sum(group.partition_counts[topic] for topic in topics), max(1, len(owned)))
    sizes = {member_id: sum(map(len, mine.values())) for member_id, mine in owned.items()}
    yield
    unfilled: dict[str, int] = {}
    steps = 0
    # Sorting is stable: among those of one size the order of the ids holds.
    for member_id in sorted(sizes, key=sizes.__getitem__, reverse=True):
        quota = share
        if extra:
            extra -= 1
            quota += 1
        surplus = sizes[member_id] - quota
        if surplus < 0:
            unfilled[member_id] = -surplus
        elif surplus:
            unassigned.extend(_release(group, member_id, owned[member_id], surplus))
            steps += surplus
        steps += 1
        if steps >= STEPS_PER_SLICE:
            steps = 0
            yield
    return unfilled


def _release(
    group: GroupSpec, member_id: str, mine: dict[UUID, set[int]], count: int
) -> Generator[_TopicPartition, None, None]:
    """First what has no replica in the member's rack; then of the topics it has most of, so that it keeps some of each.
    Of each topic the highest numbers go."""
    rack = group.members[member_id].rack_id
    left = {topic: sorted(partitions) for topic, partitions in mine.items()}
    far = [
        (topic, partition)
        for topic in sorted(left)
        for partition in (reversed(left[topic]) if rack is not None else ())
        if _is_elsewhere(group, topic, partition, rack or "")
    ]
    for topic, partition in far[:count]:
        left[topic].remove(partition)
        mine[topic].remove(partition)
        yield topic, partition
    for _ in range(count - len(far)):
        topic = max(left, key=lambda topic: (len(left[topic]), topic))
        partition = left[topic].pop()
        mine[topic].remove(partition)
        yield topic, partition


def _is_elsewhere(group: GroupSpec, topic: UUID, partition: int, rack: str) -> bool:
    racks = group.partition_racks.get(topic, ())
    return partition < len(racks) and bool(racks[partition]) and rack not in racks[partition]


def _hand_out(
    group: GroupSpec, unassigned: list[_TopicPartition], unfilled: dict[str, int], owned: _Owned
) -> Generator[None, None, None]:
    waiting = yield from _hand_out_within_racks(group, unassigned, unfilled, owned)
    members = iter(unfilled.items())
    member_id, room = "", 0
    for step, (topic, partition) in enumerate(waiting, 1):
        while not room:
            member_id, room = next(members)
        owned[member_id].setdefault(topic, set()).add(partition)
        room -= 1
        if step % STEPS_PER_SLICE == 0:
            yield


def _hand_out_within_racks(
    group: GroupSpec, unassigned: list[_TopicPartition], unfilled: dict[str, int], owned: _Owned
) -> Generator[None, None, list[_TopicPartition]]:
    """Gives partitions to members in a rack of theirs while those have room; returns the partitions left over."""
    by_rack: dict[str, deque[str]] = {}
    for member_id in unfilled:
        if (rack := group.members[member_id].rack_id) is not None:
            by_rack.setdefault(rack, deque()).append(member_id)
    if not by_rack or not group.partition_racks:
        return unassigned
    left: list[_TopicPartition] = []
    for step, (topic, partition) in enumerate(unassigned, 1):
        racks = group.partition_racks.get(topic, ())
        candidates = [
            members for rack in (racks[partition] if partition < len(racks) else ()) if (members := by_rack.get(rack))
        ]
        if candidates:
            # The rack with the most members waiting, so that the others keep a choice.
            members = max(candidates, key=len)
            member_id = members[0]
            owned[member_id].setdefault(topic, set()).add(partition)
            unfilled[member_id] -= 1
            if unfilled[member_id] == 0:
                members.popleft()
        else:
            left.append((topic, partition))
        if step % STEPS_PER_SLICE == 0:
            yield
    return left
