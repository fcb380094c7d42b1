import uuid
from typing import Any

import pytest

from penstock.coordinator.effects import Append
from penstock.protocol.messages import Struct
from tests.unit.group.classic_members import ClassicClient, commit_topic, group_state, settle
from tests.unit.group.coordinator import Coordinator

DAY_MS = 24 * 60 * 60 * 1000
RETENTION_MS = 7 * DAY_MS


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=100)
    coordinator.topics.set("t", 4)
    coordinator.topics.set("u", 1)
    return coordinator


def commit(coordinator: Coordinator, partition: int, offset: int, topic: str = "t", group_id: str = "g") -> str:
    """As a consumer does that is in no group but keeps its offsets under a name."""
    answer = coordinator.ask("offset_commit", group_id=group_id, topics=[commit_topic(topic, partition, offset)])
    return str(answer.topics[0].partitions[0].error_code.name)


def fetch(coordinator: Coordinator, *partitions: int, topic: str = "t", group_id: str = "g", **more: Any) -> list[int]:
    topics = [Struct(name=topic, partition_indexes=partitions)]
    answer = coordinator.ask("offset_fetch", groups=[Struct(group_id=group_id, topics=topics)], **more)
    return [
        one.error_code.name if one.error_code else one.committed_offset for one in answer.groups[0].topics[0].partitions
    ]


def fetch_all(coordinator: Coordinator, group_id: str = "g") -> dict[tuple[str, int], int]:
    answer = coordinator.ask("offset_fetch", groups=[Struct(group_id=group_id, topics=None)])
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in answer.groups[0].topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_fetches_what_was_committed(coordinator: Coordinator, version: int) -> None:
    coordinator.ask(
        "offset_commit",
        group_id="g",
        topics=[
            Struct(
                name="t",
                partitions=[
                    Struct(partition_index=0, committed_offset=5, committed_leader_epoch=3, committed_metadata="note")
                ],
            )
        ],
    )
    topics = [Struct(name="t", partition_indexes=[0, 1])]
    answer = coordinator.ask(
        "offset_fetch", version, group_id="g", topics=topics, groups=[Struct(group_id="g", topics=topics)]
    )
    part = answer.groups[0] if version >= 8 else answer
    one, other = part.topics[0].partitions
    assert (one.committed_offset, one.metadata, getattr(one, "committed_leader_epoch", 3)) == (5, "note", 3)
    assert (other.committed_offset, other.metadata, other.error_code.name) == (-1, "", "none")


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_commits(coordinator: Coordinator, version: int) -> None:
    answer = coordinator.ask("offset_commit", version, group_id="g", topics=[commit_topic("t", 2, 8)])
    assert answer.topics[0].partitions[0].error_code.name == "none"
    assert fetch(coordinator, 2) == [8]


def test_from_version_10_on_topics_go_by_their_ids(coordinator: Coordinator) -> None:
    known, unknown = coordinator.topics.topic_id("t"), uuid.uuid4()
    partitions = [Struct(partition_index=0, committed_offset=5)]
    committed = coordinator.ask(
        "offset_commit",
        10,
        group_id="g",
        topics=[Struct(topic_id=known, partitions=partitions), Struct(topic_id=unknown, partitions=partitions)],
    )
    assert [(topic.topic_id, topic.partitions[0].error_code.name) for topic in committed.topics] == [
        (known, "none"),
        (unknown, "unknown_topic_id"),
    ]
    asked = [Struct(topic_id=known, partition_indexes=[0]), Struct(topic_id=unknown, partition_indexes=[0])]
    fetched = coordinator.ask("offset_fetch", 10, groups=[Struct(group_id="g", topics=asked)]).groups[0]
    assert [(one.topic_id, one.partitions[0].committed_offset) for one in fetched.topics] == [(known, 5), (unknown, -1)]
    assert fetched.topics[1].partitions[0].error_code.name == "unknown_topic_id"
    everything = coordinator.ask("offset_fetch", 10, groups=[Struct(group_id="g", topics=None)]).groups[0]
    assert [topic.topic_id for topic in everything.topics] == [known]


