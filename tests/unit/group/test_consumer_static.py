"""Static members (KIP-345) of groups of the new kind, by either protocol."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from tests.unit.group.consumers import SESSION_TIMEOUT_MS, ClassicConsumer, Consumer
from tests.unit.group.coordinator import Coordinator

GROUP = "group"


@pytest.fixture
def coordinator() -> Coordinator:
    made = Coordinator()
    made.topics.set("foo", 6)
    return made


def static(coordinator: Coordinator, member_id: str, instance_id: str) -> Consumer:
    return Consumer(coordinator, GROUP, member_id, ["foo"], instance_id=instance_id)


def settle(coordinator: Coordinator, *members: Any) -> None:
    for _ in range(6):
        coordinator.advance(1000)
        for each in members:
            each.poll() if isinstance(each, ClassicConsumer) else each.heartbeat()


def group_epoch(coordinator: Coordinator) -> int:
    epoch: int = coordinator.ask("consumer_group_describe", group_ids=[GROUP]).groups[0].group_epoch
    return epoch


def test_a_static_member_that_restarts_within_its_session_finds_its_partitions_and_starts_no_rebalance(
    coordinator: Coordinator,
) -> None:
    first, second = static(coordinator, "a1", "a"), static(coordinator, "b1", "b")
    settle(coordinator, first, second)
    epoch, owned = group_epoch(coordinator), set(first.owned)
    assert first.leave(-2).member_epoch == -2
    settle(coordinator, second)
    back = static(coordinator, "a2", "a")
    assert back.heartbeat().error_code == ErrorCode.none
    assert back.owned == owned
    assert (back.epoch, group_epoch(coordinator)) == (epoch, epoch)


def test_its_partitions_wait_for_it_until_its_session_ends(coordinator: Coordinator) -> None:
    first, second = static(coordinator, "a1", "a"), static(coordinator, "b1", "b")
    settle(coordinator, first, second)
    first.leave(-2)
    settle(coordinator, second)
    assert len(second.owned) == 3
    for _ in range(SESSION_TIMEOUT_MS // 1000):
        settle(coordinator, second)
    assert len(second.owned) == 6


def test_a_second_instance_is_refused_while_the_first_is_there(coordinator: Coordinator) -> None:
    static(coordinator, "a1", "a").heartbeat()
    assert static(coordinator, "a2", "a").heartbeat().error_code == ErrorCode.unreleased_instance_id


def test_the_same_instance_may_try_again_when_an_answer_was_lost(coordinator: Coordinator) -> None:
    first = static(coordinator, "a1", "a")
    first.heartbeat(loses_answer=True)
    assert first.heartbeat().error_code == ErrorCode.none
    assert len(first.owned) == 6


def test_the_instance_that_was_replaced_is_fenced(coordinator: Coordinator) -> None:
    first = static(coordinator, "a1", "a")
    first.heartbeat()
    old = first.request()
    first.leave(-2)
    static(coordinator, "a2", "a").heartbeat()
    answer = coordinator.ask("consumer_group_heartbeat", **old)
    assert answer.error_code == ErrorCode.fenced_instance_id
    leave = coordinator.ask("consumer_group_heartbeat", **(old | {"member_epoch": -1}))
    assert leave.error_code == ErrorCode.fenced_instance_id


def test_a_static_member_may_leave_for_good(coordinator: Coordinator) -> None:
    first, second = static(coordinator, "a1", "a"), static(coordinator, "b1", "b")
    settle(coordinator, first, second)
    first.leave()
    settle(coordinator, second)
    assert len(second.owned) == 6


def test_one_that_restarts_while_a_target_is_being_written_gets_what_was_meant_for_it(
    coordinator: Coordinator,
) -> None:
    members = [static(coordinator, f"{number}-old", str(number)) for number in range(6)]
    for each in members:
        each.heartbeat()
    members[3].leave(-2)
    members[3] = static(coordinator, "3-new", "3")
    settle(coordinator, *members)
    assert sorted(len(each.owned) for each in members) == [1] * 6


def test_after_a_failover_a_static_member_still_finds_its_place(coordinator: Coordinator) -> None:
    first, second = static(coordinator, "a1", "a"), static(coordinator, "b1", "b")
    settle(coordinator, first, second)
    owned = set(first.owned)
    first.leave(-2)
    coordinator.restart()
    back = static(coordinator, "a2", "a")
    back.heartbeat()
    assert back.owned == owned


def test_a_static_member_may_change_its_protocol_when_it_restarts(coordinator: Coordinator) -> None:
    first, other = static(coordinator, "a1", "a"), static(coordinator, "b1", "b")
    settle(coordinator, first, other)
    owned = set(first.owned)
    back = ClassicConsumer(coordinator, GROUP, "classic", ["foo"], instance_id="a")
    back.poll()
    settle(coordinator, other, back)
    assert back.owned == owned
    again = static(coordinator, "a3", "a")
    assert again.heartbeat().error_code == ErrorCode.none
    settle(coordinator, other, again)
    assert len(again.owned) == len(other.owned) == 3


def test_an_administrator_removes_a_static_member_by_its_instance_id(coordinator: Coordinator) -> None:
    first, other = static(coordinator, "a1", "a"), static(coordinator, "b1", "b")
    settle(coordinator, first, other)
    removed = ClassicConsumer(coordinator, GROUP, "admin", [], instance_id="a").leave()
    assert removed.members[0].error_code == ErrorCode.none
    assert first.heartbeat().error_code == ErrorCode.unknown_member_id
    (eviction,) = coordinator.shard.evictions(GROUP)
    assert eviction.reason.startswith("removed by an administrator")
