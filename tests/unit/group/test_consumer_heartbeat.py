"""The new protocol as its members see it (KIP-848)."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.group.consumer import SETTLING_HEARTBEAT_INTERVAL_MS
from penstock.protocol.messages import Struct
from tests.unit.group.consumers import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Consumer
from tests.unit.group.coordinator import Coordinator

GROUP = "group"


@pytest.fixture
def coordinator() -> Coordinator:
    made = Coordinator()
    made.topics.set("foo", 6)
    made.topics.set("bar", 3)
    return made


def member(coordinator: Coordinator, member_id: str, topics: tuple[str, ...] = ("foo",), **more: Any) -> Consumer:
    return Consumer(coordinator, GROUP, member_id, topics, **more)


def settle(coordinator: Coordinator, *members: Consumer, rounds: int = 6) -> None:
    for _ in range(rounds):
        coordinator.advance(1000)
        for each in members:
            each.heartbeat()


def described(coordinator: Coordinator) -> Any:
    return coordinator.ask("consumer_group_describe", group_ids=[GROUP]).groups[0]


def numbers(consumer: Consumer) -> list[int]:
    return sorted(number for _, number in consumer.owned)


def test_the_first_member_gets_everything_with_its_first_heartbeat(coordinator: Coordinator) -> None:
    first = member(coordinator, "a")
    answer = first.heartbeat()
    assert answer.error_code == ErrorCode.none
    assert (answer.member_id, answer.member_epoch) == ("a", 1)
    assert numbers(first) == [0, 1, 2, 3, 4, 5]
    assert described(coordinator).group_state == "Stable"


def test_a_partition_moves_only_after_its_old_owner_gave_it_up(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a"), member(coordinator, "b")
    first.heartbeat()
    coordinator.advance(1000)
    second.heartbeat()
    assert (second.epoch, second.owned) == (2, set())
    kept = coordinator.ask("consumer_group_heartbeat", **first.request())
    # Told to give up half, in its old epoch; until it says that it has, the other one gets nothing.
    assert kept.member_epoch == 1
    assert kept.assignment.topic_partitions[0].partitions == (0, 1, 2)
    second.heartbeat()
    assert second.owned == set()
    assert described(coordinator).group_state == "Reconciling"
    first.owned = {("foo", 0), ("foo", 1), ("foo", 2)}
    first.heartbeat()
    assert first.epoch == 2
    second.heartbeat()
    assert numbers(second) == [3, 4, 5]
    assert described(coordinator).group_state == "Stable"


def test_a_member_that_does_not_say_what_it_owns_has_given_up_nothing(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a"), member(coordinator, "b")
    first.heartbeat()
    coordinator.advance(1000)
    second.heartbeat()
    for _ in range(3):
        coordinator.ask("consumer_group_heartbeat", group_id=GROUP, member_id="a", member_epoch=1)
        second.heartbeat()
    assert second.owned == set()


def test_assignments_are_told_when_they_change_or_when_a_member_says_all_of_itself(coordinator: Coordinator) -> None:
    first = member(coordinator, "a")
    first.heartbeat()
    assert first.heartbeat().assignment is None
    first.subscribe(["foo"])
    assert first.heartbeat().assignment is not None


def test_members_are_asked_to_report_more_often_while_the_group_settles(coordinator: Coordinator) -> None:
    first = member(coordinator, "a")
    first.heartbeat()
    assert first.interval_ms == SETTLING_HEARTBEAT_INTERVAL_MS
    settle(coordinator, first)
    assert first.interval_ms == 5000


def test_a_group_gets_a_new_target_no_more_often_than_the_assignment_interval_allows(
    coordinator: Coordinator,
) -> None:
    members = [member(coordinator, f"m{number}") for number in range(5)]
    for each in members:
        each.heartbeat()
    group = described(coordinator)
    assert (group.group_epoch, group.assignment_epoch, group.group_state) == (5, 1, "Assigning")
    coordinator.advance(1000)
    assert described(coordinator).assignment_epoch == 5


def test_a_group_with_settings_of_its_own_lives_by_them_and_others_do_not(coordinator: Coordinator) -> None:
    coordinator.group_settings[GROUP] = {
        "consumer.session.timeout.ms": "60000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    patient, other = member(coordinator, "a"), Consumer(coordinator, "other", "b", ("foo",))
    settle(coordinator, patient, other, rounds=12)
    intervals = [each.heartbeat().heartbeat_interval.total_seconds() for each in (patient, other)]
    assert intervals == [7, 5]
    coordinator.advance(50_000)
    assert described(coordinator).group_state == "Stable"
    assert coordinator.ask("consumer_group_describe", group_ids=["other"]).groups[0].group_state == "Empty"
    # What is changed holds from the next heartbeat on.
    coordinator.group_settings[GROUP]["consumer.session.timeout.ms"] = "45000"
    patient.heartbeat()
    coordinator.advance(50_000)
    assert described(coordinator).group_state == "Empty"


def test_a_member_that_is_silent_for_its_session_is_put_out_and_the_reason_kept(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a"), member(coordinator, "b")
    first.heartbeat()
    second.heartbeat()
    settle(coordinator, first, second)
    for _ in range(SESSION_TIMEOUT_MS // 1000):
        coordinator.advance(1000)
        first.heartbeat()
    settle(coordinator, first)
    assert numbers(first) == [0, 1, 2, 3, 4, 5]
    assert second.heartbeat().error_code == ErrorCode.unknown_member_id
    (eviction,) = coordinator.shard.evictions(GROUP)
    assert (eviction.member_id, eviction.reason) == ("b", "no heartbeat for 45000 ms (session timeout)")


def test_a_member_that_does_not_give_up_partitions_in_time_is_put_out(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a"), member(coordinator, "b")
    first.heartbeat()
    coordinator.advance(1000)
    second.heartbeat()
    for _ in range(REBALANCE_TIMEOUT_MS // 1000 + 1):
        coordinator.advance(1000)
        coordinator.ask("consumer_group_heartbeat", group_id=GROUP, member_id="a", member_epoch=1)
        second.heartbeat()
    assert numbers(second) == [0, 1, 2, 3, 4, 5]
    (eviction,) = coordinator.shard.evictions(GROUP)
    assert "did not give up its partitions within 60000 ms" in eviction.reason


def test_who_leaves_leaves_its_partitions_to_the_others(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a"), member(coordinator, "b")
    settle(coordinator, first, second)
    assert first.leave().member_epoch == -1
    settle(coordinator, second)
    assert numbers(second) == [0, 1, 2, 3, 4, 5]
    assert second.leave().error_code == ErrorCode.none
    assert described(coordinator).group_state == "Empty"


def test_a_member_whose_answer_was_lost_may_come_with_its_last_epoch(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a"), member(coordinator, "b")
    settle(coordinator, first, second)
    third = member(coordinator, "c")
    third.heartbeat()
    coordinator.advance(1000)
    epoch = first.epoch
    while first.heartbeat(loses_answer=True).member_epoch == epoch:
        first.owned = {("foo", 0), ("foo", 1)}
    assert first.epoch == epoch
    assert first.heartbeat().error_code == ErrorCode.none
    assert first.epoch == epoch + 1


def test_topics_that_grow_come_and_go_are_noticed_with_the_next_heartbeat(coordinator: Coordinator) -> None:
    first = member(coordinator, "a", ("foo", "later"))
    first.heartbeat()
    coordinator.topics.set("foo", 8)
    coordinator.topics_changed()
    settle(coordinator, first)
    assert numbers(first) == [0, 1, 2, 3, 4, 5, 6, 7]
    coordinator.topics.set("later", 1)
    coordinator.topics_changed()
    settle(coordinator, first)
    assert ("later", 0) in first.owned
    coordinator.topics.remove("foo")
    coordinator.topics_changed()
    settle(coordinator, first)
    assert first.owned == {("later", 0)}


def test_a_change_to_topics_nobody_subscribes_to_changes_no_epoch(coordinator: Coordinator) -> None:
    first = member(coordinator, "a")
    first.heartbeat()
    coordinator.topics.set("other", 1)
    coordinator.topics_changed()
    settle(coordinator, first)
    assert described(coordinator).group_epoch == 1


def test_what_a_member_unsubscribes_from_it_gives_up_before_there_is_a_new_target(coordinator: Coordinator) -> None:
    first = member(coordinator, "a", ("foo", "bar"))
    first.heartbeat()
    first.subscribe(["bar"])
    answer = coordinator.ask("consumer_group_heartbeat", **first.request())
    assert described(coordinator).assignment_epoch == 1
    assert [len(part.partitions) for part in answer.assignment.topic_partitions] == [3]


def test_the_assignor_most_members_ask_for_is_used(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a", assignor="range"), member(coordinator, "b", assignor="range")
    third = member(coordinator, "c", assignor="uniform")
    settle(coordinator, first, second, third)
    assert described(coordinator).assignor_name == "range"


def test_members_say_where_they_are_and_get_partitions_near_them(coordinator: Coordinator) -> None:
    coordinator.topics.racks["foo"] = [frozenset(["east"]), frozenset(["west"])] * 3
    west, east = member(coordinator, "w", rack_id="west"), member(coordinator, "e", rack_id="east")
    west.heartbeat()
    settle(coordinator, west, east)
    assert (numbers(west), numbers(east)) == ([1, 3, 5], [0, 2, 4])


def test_a_coordinator_that_takes_over_goes_on_where_the_log_ends(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a"), member(coordinator, "b")
    first.heartbeat()
    coordinator.advance(1000)
    second.heartbeat()
    first.heartbeat()
    coordinator.restart()
    settle(coordinator, first, second)
    assert sorted(numbers(first) + numbers(second)) == [0, 1, 2, 3, 4, 5]
    assert (first.epoch, second.epoch) == (2, 2)


def test_a_commit_from_before_the_last_epoch_counts_only_for_what_was_held_all_along(coordinator: Coordinator) -> None:
    """KIP-1251."""
    first, second = member(coordinator, "a"), member(coordinator, "b")
    settle(coordinator, first, second)
    old_epoch, held = first.epoch, set(first.owned)
    second.leave()
    settle(coordinator, first)
    assert first.epoch > old_epoch
    (gained, *_) = sorted(first.owned - held)
    first.epoch = old_epoch
    assert first.commit_error(min(held)) == ErrorCode.none
    assert first.commit_error(gained) == ErrorCode.stale_member_epoch
    first.epoch = 99
    assert first.commit_error(min(held)) == ErrorCode.stale_member_epoch


def heartbeat_error(coordinator: Coordinator, version: int = 1, **fields: Any) -> ErrorCode:
    whole: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout": 1000,
        "subscribed_topic_names": ["foo"],
        "topic_partitions": [],
    }
    answer = coordinator.ask("consumer_group_heartbeat", version, **(whole | fields))
    error: ErrorCode = answer.error_code
    return error


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"instance_id": " "}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"rebalance_timeout": -1}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"member_epoch": -2}, ErrorCode.invalid_request),
        ({"server_assignor": "nope"}, ErrorCode.unsupported_assignor),
        ({"subscribed_topic_regex": "("}, ErrorCode.invalid_regular_expression),
        ({"member_epoch": 1}, ErrorCode.group_id_not_found),
        ({"member_epoch": -1}, ErrorCode.group_id_not_found),
    ],
)
def test_bad_requests_get_kafkas_error_and_leave_no_trace(
    coordinator: Coordinator, fields: dict[str, Any], error: ErrorCode
) -> None:
    assert heartbeat_error(coordinator, **fields) == error
    assert coordinator.log == []


def test_strangers_and_members_in_the_wrong_epoch_are_turned_away(coordinator: Coordinator) -> None:
    first = member(coordinator, "a")
    first.heartbeat()
    log_end = len(coordinator.log)
    owned = [Struct(topic_id=coordinator.topics.topic_id("foo"), partitions=[0])]
    assert heartbeat_error(coordinator, member_id="b", member_epoch=1) == ErrorCode.unknown_member_id
    assert heartbeat_error(coordinator, member_epoch=2) == ErrorCode.fenced_member_epoch
    assert heartbeat_error(coordinator, member_epoch=1, instance_id="i") == ErrorCode.unknown_member_id
    assert heartbeat_error(coordinator, member_id="b", member_epoch=-1) == ErrorCode.unknown_member_id
    first.leave()
    assert heartbeat_error(coordinator, member_epoch=1, topic_partitions=owned) == ErrorCode.unknown_member_id
    assert len(coordinator.log) == log_end + 4


def test_version_0_leaves_the_member_id_to_the_coordinator(coordinator: Coordinator) -> None:
    answer = coordinator.ask(
        "consumer_group_heartbeat",
        0,
        group_id=GROUP,
        member_id="",
        member_epoch=0,
        rebalance_timeout=1000,
        subscribed_topic_names=["foo"],
        topic_partitions=[],
    )
    assert answer.member_id
    assert answer.member_epoch == 1


def test_a_full_group_takes_nobody_else() -> None:
    coordinator = Coordinator(group_consumer_max_size=1)
    coordinator.topics.set("foo", 1)
    member(coordinator, "a").heartbeat()
    assert member(coordinator, "b").heartbeat().error_code == ErrorCode.group_max_size_reached
    assert member(coordinator, "a").heartbeat().error_code == ErrorCode.none


def test_a_member_that_forgot_its_epoch_joins_again_under_its_id(coordinator: Coordinator) -> None:
    first, second = member(coordinator, "a"), member(coordinator, "b")
    settle(coordinator, first, second)
    first.forget()
    assert first.heartbeat().error_code == ErrorCode.none
    settle(coordinator, first, second)
    assert sorted(numbers(first) + numbers(second)) == [0, 1, 2, 3, 4, 5]


def test_groups_that_are_not_there_or_not_of_this_kind_are_not_described(coordinator: Coordinator) -> None:
    group = described(coordinator)
    assert group.error_code == ErrorCode.group_id_not_found
    assert group.error_message == "Group group not found."
