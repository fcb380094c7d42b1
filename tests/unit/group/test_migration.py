"""Groups that go over between the protocols while their members consume (KIP-848)."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from tests.unit.group.consumers import SESSION_TIMEOUT_MS, ClassicConsumer, Consumer, assignment
from tests.unit.group.coordinator import Coordinator

GROUP = "group"
PARTITION_COUNT = 6


@pytest.fixture
def coordinator() -> Coordinator:
    return made()


def made(**overrides: Any) -> Coordinator:
    coordinator = Coordinator(**overrides)
    coordinator.topics.set("foo", PARTITION_COUNT)
    return coordinator


def form(coordinator: Coordinator, *members: ClassicConsumer, user_data: bytes | None = None) -> None:
    """Takes the members through a whole rebalance of a classic group."""
    tokens = {}
    for member in members:
        tokens[member] = member.send_join()
        answer = coordinator.answers.get(tokens[member])
        if answer is not None and answer.error_code == ErrorCode.member_id_required:
            member.member_id = answer.member_id
            tokens[member] = member.send_join()
    # A new group waits for more members, twice where more have come.
    coordinator.advance(6000)
    for member in members:
        member.joined(coordinator.answers.pop(tokens[member]))
    shares = {
        member.member_id: list(range(PARTITION_COUNT))[place :: len(members)] for place, member in enumerate(members)
    }
    assignments = [
        Struct(member_id=member_id, assignment=assignment({"foo": numbers}, user_data))
        for member_id, numbers in shares.items()
    ]
    syncs = {
        member: coordinator.send("sync_group", **member.sync_fields(), assignments=assignments) for member in members
    }
    for member in members:
        member.take(coordinator.answers.pop(syncs[member]))
        member.must_join = False


def classic(coordinator: Coordinator, name: str, **more: Any) -> ClassicConsumer:
    return ClassicConsumer(coordinator, GROUP, name, ["foo"], **more)


def settle(coordinator: Coordinator, *members: ClassicConsumer | Consumer) -> None:
    for _ in range(8):
        coordinator.advance(1000)
        for member in members:
            if isinstance(member, ClassicConsumer):
                member.poll()
            else:
                member.heartbeat()


def all_owned(*members: ClassicConsumer | Consumer) -> list[tuple[str, int]]:
    return sorted(partition for member in members for partition in member.owned)


def group_type(coordinator: Coordinator) -> str:
    (group,) = coordinator.ask("list_groups").groups
    kind: str = group.group_type
    return kind


EVERYTHING = [("foo", number) for number in range(PARTITION_COUNT)]


def test_the_first_member_of_the_new_protocol_turns_a_classic_group_over(coordinator: Coordinator) -> None:
    first, second = classic(coordinator, "a"), classic(coordinator, "b")
    form(coordinator, first, second)
    third = Consumer(coordinator, GROUP, "c", ["foo"])
    assert third.heartbeat().error_code == ErrorCode.none
    assert group_type(coordinator) == "consumer"
    # The classic members have what they had, and are told to join again.
    assert first.heartbeat().error_code == ErrorCode.rebalance_in_progress
    settle(coordinator, first, second, third)
    assert all_owned(first, second, third) == EVERYTHING
    assert [len(member.owned) for member in (first, second, third)] == [2, 2, 2]
    assert coordinator.ask("consumer_group_describe", group_ids=[GROUP]).groups[0].group_state == "Stable"


def test_members_waiting_in_a_classic_rebalance_are_told_to_join_again(coordinator: Coordinator) -> None:
    first, second = classic(coordinator, "a"), classic(coordinator, "b")
    form(coordinator, first)
    token = second.send_join()
    second.member_id = coordinator.answers.pop(token).member_id
    token = second.send_join()
    assert token not in coordinator.answers
    Consumer(coordinator, GROUP, "c", ["foo"]).heartbeat()
    assert coordinator.answers.pop(token).error_code == ErrorCode.rebalance_in_progress


def test_when_the_last_member_of_the_new_protocol_leaves_the_group_is_classic_again(coordinator: Coordinator) -> None:
    first, second = classic(coordinator, "a"), classic(coordinator, "b")
    form(coordinator, first, second)
    third = Consumer(coordinator, GROUP, "c", ["foo"])
    settle(coordinator, first, second, third)
    assert third.leave().error_code == ErrorCode.none
    assert group_type(coordinator) == "classic"
    assert first.heartbeat().error_code == ErrorCode.rebalance_in_progress
    form(coordinator, first, second)
    assert all_owned(first, second) == EVERYTHING
    generation = first.generation
    assert first.heartbeat().error_code == ErrorCode.none
    coordinator.restart()
    assert first.heartbeat().error_code == ErrorCode.none
    assert first.generation == generation
    fourth = Consumer(coordinator, GROUP, "d", ["foo"])
    assert fourth.heartbeat().error_message is None
    settle(coordinator, first, second, fourth)
    assert all_owned(first, second, fourth) == EVERYTHING


def test_so_it_is_when_its_session_ends(coordinator: Coordinator) -> None:
    first = classic(coordinator, "a")
    form(coordinator, first)
    second = Consumer(coordinator, GROUP, "b", ["foo"])
    settle(coordinator, first, second)
    for _ in range(SESSION_TIMEOUT_MS // 8000 + 1):
        settle(coordinator, first) if group_type(coordinator) == "consumer" else None
    assert group_type(coordinator) == "classic"


def test_a_classic_member_may_join_a_group_of_the_new_kind(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator, GROUP, "a", ["foo"]), classic(coordinator, "b")
    settle(coordinator, first, second)
    assert len(first.owned) == len(second.owned) == 3
    assert all_owned(first, second) == EVERYTHING
    second.leave()
    settle(coordinator, first)
    assert len(first.owned) == PARTITION_COUNT


def test_a_classic_member_that_does_not_join_again_in_time_is_put_out(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator, GROUP, "a", ["foo"]), classic(coordinator, "b")
    settle(coordinator, first, second)
    Consumer(coordinator, GROUP, "c", ["foo"]).heartbeat()
    assert second.heartbeat().error_code == ErrorCode.rebalance_in_progress
    for _ in range(61):
        coordinator.advance(1000)
        first.heartbeat()
        second.heartbeat() if second.member_id else None
    reasons = {eviction.member_id: eviction.reason for eviction in coordinator.shard.evictions(GROUP)}
    assert "did not join again within 60000 ms (rebalance timeout)" in reasons.values()


def test_a_classic_member_that_does_not_sync_in_time_is_put_out(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator, GROUP, "a", ["foo"]), classic(coordinator, "b")
    first.heartbeat()
    second.join()
    for _ in range(61):
        coordinator.advance(1000)
        first.heartbeat()
        second.heartbeat() if second.member_id else None
    (eviction,) = coordinator.shard.evictions(GROUP)
    assert "did not send SyncGroup within 60000 ms" in eviction.reason


def test_the_last_static_member_that_comes_back_as_a_classic_one_turns_the_group_over(coordinator: Coordinator) -> None:
    first = classic(coordinator, "a")
    form(coordinator, first)
    second = Consumer(coordinator, GROUP, "b", ["foo"], instance_id="static")
    settle(coordinator, first, second)
    back = classic(coordinator, "b", instance_id="static")
    answer = back.join()
    assert answer.error_code == ErrorCode.none
    assert group_type(coordinator) == "classic"
    assert second.heartbeat().error_code in (ErrorCode.group_id_not_found, ErrorCode.unknown_member_id)
    back.sync()
    assert len(back.owned) == 3
    assert first.heartbeat().error_code == ErrorCode.none


def test_an_empty_group_of_either_kind_becomes_what_the_next_member_speaks(coordinator: Coordinator) -> None:
    first = Consumer(coordinator, GROUP, "a", ["foo"])
    first.heartbeat()
    first.leave()
    second = classic(coordinator, "b")
    form(coordinator, second)
    assert group_type(coordinator) == "classic"
    second.leave()
    assert first.heartbeat().error_code == ErrorCode.none
    assert group_type(coordinator) == "consumer"
    coordinator.restart()
    assert group_type(coordinator) == "consumer"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_against_upgrades_keeps_members_of_the_new_protocol_out(policy: str) -> None:
    coordinator = made(group_consumer_migration_policy=policy)
    first = classic(coordinator, "a")
    form(coordinator, first)
    answer = Consumer(coordinator, GROUP, "b", ["foo"]).heartbeat()
    assert answer.error_code == ErrorCode.group_id_not_found
    assert first.heartbeat().error_code == ErrorCode.none


def test_a_policy_against_mixing_keeps_classic_members_out() -> None:
    coordinator = made(group_consumer_migration_policy="disabled")
    Consumer(coordinator, GROUP, "a", ["foo"]).heartbeat()
    assert classic(coordinator, "b").join().error_code == ErrorCode.inconsistent_group_protocol


def test_a_policy_against_downgrades_keeps_the_group_as_it_is() -> None:
    coordinator = made(group_consumer_migration_policy="upgrade")
    first = classic(coordinator, "a")
    form(coordinator, first)
    second = Consumer(coordinator, GROUP, "b", ["foo"])
    settle(coordinator, first, second)
    second.leave()
    settle(coordinator, first)
    assert group_type(coordinator) == "consumer"
    assert all_owned(first) == EVERYTHING


def test_what_a_custom_assignor_says_to_its_members_would_be_lost_so_it_stays_classic(coordinator: Coordinator) -> None:
    first = classic(coordinator, "a")
    first.protocol = "custom"
    form(coordinator, first, user_data=b"for me")
    answer = Consumer(coordinator, GROUP, "b", ["foo"]).heartbeat()
    assert answer.error_code == ErrorCode.group_id_not_found
    assert "custom" in answer.error_message


def test_what_the_assignors_that_come_with_clients_say_to_their_members_is_no_loss(coordinator: Coordinator) -> None:
    first = classic(coordinator, "a")
    form(coordinator, first, user_data=b"for me")
    assert Consumer(coordinator, GROUP, "b", ["foo"]).heartbeat().error_code == ErrorCode.none


def test_members_that_are_no_consumers_are_not_turned_over(coordinator: Coordinator) -> None:
    first = classic(coordinator, "a")
    first.protocol = "connect"
    token = coordinator.send(
        "join_group",
        3,
        group_id=GROUP,
        session_timeout=SESSION_TIMEOUT_MS,
        rebalance_timeout=1000,
        member_id="",
        protocol_type="connect",
        protocols=[Struct(name="x", metadata=b"whatever")],
    )
    assert Consumer(coordinator, GROUP, "b", ["foo"]).heartbeat().error_code == ErrorCode.group_id_not_found
    assert token not in coordinator.answers


def join_error(coordinator: Coordinator, **fields: Any) -> ErrorCode:
    whole: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout": SESSION_TIMEOUT_MS,
        "rebalance_timeout": 1000,
        "member_id": "somebody",
        "protocol_type": "consumer",
        "protocols": [Struct(name="range", metadata=b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff")],
    }
    error: ErrorCode = coordinator.ask("join_group", **(whole | fields)).error_code
    return error


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout": 1}, ErrorCode.invalid_session_timeout),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": [Struct(name="range", metadata=b"\x00")]}, ErrorCode.inconsistent_group_protocol),
        (
            {"protocols": [Struct(name="range", metadata=b"\x00\x03\x7f\xff\xff\xff")]},
            ErrorCode.inconsistent_group_protocol,
        ),
        ({"group_instance_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"member_id": ""}, ErrorCode.member_id_required),
    ],
)
def test_bad_joins_get_kafkas_error_and_change_nothing(
    coordinator: Coordinator, fields: dict[str, Any], error: ErrorCode
) -> None:
    Consumer(coordinator, GROUP, "a", ["foo"]).heartbeat()
    log_end = len(coordinator.log)
    assert join_error(coordinator, **fields) == error
    assert len(coordinator.log) == log_end


def test_classic_requests_of_strangers_and_of_the_wrong_generation_are_turned_away(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator, GROUP, "a", ["foo"]), classic(coordinator, "b")
    settle(coordinator, first, second)
    generation, member_id = second.generation, second.member_id
    second.generation = generation - 1
    assert second.heartbeat().error_code == ErrorCode.illegal_generation
    second.member_id, second.generation = member_id, generation
    second.protocol = "range"
    assert second.sync().error_code == ErrorCode.inconsistent_group_protocol
    second.member_id, second.generation = "stranger", generation
    assert second.heartbeat().error_code == ErrorCode.unknown_member_id
    second.member_id, second.generation = "a", first.epoch
    assert second.heartbeat().error_code == ErrorCode.unknown_member_id
