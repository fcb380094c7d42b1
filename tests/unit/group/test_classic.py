from typing import Any

import pytest

from penstock.coordinator.group.classic_state import TRANSITIONS, Event, State
from penstock.protocol.messages import Struct
from tests.unit.group.classic_members import ClassicClient, group_state, settle
from tests.unit.group.coordinator import Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=100)
    coordinator.topics.set("t", 4)
    return coordinator


def test_every_state_is_reached_and_left() -> None:
    reached = {state for moves in TRANSITIONS.values() for state in moves.values()}
    assert reached == set(State)
    assert all(TRANSITIONS[state] for state in State)
    assert {event for moves in TRANSITIONS.values() for event in moves} == set(Event)


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_the_requests_takes_a_member_through_its_life(coordinator: Coordinator, version: int) -> None:
    client = ClassicClient(coordinator)
    token = client.join(version)
    coordinator.advance(100)
    joined = client.take(token)
    assert (joined.error_code.name, joined.generation_id, joined.protocol_name) == ("none", 1, "range")
    assert [member.member_id for member in joined.members] == [client.member_id] == [joined.leader]
    synced = coordinator.answers[client.sync({client.member_id: b"mine"}, min(version, 5))]
    assert (synced.error_code.name, synced.assignment) == ("none", b"mine")
    assert client.heartbeat(min(version, 4)) == "none"
    assert client.commit("t", 0, 5, max(version, 2)) == "none"
    left = client.leave(min(version, 5))
    assert left.error_code.name == "none"
    assert [member.error_code.name for member in getattr(left, "members", ())] == (["none"] if version >= 3 else [])
    assert group_state(coordinator) == "Empty"
    again = client.leave(min(version, 5))
    told = again.error_code if version < 3 else again.members[0].error_code
    assert told.name == "unknown_member_id"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"group_id": ""}, "invalid_group_id"),
        ({"session_timeout": 5_999}, "invalid_session_timeout"),
        ({"session_timeout": 1_800_001}, "invalid_session_timeout"),
        ({"session_timeout": -1}, "invalid_session_timeout"),
        ({"protocol_type": ""}, "inconsistent_group_protocol"),
        ({"protocols": []}, "inconsistent_group_protocol"),
        ({"member_id": "stranger"}, "unknown_member_id"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused_with_kafkas_code_and_leaves_no_trace(
    coordinator: Coordinator, changed: dict[str, Any], error: str
) -> None:
    request: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [Struct(name="range", metadata=b"")],
    }
    assert coordinator.ask("join_group", **(request | changed)).error_code.name == error
    assert coordinator.log == []


def test_a_member_must_support_what_all_the_others_do(coordinator: Coordinator) -> None:
    first = ClassicClient(coordinator, "a", protocols=("range", "roundrobin"))
    settle(coordinator, first)
    stranger = ClassicClient(coordinator, "b", protocols=("sticky",))
    assert stranger.take(stranger.join()).error_code.name == "inconsistent_group_protocol"
    connect = ClassicClient(coordinator, "c", protocols=("range",))
    connect.protocol_type = "connect"
    assert connect.take(connect.join()).error_code.name == "inconsistent_group_protocol"
    assert first.heartbeat() == "none"


def test_the_protocol_with_the_most_votes_among_the_common_ones_is_taken(coordinator: Coordinator) -> None:
    clients = [
        ClassicClient(coordinator, "a", protocols=("range", "sticky")),
        ClassicClient(coordinator, "b", protocols=("sticky", "range")),
        ClassicClient(coordinator, "c", protocols=("other", "sticky", "range")),
    ]
    tokens = [client.join() for client in clients]
    coordinator.advance(1000)
    assert {coordinator.answers[token].protocol_name for token in tokens} == {"sticky"}


def test_a_pending_member_that_never_joins_holds_a_rebalance_up_only_for_its_session(coordinator: Coordinator) -> None:
    first = ClassicClient(coordinator, "a")
    settle(coordinator, first)
    pending = coordinator.ask(
        "join_group",
        group_id="g",
        session_timeout=10_000,
        rebalance_timeout=60_000,
        protocol_type="consumer",
        protocols=first.protocols,
    )
    assert pending.error_code.name == "member_id_required"
    token = first.join()
    coordinator.advance(9_999)
    assert token not in coordinator.answers
    coordinator.advance(1)
    assert first.take(token).generation_id == 2


