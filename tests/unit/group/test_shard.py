"""What holds across the two protocols and the offsets."""

from typing import Any

import pytest

from penstock.protocol.messages import Struct
from tests.unit.group.classic_members import ClassicClient, commit_topic, settle
from tests.unit.group.coordinator import Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=100)
    coordinator.topics.set("t", 4)
    return coordinator


def consumer_heartbeat(coordinator: Coordinator, member_id: str, epoch: int) -> Any:
    return coordinator.ask(
        "consumer_group_heartbeat",
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def kinds(coordinator: Coordinator) -> list[tuple[str, str, str]]:
    groups = coordinator.ask("list_groups").groups
    return [(group.group_id, group.group_type, group.group_state) for group in groups]


def test_an_empty_group_takes_the_protocol_of_whoever_comes_next(coordinator: Coordinator) -> None:
    assert consumer_heartbeat(coordinator, "m", 0).error_code.name == "none"
    assert [kind for _, kind, _ in kinds(coordinator)] == ["consumer"]
    assert consumer_heartbeat(coordinator, "m", -1).error_code.name == "none"
    classic = ClassicClient(coordinator)
    settle(coordinator, classic)
    assert kinds(coordinator) == [("g", "classic", "Stable")]
    coordinator.restart()
    assert kinds(coordinator) == [("g", "classic", "Stable")]
    assert classic.heartbeat() == "none"
    classic.leave()
    assert consumer_heartbeat(coordinator, "n", 0).error_code.name == "none"
    coordinator.restart()
    assert [kind for _, kind, _ in kinds(coordinator)] == ["consumer"]


def test_a_refused_classic_join_leaves_an_empty_consumer_group_as_it_is(coordinator: Coordinator) -> None:
    consumer_heartbeat(coordinator, "m", 0)
    consumer_heartbeat(coordinator, "m", -1)
    stranger = ClassicClient(coordinator, session_ms=1)
    assert stranger.take(stranger.join()).error_code.name == "invalid_session_timeout"
    assert kinds(coordinator) == [("g", "consumer", "Empty")]


def test_offsets_outlive_the_change_of_a_groups_protocol(coordinator: Coordinator) -> None:
    coordinator.ask("offset_commit", group_id="g", topics=[commit_topic("t", 0, 5)])
    consumer_heartbeat(coordinator, "m", 0)

    def fetched() -> int:
        topics = [Struct(name="t", partition_indexes=[0])]
        answer = coordinator.ask("offset_fetch", groups=[Struct(group_id="g", topics=topics)])
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    assert fetched() == 5
    # The record of the offset comes before those of the group in the log.
    coordinator.restart()
    assert fetched() == 5
    assert [kind for _, kind, _ in kinds(coordinator)] == ["consumer"]


def test_each_protocol_describes_its_own_groups(coordinator: Coordinator) -> None:
    consumer_heartbeat(coordinator, "m", 0)
    settle(coordinator, ClassicClient(coordinator, group_id="classic"))
    classic = coordinator.ask("describe_groups", groups=["g", "classic"]).groups
    assert [(group.error_code.name, group.error_message) for group in classic] == [
        ("group_id_not_found", "Group g is not a classic group."),
        ("none", None),
    ]
    described = coordinator.ask("consumer_group_describe", group_ids=["g", "classic", "other", ""]).groups
    assert [group.error_code.name for group in described] == [
        "none",
        "group_id_not_found",
        "group_id_not_found",
        "invalid_group_id",
    ]


def test_a_tick_stops_at_the_first_records_and_goes_on_when_they_are_replayed(coordinator: Coordinator) -> None:
    clients = [ClassicClient(coordinator, group_id=f"g-{number}") for number in range(3)]
    for client in clients:
        settle(coordinator, client)
    coordinator.now_ms += 20_000
    appends = 0
    while (deadline_ms := coordinator.shard.next_deadline_ms()) is not None and deadline_ms <= coordinator.now_ms:
        effects = coordinator.shard.tick(coordinator.now_ms)
        appends += len(effects)
        assert len(effects) <= 1
        coordinator.perform(effects)
    assert appends == 3
    assert {state for _, _, state in kinds(coordinator)} == {"Empty"}