def test_many_groups_are_fetched_with_one_request(coordinator: Coordinator) -> None:
    commit(coordinator, 0, 1, group_id="one")
    commit(coordinator, 0, 2, group_id="two")
    topics = [Struct(name="t", partition_indexes=[0])]
    asked = [Struct(group_id=group_id, topics=topics) for group_id in ("one", "two", "three")]
    answer = coordinator.ask("offset_fetch", groups=asked)
    offsets = {group.group_id: group.topics[0].partitions[0].committed_offset for group in answer.groups}
    assert offsets == {"one": 1, "two": 2, "three": -1}


def test_what_cannot_be_committed_is_refused_alone(coordinator: Coordinator) -> None:
    answer = coordinator.ask(
        "offset_commit",
        group_id="g",
        topics=[
            Struct(
                name="t",
                partitions=[
                    Struct(partition_index=0, committed_offset=1, committed_metadata="m" * 4096),
                    Struct(partition_index=1, committed_offset=1, committed_metadata="m" * 4097),
                    Struct(partition_index=4, committed_offset=1),
                    Struct(partition_index=-1, committed_offset=1),
                ],
            ),
            commit_topic("nowhere", 0, 1),
        ],
    )
    assert [one.error_code.name for topic in answer.topics for one in topic.partitions] == [
        "none",
        "offset_metadata_too_large",
        "unknown_topic_or_partition",
        "unknown_topic_or_partition",
        "unknown_topic_or_partition",
    ]
    assert fetch_all(coordinator) == {("t", 0): 1}


def test_the_empty_group_id_may_keep_offsets_too(coordinator: Coordinator) -> None:
    assert commit(coordinator, 0, 1, group_id="") == "none"
    assert len(coordinator.log) == 1


def test_commits_of_the_past_and_of_strangers_are_refused(coordinator: Coordinator) -> None:
    client = ClassicClient(coordinator)
    assert commit(coordinator, 0, 1, group_id="g") == "none"
    settle(coordinator, client)
    assert client.commit("t", 0, 10) == "none"
    # A member of the group commits as such; nobody else does while it has members.
    assert commit(coordinator, 0, 1) == "unknown_member_id"
    client.generation = 0
    assert client.commit("t", 0, 2) == "illegal_generation"
    client.generation, client.member_id = 1, "stranger"
    assert client.commit("t", 0, 3) == "unknown_member_id"
    assert fetch(coordinator, 0) == [10]


@pytest.mark.parametrize(("version", "error"), [(8, "illegal_generation"), (9, "group_id_not_found")])
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    coordinator: Coordinator, version: int, error: str
) -> None:
    client = ClassicClient(coordinator)
    client.generation, client.member_id = 3, "m"
    assert client.commit("t", 0, 1, version) == error


def test_commits_keep_a_member_alive(coordinator: Coordinator) -> None:
    client = ClassicClient(coordinator)
    settle(coordinator, client)
    for offset in range(5):
        coordinator.advance(9_000)
        assert client.commit("t", 0, offset) == "none"


# Offsets of transactions


def commit_in_transaction(coordinator: Coordinator, producer_id: int, partition: int, offset: int) -> str:
    answer = coordinator.ask(
        "txn_offset_commit",
        producer_id=producer_id,
        transactional_id="x",
        group_id="g",
        topics=[commit_topic("t", partition, offset)],
    )
    return str(answer.topics[0].partitions[0].error_code.name)


@pytest.mark.parametrize(("is_committed", "offset"), [(True, 9), (False, 5)])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_offsets_of_a_transaction_count_when_it_commits(
    coordinator: Coordinator, is_committed: bool, offset: int, is_restarted: bool
) -> None:
    commit(coordinator, 0, 5)
    assert commit_in_transaction(coordinator, 70, 0, 9) == "none"
    if is_restarted:
        coordinator.restart()
    assert fetch(coordinator, 0) == [5]
    assert fetch(coordinator, 0, 1, require_stable=True) == ["unstable_offset_commit", -1]
    coordinator.end_transaction(70, is_committed)
    assert fetch(coordinator, 0, require_stable=True) == [offset]
    coordinator.restart()
    assert fetch(coordinator, 0, require_stable=True) == [offset]


def test_a_plain_commit_after_a_transactional_one_wins_whenever_the_marker_comes(coordinator: Coordinator) -> None:
    commit_in_transaction(coordinator, 70, 0, 9)
    commit(coordinator, 0, 11)
    coordinator.end_transaction(70, is_committed=True)
    assert fetch(coordinator, 0) == [11]


