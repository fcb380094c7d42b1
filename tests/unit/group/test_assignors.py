"""The assignors that run on the server (KIP-848), on groups made up by Hypothesis."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.group.assignors import ASSIGNORS, GroupSpec, MemberSpec, Partitions

TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]
Assignment = dict[str, Partitions]

assignors = st.sampled_from(sorted(ASSIGNORS))
partition_counts = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})
member_ids = st.lists(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)
subscriptions = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def mixed_groups(draw: st.DrawFn) -> GroupSpec:
    """Members with subscriptions of their own, and an older assignment in which anything may stand."""
    owned = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 14), min_size=1))
    members = {
        member_id: MemberSpec(draw(subscriptions), draw(owned), draw(st.none() | st.just(f"static-{member_id}")))
        for member_id in draw(member_ids)
    }
    return GroupSpec(members, draw(partition_counts), {})


@st.composite
def like_groups(draw: st.DrawFn) -> GroupSpec:
    topics = draw(subscriptions)
    members = {member_id: MemberSpec(topics, {}) for member_id in draw(member_ids)}
    return GroupSpec(members, draw(partition_counts), {})


def run(assignor: str, group: GroupSpec) -> Assignment:
    work = ASSIGNORS[assignor](group)
    while True:
        try:
            next(work)
        except StopIteration as stop:
            assignment: Assignment = stop.value
            return assignment


def owners(assignment: Assignment) -> dict[tuple[uuid.UUID, int], str]:
    found: dict[tuple[uuid.UUID, int], str] = {}
    for member_id, partitions in assignment.items():
        for topic, numbers in partitions.items():
            assert numbers
            for number in numbers:
                assert (topic, number) not in found, "a partition has two owners"
                found[topic, number] = member_id
    return found


def sizes(assignment: Assignment) -> list[int]:
    return [sum(map(len, partitions.values())) for partitions in assignment.values()]


def after(assignment: Assignment, group: GroupSpec) -> GroupSpec:
    """The same group with this as its last assignment; members that had none get nothing."""
    members = {
        member_id: member._replace(assigned=assignment.get(member_id, {}))
        for member_id, member in group.members.items()
    }
    return group._replace(members=members)


@given(assignors, mixed_groups())
def test_every_partition_with_a_subscriber_has_one_owner_who_subscribes(assignor: str, group: GroupSpec) -> None:
    assignment = run(assignor, group)
    assert assignment.keys() == group.members.keys()
    subscribed = frozenset[uuid.UUID]().union(*(member.topics for member in group.members.values()))
    expected = {(topic, number) for topic in subscribed for number in range(group.partition_counts[topic])}
    found = owners(assignment)
    assert found.keys() == expected
    for (topic, _), member_id in found.items():
        assert topic in group.members[member_id].topics


@given(assignors, mixed_groups())
def test_the_same_group_always_comes_to_the_same_assignment(assignor: str, group: GroupSpec) -> None:
    shuffled = group._replace(members=dict(reversed(list(group.members.items()))))
    assert run(assignor, group) == run(assignor, shuffled)


@given(like_groups())
def test_uniform_sizes_differ_by_one_at_most_where_all_subscribe_alike(group: GroupSpec) -> None:
    found = sizes(run("uniform", group))
    assert max(found) - min(found) <= 1


@given(mixed_groups())
def test_uniform_moves_nothing_when_nothing_has_changed(group: GroupSpec) -> None:
    assignment = run("uniform", group)
    again = after(assignment, group)
    settled = run("uniform", again)
    assert run("uniform", after(settled, group)) == settled


@given(mixed_groups())
def test_uniform_leaves_no_topic_that_one_more_move_would_even_out(group: GroupSpec) -> None:
    assignment = run("uniform", group)
    for _ in range(3):
        assignment = run("uniform", after(assignment, group))
    size_of = dict(zip(assignment, sizes(assignment), strict=True))
    for (topic, _), owner in owners(assignment).items():
        subscribers = [member_id for member_id, member in group.members.items() if topic in member.topics]
        assert size_of[owner] - min(size_of[member_id] for member_id in subscribers) <= 1


@given(like_groups(), st.data())
def test_when_a_member_leaves_uniform_moves_only_what_it_had(group: GroupSpec, data: st.DataObject) -> None:
    before = run("uniform", group)
    gone = data.draw(st.sampled_from(sorted(group.members)))
    left = group._replace(members={key: value for key, value in group.members.items() if key != gone})
    old, new = owners(before), owners(run("uniform", after(before, left)))
    if left.members:
        assert {key for key in new if new[key] != old[key]} == {key for key, owner in old.items() if owner == gone}


@given(like_groups())
def test_when_a_member_joins_uniform_moves_no_more_than_its_share(group: GroupSpec) -> None:
    before = run("uniform", group)
    topics = next(iter(group.members.values())).topics
    joined = after(before, group._replace(members={**group.members, "zz": MemberSpec(topics, {})}))
    assignment = run("uniform", joined)
    old, new = owners(before), owners(assignment)
    assert {new[key] for key in new if new[key] != old[key]} <= {"zz"}
    assert sum(new[key] != old[key] for key in new) == sum(map(len, assignment["zz"].values()))


def test_uniform_prefers_members_in_a_rack_with_a_replica() -> None:
    topic = TOPICS[0]
    members = {
        member_id: MemberSpec(frozenset([topic]), {}, rack_id=rack)
        for member_id, rack in (("a", "east"), ("b", "west"), ("c", "west"))
    }
    racks = [frozenset(["west"]), frozenset(["west"]), frozenset(["east"])] * 2
    assignment = run("uniform", GroupSpec(members, {topic: 6}, {topic: racks}))
    assert assignment["a"] == {topic: frozenset([2, 5])}
    assert sorted(sizes(assignment)) == [2, 2, 2]


@given(like_groups(), st.data())
def test_racks_change_nothing_about_balance(group: GroupSpec, data: st.DataObject) -> None:
    rack = st.sampled_from(["east", "west", "south"])
    members = {
        member_id: member._replace(rack_id=data.draw(st.none() | rack)) for member_id, member in group.members.items()
    }
    racks = {
        topic: [data.draw(st.frozensets(rack, max_size=2)) for _ in range(count)]
        for topic, count in group.partition_counts.items()
    }
    assignment = run("uniform", GroupSpec(members, group.partition_counts, racks))
    assert owners(assignment).keys() == owners(run("uniform", group)).keys()
    assert max(sizes(assignment)) - min(sizes(assignment)) <= 1


@given(member_ids, st.integers(0, 12))
def test_range_gives_the_same_numbers_of_all_topics_to_one_member(ids: list[str], count: int) -> None:
    topics = frozenset(TOPICS)
    group = GroupSpec({member_id: MemberSpec(topics, {}) for member_id in ids}, dict.fromkeys(TOPICS, count), {})
    for partitions in run("range", group).values():
        assert len(set(partitions.values())) <= 1
        for numbers in partitions.values():
            assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))


def test_range_orders_static_members_by_instance_id_before_the_others() -> None:
    topics = frozenset(TOPICS[:1])
    members = {
        "x": MemberSpec(topics, {}, instance_id="2"),
        "y": MemberSpec(topics, {}, instance_id="1"),
        "a": MemberSpec(topics, {}),
    }
    assignment = run("range", GroupSpec(members, {TOPICS[0]: 5}, {}))
    expected = {"y": [0, 1], "x": [2, 3], "a": [4]}
    assert {member_id: sorted(partitions[TOPICS[0]]) for member_id, partitions in assignment.items()} == expected


def test_an_assignor_hands_control_back_often_enough_for_thousands_of_partitions() -> None:
    topics = frozenset(TOPICS)
    for assignor in ASSIGNORS:
        members = {f"member-{number}": MemberSpec(topics, {}) for number in range(1000)}
        work = ASSIGNORS[assignor](GroupSpec(members, dict.fromkeys(TOPICS, 1000), {}))
        assert sum(1 for _ in work) >= 4