def test_new_members_are_turned_away_from_a_full_group(coordinator: Coordinator) -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=100, group_max_size=2)
    clients = [ClassicClient(coordinator, name) for name in "abc"]
    tokens = [client.join(3) for client in clients]
    assert clients[2].take(tokens[2]).error_code.name == "group_max_size_reached"
    coordinator.advance(1000)
    answers = [client.take(token) for client, token in zip(clients[:2], tokens, strict=False)]
    assert [answer.error_code.name for answer in answers] == ["none", "none"]
    assert clients[2].take(clients[2].join()).error_code.name == "group_max_size_reached"
    assert clients[0].heartbeat() == "none"


def test_a_group_above_a_lowered_limit_loses_the_last_to_rejoin(coordinator: Coordinator) -> None:
    clients = [ClassicClient(coordinator, name) for name in "abc"]
    settle(coordinator, *clients)
    coordinator.settings.static = {**coordinator.settings.static, "group.max.size": "2"}
    coordinator.settings.use_dynamic({}, {})
    coordinator.restart()
    assert [client.heartbeat() for client in clients] == ["rebalance_in_progress"] * 3
    tokens = [client.join() for client in clients]
    assert [client.take(token).error_code.name for client, token in zip(clients, tokens, strict=True)] == [
        "none",
        "none",
        "group_max_size_reached",
    ]
    assert coordinator.shard.evictions("g")[-1].reason == "the group is full (group.max.size)"


def test_a_rebalance_sends_those_who_wait_for_an_assignment_back_to_join(coordinator: Coordinator) -> None:
    leader, follower, late = (ClassicClient(coordinator, name) for name in "abc")
    tokens = [leader.join(), follower.join()]
    coordinator.advance(1000)
    leader.take(tokens[0])
    follower.take(tokens[1])
    sync = follower.sync()
    late.join(3)
    assert coordinator.answers[sync].error_code.name == "rebalance_in_progress"
    assert coordinator.answers[leader.sync({})].error_code.name == "rebalance_in_progress"
    assert leader.heartbeat() == "rebalance_in_progress"


def test_a_member_waiting_for_the_others_is_not_put_out_for_its_silence(coordinator: Coordinator) -> None:
    leader, follower = (ClassicClient(coordinator, name) for name in "ab")
    settle(coordinator, leader, follower)
    join = leader.join()
    for _ in range(5):
        coordinator.advance(9_000)
        assert follower.heartbeat() == "rebalance_in_progress"
    assert join not in coordinator.answers
    follower.take(follower.join())
    assert leader.take(join).generation_id == 2
    # From then on it has a whole session again, for its SyncGroup or a heartbeat.
    coordinator.advance(9_999)
    assert leader.heartbeat() == "none"


def test_a_new_member_whose_join_waits_five_minutes_is_given_up(coordinator: Coordinator) -> None:
    old, new = ClassicClient(coordinator, "a", rebalance_ms=1_000_000), ClassicClient(coordinator, "b")
    settle(coordinator, old)
    join = new.join(3)
    for _ in range(60):
        assert old.heartbeat() == "rebalance_in_progress"
        coordinator.advance(5_000)
    assert new.take(join).error_code.name == "unknown_member_id"
    assert "waited for 300000 ms" in coordinator.shard.evictions("g")[-1].reason


def test_a_retried_join_gets_the_generation_it_missed(coordinator: Coordinator) -> None:
    leader, follower = (ClassicClient(coordinator, name) for name in "ab")
    tokens = [leader.join(), follower.join()]
    coordinator.advance(1000)
    first = leader.take(tokens[0])
    follower.take(tokens[1])
    again = leader.take(leader.join())
    assert again.members == first.members
    assert again.generation_id == first.generation_id
    assert follower.take(follower.join()).members == ()


