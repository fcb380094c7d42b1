"""Groups so large that their target is not computed and written in one go."""

from penstock.coordinator.effects import Append
from penstock.coordinator.group.target import RECORDS_PER_CALL
from tests.unit.group.consumers import Consumer
from tests.unit.group.coordinator import Coordinator

GROUP = "group"
MEMBER_COUNT = 3 * RECORDS_PER_CALL
# What a heartbeat writes besides pieces of the target.
OTHER_RECORDS_MAX = 10


def large_group() -> tuple[Coordinator, list[Consumer]]:
    coordinator = Coordinator()
    coordinator.topics.set("foo", MEMBER_COUNT)
    members = [
        Consumer(coordinator, GROUP, f"old-{number:04}", ["foo"], instance_id=str(number))
        for number in range(MEMBER_COUNT)
    ]
    for member in members:
        member.heartbeat()
    coordinator.performed.clear()
    return coordinator, members


def settle(coordinator: Coordinator, members: list[Consumer]) -> None:
    for _ in range(4):
        coordinator.advance(1000)
        for member in members:
            member.heartbeat()


def epochs(coordinator: Coordinator) -> tuple[int, int]:
    group = coordinator.ask("consumer_group_describe", group_ids=[GROUP]).groups[0]
    return group.group_epoch, group.assignment_epoch


def test_a_new_target_is_written_in_pieces_and_its_epoch_comes_last() -> None:
    coordinator, members = large_group()
    assert epochs(coordinator) == (MEMBER_COUNT, 1)
    coordinator.advance(1100)
    pieces = [len(effect.records) for effect in coordinator.performed if isinstance(effect, Append)]
    assert len(pieces) >= MEMBER_COUNT // RECORDS_PER_CALL
    assert max(pieces) <= RECORDS_PER_CALL + OTHER_RECORDS_MAX
    assert epochs(coordinator) == (MEMBER_COUNT, MEMBER_COUNT)
    settle(coordinator, members)
    assert sorted(partition for member in members for partition in member.owned) == [
        ("foo", number) for number in range(MEMBER_COUNT)
    ]
    assert all(len(member.owned) == 1 for member in members)


def test_members_that_restart_leave_or_come_while_it_is_written_get_their_share() -> None:
    coordinator, members = large_group()
    deadline_ms = coordinator.shard.next_deadline_ms()
    assert deadline_ms is not None
    coordinator.now_ms = deadline_ms
    restarted = list(range(0, MEMBER_COUNT, 7))
    # Each of these comes after one more piece.
    while epochs(coordinator)[1] == 1:
        coordinator.perform(coordinator.shard.tick(coordinator.now_ms))
        coordinator.now_ms += 1
        if restarted:
            place = restarted.pop()
            members[place].leave(-2)
            members[place] = Consumer(coordinator, GROUP, f"new-{place:04}", ["foo"], instance_id=str(place))
            members[place].heartbeat()
            members.pop(place - 1).leave()
            members.append(Consumer(coordinator, GROUP, f"late-{place:04}", ["foo"]))
    for _ in range(3):
        settle(coordinator, members)
    assert sorted(partition for member in members for partition in member.owned) == [
        ("foo", number) for number in range(MEMBER_COUNT)
    ]
    assert all(len(member.owned) == 1 for member in members)


def test_a_coordinator_that_takes_over_in_between_starts_anew() -> None:
    coordinator, members = large_group()
    deadline_ms = coordinator.shard.next_deadline_ms()
    assert deadline_ms is not None
    coordinator.now_ms = deadline_ms
    while not any(isinstance(effect, Append) for effect in coordinator.performed):
        coordinator.perform(coordinator.shard.tick(coordinator.now_ms))
        coordinator.now_ms += 1
    assert epochs(coordinator)[1] == 1
    coordinator.restart()
    settle(coordinator, members)
    assert all(len(member.owned) == 1 for member in members)
