"""The uniform assignor where members subscribe to different topics.

1. Members keep what they have of the topics they still subscribe to.
2. Partitions without an owner go, topic by topic, to the subscriber that has the fewest. Topics with the most
   partitions per subscriber come first: later ones can even out what those left uneven.
3. Topic by topic, partitions move from the subscriber with the most to the one with the fewest while that evens out
   their sizes, until a round moves nothing. Subscriptions that overlap in chains may take many rounds to come to
   rest; each about halves what is uneven, so the rounds are limited.
"""

from collections.abc import Generator
from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from penstock.coordinator.group.assignors.spec import STEPS_PER_SLICE, Assigning, GroupSpec, Partitions

ROUNDS_MAX = 16
_FREE = -1


class _Table:
    """Who owns what while the assignor works. Members are numbers: their place in the order of their ids."""

    __slots__ = ("member_ids", "owners", "sizes", "subscribers")

    def __init__(self, group: GroupSpec) -> None:
        self.member_ids = sorted(group.members)
        self.sizes = [0] * len(self.member_ids)
        self.subscribers: dict[UUID, list[int]] = {}
        # Per topic, the owner of each partition.
        self.owners: dict[UUID, list[int]] = {}

    def give(self, topic: UUID, partition: int, member: int) -> None:
        owners = self.owners[topic]
        if owners[partition] != _FREE:
            self.sizes[owners[partition]] -= 1
        owners[partition] = member
        self.sizes[member] += 1

    def assignment(self) -> Assigning:
        owned: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in self.member_ids}
        steps = 0
        for topic, owners in self.owners.items():
            for partition, member in enumerate(owners):
                owned[self.member_ids[member]].setdefault(topic, set()).add(partition)
            steps += len(owners)
            if steps >= STEPS_PER_SLICE:
                steps = 0
                yield
        return {member_id: _frozen(topics) for member_id, topics in owned.items()}


def _frozen(topics: dict[UUID, set[int]]) -> Partitions:
    return {topic: frozenset(partitions) for topic, partitions in topics.items()}


def assign_mixed(group: GroupSpec) -> Assigning:
    table = _Table(group)
    yield from _keep(group, table)
    topics = sorted(
        table.subscribers,
        key=lambda topic: (
            -len(table.owners[topic]) / len(table.subscribers[topic]),
            len(table.subscribers[topic]),
            topic,
        ),
    )
    yield from _hand_out(topics, table)
    yield from _balance(topics, table)
    return (yield from table.assignment())


def _keep(group: GroupSpec, table: _Table) -> Generator[None, None, None]:
    steps = 0
    for number, member_id in enumerate(table.member_ids):
        member = group.members[member_id]
        for topic in member.topics:
            if topic not in table.owners:
                table.owners[topic] = [_FREE] * group.partition_counts[topic]
                table.subscribers[topic] = []
            table.subscribers[topic].append(number)
        for topic, partitions in member.assigned.items():
            if topic in member.topics:
                owners = table.owners[topic]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] == _FREE:
                        table.give(topic, partition, number)
                steps += len(partitions)
        steps += 1 + len(member.topics)
        if steps >= STEPS_PER_SLICE:
            steps = 0
            yield


def _hand_out(topics: list[UUID], table: _Table) -> Generator[None, None, None]:
    steps = 0
    for topic in topics:
        free = [partition for partition, owner in enumerate(table.owners[topic]) if owner == _FREE]
        steps += len(table.owners[topic])
        if free:
            fewest_first = [(table.sizes[member], member) for member in table.subscribers[topic]]
            heapify(fewest_first)
            for partition in free:
                size, member = fewest_first[0]
                heapreplace(fewest_first, (size + 1, member))
                table.give(topic, partition, member)
            steps += len(fewest_first)
        if steps >= STEPS_PER_SLICE:
            steps = 0
            yield


def _balance(topics: list[UUID], table: _Table) -> Generator[None, None, None]:
    shared = [topic for topic in topics if len(table.subscribers[topic]) > 1]
    steps = 0
    for _ in range(ROUNDS_MAX):
        moved = False
        for topic in shared:
            moved = _even_out(topic, table) or moved
            steps += len(table.subscribers[topic])
            if steps >= STEPS_PER_SLICE:
                steps = 0
                yield
        if not moved:
            return


def _even_out(topic: UUID, table: _Table) -> bool:
    """Moves the topic's partitions while two of its subscribers differ by more than one; whether it moved any."""
    sizes = table.sizes
    subscribers = table.subscribers[topic]
    fewest_first = [(sizes[member], member) for member in subscribers]
    if max(fewest_first)[0] - min(fewest_first)[0] <= 1:
        return False
    partitions_of: dict[int, list[int]] = {}
    for partition, owner in enumerate(table.owners[topic]):
        partitions_of.setdefault(owner, []).append(partition)
    most_first = [(-sizes[member], member) for member in partitions_of]
    heapify(fewest_first)
    heapify(most_first)
    moved = False
    while most_first:
        most, giver = most_first[0]
        fewest, taker = fewest_first[0]
        if -most != sizes[giver]:
            heapreplace(most_first, (-sizes[giver], giver))
        elif fewest != sizes[taker]:
            heapreplace(fewest_first, (sizes[taker], taker))
        elif -most - fewest <= 1:
            break
        else:
            # What a taker got in this pass stays with it: it is at the low end until the pass is over.
            table.give(topic, partitions_of[giver].pop(), taker)
            moved = True
            heappop(most_first)
            if partitions_of[giver]:
                heappush(most_first, (-sizes[giver], giver))
    return moved