def test_a_join_that_replaces_a_waiting_one_answers_both(coordinator: Coordinator) -> None:
    leader, follower = (ClassicClient(coordinator, name) for name in "ab")
    settle(coordinator, leader, follower)
    given_up, kept = leader.join(), leader.join()
    assert coordinator.answers[given_up].error_code.name == "rebalance_in_progress"
    follower.join()
    assert coordinator.answers[kept].error_code.name == "none"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"group_id": ""}, "invalid_group_id"),
        ({"group_id": "other"}, "unknown_member_id"),
        ({"member_id": "stranger"}, "unknown_member_id"),
        ({"generation_id": 0}, "illegal_generation"),
        ({"generation_id": 2}, "illegal_generation"),
        ({"group_instance_id": "unknown"}, "unknown_member_id"),
        ({"group_instance_id": "i"}, "fenced_instance_id"),
        ({"protocol_type": "connect"}, "inconsistent_group_protocol"),
        ({"protocol_name": "sticky"}, "inconsistent_group_protocol"),
    ],
)
def test_strangers_and_the_past_are_refused_and_disturb_nobody(
    coordinator: Coordinator, changed: dict[str, Any], error: str
) -> None:
    member, static = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b", instance_id="i")
    settle(coordinator, member, static)
    length = len(coordinator.log)
    assert coordinator.ask("sync_group", **(member.identity(assignments=[]) | changed)).error_code.name == error
    if not error.startswith("inconsistent"):
        assert coordinator.ask("heartbeat", **(member.identity() | changed)).error_code.name == error
    assert len(coordinator.log) == length
    assert (member.heartbeat(), static.heartbeat()) == ("none", "none")


def test_members_without_an_assignment_from_the_leader_get_an_empty_one(coordinator: Coordinator) -> None:
    leader, follower = (ClassicClient(coordinator, name) for name in "ab")
    tokens = [leader.join(), follower.join()]
    coordinator.advance(1000)
    leader.take(tokens[0])
    follower.take(tokens[1])
    leader.sync({leader.member_id: b"all", "stranger": b"nothing"})
    answer = coordinator.answers[follower.sync()]
    assert (answer.error_code.name, answer.assignment) == ("none", b"")


def test_an_instance_that_joins_twice_fences_the_first_even_while_that_waits(coordinator: Coordinator) -> None:
    first, second = (ClassicClient(coordinator, name, instance_id="i") for name in "ab")
    waiting = first.join()
    taking_over = second.join()
    assert first.take(waiting).error_code.name == "fenced_instance_id"
    coordinator.advance(1000)
    assert second.take(taking_over).error_code.name == "none"
    assert first.heartbeat() == "fenced_instance_id"
    assert second.heartbeat() == "none"
    assert "group.instance.id i" in coordinator.shard.evictions("g")[-1].reason


def test_describing_tells_a_missing_group_by_its_state_and_lately_by_an_error(coordinator: Coordinator) -> None:
    old = coordinator.ask("describe_groups", 5, groups=["none"]).groups[0]
    assert (old.error_code.name, old.group_state) == ("none", "Dead")
    new = coordinator.ask("describe_groups", 6, groups=["none"]).groups[0]
    assert (new.error_code.name, new.group_state, new.error_message) == (
        "group_id_not_found",
        "Dead",
        "Group none not found.",
    )


def test_groups_are_listed_by_state_and_type(coordinator: Coordinator) -> None:
    settle(coordinator, ClassicClient(coordinator, group_id="stable"))
    leaving = ClassicClient(coordinator, group_id="empty")
    settle(coordinator, leaving)
    leaving.leave()

    def listed(**filters: Any) -> set[str]:
        return {group.group_id for group in coordinator.ask("list_groups", **filters).groups}

    assert listed() == {"stable", "empty"}
    assert listed(states_filter=["stable"]) == {"stable"}
    assert listed(states_filter=["Empty", "Dead"]) == {"empty"}
    assert listed(types_filter=["Classic"]) == {"stable", "empty"}
    assert listed(types_filter=["consumer"]) == set()


def test_only_the_last_ten_evictions_are_remembered(coordinator: Coordinator) -> None:
    for _ in range(12):
        settle(coordinator, ClassicClient(coordinator))
        coordinator.advance(120_000)
    evictions = coordinator.shard.evictions("g")
    assert len(evictions) == 10
    assert evictions == sorted(evictions, key=lambda one: one.at_ms)
    assert coordinator.shard.evictions("other") == []