def test_a_group_is_deleted_with_its_undecided_offsets(coordinator: Coordinator) -> None:
    commit_in_transaction(coordinator, 70, 0, 9)
    assert coordinator.ask("delete_groups", groups_names=["g"]).results[0].error_code.name == "none"
    coordinator.end_transaction(70, is_committed=True)
    assert fetch_all(coordinator) == {}


def test_a_generation_is_checked_in_transactions_too(coordinator: Coordinator) -> None:
    client = ClassicClient(coordinator)
    settle(coordinator, client)

    def committed(**fields: Any) -> str:
        answer = coordinator.ask(
            "txn_offset_commit",
            transactional_id="x",
            producer_id=7,
            topics=[commit_topic("t", 0, 1)],
            **({"group_id": "g"} | fields),
        )
        return str(answer.topics[0].partitions[0].error_code.name)

    assert committed(generation_id=1, member_id=client.member_id) == "none"
    assert committed(generation_id=0, member_id=client.member_id) == "illegal_generation"
    assert committed(generation_id=1, member_id="stranger") == "unknown_member_id"
    assert committed(generation_id=1, member_id="m", group_id="other") == "illegal_generation"


# Deletion


def delete_offset(coordinator: Coordinator, partition: int, topic: str = "t", group_id: str = "g") -> str:
    answer = coordinator.ask(
        "offset_delete",
        group_id=group_id,
        topics=[Struct(name=topic, partitions=[Struct(partition_index=partition)])],
    )
    return str((answer.error_code or answer.topics[0].partitions[0].error_code).name)


def test_offsets_are_deleted_one_by_one(coordinator: Coordinator) -> None:
    commit(coordinator, 0, 5)
    commit(coordinator, 1, 6)
    assert delete_offset(coordinator, 0) == "none"
    assert delete_offset(coordinator, 3) == "none"
    assert delete_offset(coordinator, 9) == "unknown_topic_or_partition"
    assert delete_offset(coordinator, 0, topic="nowhere") == "unknown_topic_or_partition"
    assert delete_offset(coordinator, 0, group_id="other") == "group_id_not_found"
    assert delete_offset(coordinator, 0, group_id="") == "invalid_group_id"
    assert fetch_all(coordinator) == {("t", 1): 6}
    coordinator.restart()
    assert fetch_all(coordinator) == {("t", 1): 6}


def test_offsets_of_topics_that_members_want_are_kept(coordinator: Coordinator) -> None:
    client = ClassicClient(coordinator, topics=("t",))
    settle(coordinator, client)
    client.commit("t", 0, 5)
    client.commit("u", 0, 5)
    assert delete_offset(coordinator, 0) == "group_subscribed_to_topic"
    assert delete_offset(coordinator, 0, topic="u") == "none"
    other = ClassicClient(coordinator, group_id="workers")
    other.protocol_type = "connect"
    settle(coordinator, other)
    assert delete_offset(coordinator, 0, group_id="workers") == "non_empty_group"


def test_only_groups_without_members_are_deleted_and_all_of_them_goes(coordinator: Coordinator) -> None:
    client = ClassicClient(coordinator)
    settle(coordinator, client)
    client.commit("t", 0, 5)

    def deleted(*group_ids: str) -> list[str]:
        answer = coordinator.ask("delete_groups", groups_names=group_ids)
        return [result.error_code.name for result in answer.results]

    assert deleted("g", "other") == ["non_empty_group", "group_id_not_found"]
    client.leave()
    assert deleted("g") == ["none"]
    assert deleted("g") == ["group_id_not_found"]
    coordinator.restart()
    assert fetch_all(coordinator) == {}
    assert group_state(coordinator) == "Dead"


def test_offsets_of_a_deleted_topic_go_with_it(coordinator: Coordinator) -> None:
    commit(coordinator, 0, 5)
    commit(coordinator, 0, 6, topic="u")
    coordinator.topics.remove("t")
    coordinator.topics_changed()
    assert fetch_all(coordinator) == {("u", 0): 6}
    coordinator.topics.set("t", 4)
    coordinator.topics_changed()
    assert fetch(coordinator, 0) == [-1]


