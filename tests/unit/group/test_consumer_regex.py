"""Subscriptions by regular expression (KIP-848, ConsumerGroupHeartbeat 1)."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.name_pattern import STEPS_PER_SLICE
from tests.unit.group.consumers import Consumer
from tests.unit.group.coordinator import Coordinator

GROUP = "group"


@pytest.fixture
def coordinator() -> Coordinator:
    made = Coordinator()
    for name in ("orders-eu", "orders-us", "payments"):
        made.topics.set(name, 1)
    return made


def settle(coordinator: Coordinator, *members: Consumer) -> None:
    for _ in range(6):
        coordinator.advance(1000)
        for each in members:
            each.heartbeat()


def topics(consumer: Consumer) -> set[str]:
    return {topic for topic, _ in consumer.owned}


def group_epoch(coordinator: Coordinator) -> int:
    group: Any = coordinator.ask("consumer_group_describe", group_ids=[GROUP]).groups[0]
    epoch: int = group.group_epoch
    return epoch


def test_the_first_heartbeat_is_answered_with_the_topics_that_match(coordinator: Coordinator) -> None:
    consumer = Consumer(coordinator, GROUP, "a", regex="orders-.*")
    assert consumer.heartbeat().error_code == ErrorCode.none
    assert topics(consumer) == {"orders-eu", "orders-us"}
    assert (
        coordinator.ask("consumer_group_describe", group_ids=[GROUP]).groups[0].members[0].subscribed_topic_regex
        == "orders-.*"
    )


def test_names_and_an_expression_add_up(coordinator: Coordinator) -> None:
    consumer = Consumer(coordinator, GROUP, "a", ["payments"], regex=".*-us")
    consumer.heartbeat()
    assert topics(consumer) == {"payments", "orders-us"}


def test_topics_that_come_and_go_are_matched_anew(coordinator: Coordinator) -> None:
    consumer = Consumer(coordinator, GROUP, "a", regex="orders-.*")
    consumer.heartbeat()
    coordinator.topics.set("orders-asia", 1)
    coordinator.topics_changed()
    settle(coordinator, consumer)
    assert topics(consumer) == {"orders-eu", "orders-us", "orders-asia"}
    coordinator.topics.remove("orders-eu")
    coordinator.topics_changed()
    settle(coordinator, consumer)
    assert topics(consumer) == {"orders-us", "orders-asia"}


def test_topics_that_do_not_match_change_no_epoch(coordinator: Coordinator) -> None:
    consumer = Consumer(coordinator, GROUP, "a", regex="orders-.*")
    consumer.heartbeat()
    coordinator.topics.set("other", 1)
    coordinator.topics_changed()
    settle(coordinator, consumer)
    assert group_epoch(coordinator) == 1


def test_members_with_different_expressions_get_what_each_of_them_matches(coordinator: Coordinator) -> None:
    first = Consumer(coordinator, GROUP, "a", regex="orders-.*")
    second = Consumer(coordinator, GROUP, "b", regex="payments|none")
    settle(coordinator, first, second)
    assert (topics(first), topics(second)) == ({"orders-eu", "orders-us"}, {"payments"})


def test_another_expression_takes_the_place_of_the_first(coordinator: Coordinator) -> None:
    consumer = Consumer(coordinator, GROUP, "a", regex="orders-.*")
    consumer.heartbeat()
    consumer.subscribe([], "payments")
    settle(coordinator, consumer)
    assert topics(consumer) == {"payments"}
    consumer.subscribe(["orders-eu"])
    settle(coordinator, consumer)
    assert topics(consumer) == {"orders-eu"}


def test_an_expression_is_forgotten_with_the_last_member_that_has_it(coordinator: Coordinator) -> None:
    first = Consumer(coordinator, GROUP, "a", regex="orders-.*")
    second = Consumer(coordinator, GROUP, "b", regex="orders-.*")
    settle(coordinator, first, second)
    first.leave()
    key = b"\x00\x10"
    assert [value is None for name, value, _ in coordinator.log if name.startswith(key)] == [False]
    second.leave()
    assert [value is None for name, value, _ in coordinator.log if name.startswith(key)] == [False, True]


def test_a_coordinator_that_takes_over_knows_what_was_matched(coordinator: Coordinator) -> None:
    consumer = Consumer(coordinator, GROUP, "a", regex="orders-.*")
    consumer.heartbeat()
    coordinator.restart()
    settle(coordinator, consumer)
    assert topics(consumer) == {"orders-eu", "orders-us"}
    assert group_epoch(coordinator) == 1


def test_a_wrong_expression_is_this_members_mistake_and_changes_nothing(coordinator: Coordinator) -> None:
    consumer = Consumer(coordinator, GROUP, "a", regex="orders-.*")
    consumer.heartbeat()
    log_end = len(coordinator.log)
    consumer.subscribe([], "orders-(")
    answer = consumer.heartbeat()
    assert answer.error_code == ErrorCode.invalid_regular_expression
    assert "missing )" in answer.error_message
    assert len(coordinator.log) == log_end


def test_matching_more_topics_than_one_call_has_time_for_goes_on_in_ticks(coordinator: Coordinator) -> None:
    # Long names that fail late, so that each costs its length.
    for number in range(STEPS_PER_SLICE // 40):
        coordinator.topics.set(f"{'long-name-' * 20}{number}", 1)
    coordinator.topics.set("wanted", 1)
    consumer = Consumer(coordinator, GROUP, "a", regex="(?:long-name-)+x|wanted")
    consumer.heartbeat()
    assert consumer.owned == set()
    settle(coordinator, consumer)
    assert topics(consumer) == {"wanted"}