def test_offsets_of_a_topic_that_was_made_anew_in_one_go_do_not_pass_to_it(coordinator: Coordinator) -> None:
    commit(coordinator, 0, 5)
    coordinator.topics.remove("t")
    coordinator.topics.set("t", 4)
    asked = [Struct(topic_id=coordinator.topics.topic_id("t"), partition_indexes=[0])]
    answer = coordinator.ask("offset_fetch", 10, groups=[Struct(group_id="g", topics=asked)])
    assert answer.groups[0].topics[0].partitions[0].committed_offset == -1
    coordinator.topics_changed()
    assert fetch_all(coordinator) == {}


def test_a_topic_missing_from_a_view_that_lags_behind_keeps_its_offsets(coordinator: Coordinator) -> None:
    """A coordinator may load its partition before it has learnt of the topics."""
    commit(coordinator, 0, 5)
    coordinator.topics.remove("t")
    coordinator.restart()
    coordinator.topics_changed()
    assert fetch(coordinator, 0) == [5]


# Expiration (KIP-211)


def test_offsets_of_a_group_that_only_commits_expire_so_long_after_the_commit(coordinator: Coordinator) -> None:
    commit(coordinator, 0, 5)
    coordinator.advance(DAY_MS)
    commit(coordinator, 1, 6)
    coordinator.advance(RETENTION_MS - DAY_MS + 600_000)
    assert fetch_all(coordinator) == {("t", 1): 6}
    coordinator.advance(DAY_MS)
    assert fetch_all(coordinator) == {}
    assert coordinator.ask("list_groups").groups == ()


def test_offsets_of_a_group_expire_so_long_after_it_became_empty(coordinator: Coordinator) -> None:
    client = ClassicClient(coordinator, session_ms=1_800_000)
    settle(coordinator, client)
    client.commit("t", 0, 5)
    for _ in range(2 * RETENTION_MS // 1_700_000):
        coordinator.advance(1_700_000)
        assert client.heartbeat() == "none"
    assert fetch_all(coordinator) == {("t", 0): 5}
    client.leave()
    coordinator.advance(RETENTION_MS - 600_000)
    coordinator.restart()
    assert fetch_all(coordinator) == {("t", 0): 5}
    coordinator.advance(1_200_000)
    assert group_state(coordinator) == "Dead"


def test_offsets_of_topics_nobody_wants_any_more_expire_in_a_stable_group(coordinator: Coordinator) -> None:
    client = ClassicClient(coordinator, topics=("t",), session_ms=1_800_000)
    settle(coordinator, client)
    client.commit("t", 0, 5)
    client.commit("u", 0, 5)
    for _ in range(RETENTION_MS // 1_700_000 + 2):
        coordinator.advance(1_700_000)
        assert client.heartbeat() == "none"
    assert fetch_all(coordinator) == {("t", 0): 5}


def test_an_old_commit_with_a_retention_of_its_own_expires_by_that(coordinator: Coordinator) -> None:
    coordinator.ask("offset_commit", 4, group_id="g", retention_time=DAY_MS, topics=[commit_topic("t", 0, 5)])
    coordinator.restart()
    coordinator.advance(DAY_MS - 600_000)
    assert fetch(coordinator, 0) == [5]
    coordinator.advance(1_200_000)
    assert fetch(coordinator, 0) == [-1]


def test_offsets_that_an_open_transaction_may_change_do_not_expire(coordinator: Coordinator) -> None:
    commit(coordinator, 0, 5)
    commit_in_transaction(coordinator, 70, 0, 9)
    coordinator.advance(2 * RETENTION_MS)
    coordinator.end_transaction(70, is_committed=False)
    assert fetch(coordinator, 0) == [5]


def test_the_look_for_expired_offsets_goes_over_many_groups_in_small_steps(coordinator: Coordinator) -> None:
    for group in range(900):
        coordinator.send(
            "offset_commit",
            group_id=f"g-{group}",
            topics=[
                Struct(name="t", partitions=[Struct(partition_index=index, committed_offset=1) for index in range(4)])
            ],
        )
    coordinator.performed.clear()
    coordinator.advance(RETENTION_MS + 600_000)
    assert coordinator.ask("list_groups").groups == ()
    sizes = [len(effect.records) for effect in coordinator.performed if isinstance(effect, Append)]
    assert sum(sizes) == 900 * 5
    assert max(sizes) <= 2500
