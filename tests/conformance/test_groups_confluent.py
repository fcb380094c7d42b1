"""confluent-kafka (librdkafka) in groups, with both protocols."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.conformance.confluent import create
from tests.conformance.group_clients import (
    PROTOCOLS,
    committed,
    eager_node,
    fill,
    joined,
    new_group,
    poll_all,
    receive,
    shares,
    values,
    wait_for_shares,
)
from tests.e2e.node import Node, wait_until

SECONDS_MAX = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = eager_node(tmp_path_factory.mktemp("groups") / "data").start()
    yield node
    node.close()


@pytest.fixture
def group_id() -> str:
    return new_group()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_members_share_a_topic_and_read_everything_once(
    node: Node, topic_name: str, group_id: str, protocol: str
) -> None:
    create(node, topic_name, 4)
    with (
        joined(node, group_id, protocol, [topic_name]) as one,
        joined(node, group_id, protocol, [topic_name]) as two,
    ):
        wait_for_shares([one, two], [2, 2])
        fill(node, topic_name, 200, 4)
        received = receive([one, two], 200)
        assert values(received) == list(range(200))
        assert {index for index, _ in received} == {0, 1}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_beyond_the_number_of_partitions_stand_by(
    node: Node, topic_name: str, group_id: str, protocol: str
) -> None:
    create(node, topic_name, 2)
    with (
        joined(node, group_id, protocol, [topic_name]) as one,
        joined(node, group_id, protocol, [topic_name]) as two,
    ):
        with joined(node, group_id, protocol, [topic_name]) as three:
            wait_for_shares([one, two, three], [0, 1, 1])
        wait_for_shares([one, two], [1, 1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_closes_hands_over_at_once(node: Node, topic_name: str, group_id: str, protocol: str) -> None:
    create(node, topic_name, 2)
    with joined(node, group_id, protocol, [topic_name]) as one:
        with joined(node, group_id, protocol, [topic_name]) as two:
            wait_for_shares([one, two], [1, 1])
        # Well within the session timeout of 6 s (classic) and 45 s.
        poll_all([one], lambda: len(one.assignment()) == 2, seconds_max=5)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_every_strategy_of_the_classic_protocol_shares_all_partitions(
    node: Node, topic_name: str, group_id: str, strategy: str
) -> None:
    create(node, topic_name, 6)
    options: dict[str, Any] = {"partition_assignment_strategy": strategy}
    with joined(node, group_id, "classic", [topic_name], **options) as one:
        wait_for_shares([one], [6])
        with joined(node, group_id, "classic", [topic_name], **options) as two:
            wait_for_shares([one, two], [3, 3])
            with joined(node, group_id, "classic", [topic_name], **options) as three:
                wait_for_shares([one, two, three], [2, 2, 2])
            wait_for_shares([one, two], [3, 3])


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_every_assignor_of_the_broker_shares_all_partitions(
    node: Node, topic_name: str, group_id: str, assignor: str
) -> None:
    create(node, topic_name, 6)
    options: dict[str, Any] = {"group_remote_assignor": assignor}
    with (
        joined(node, group_id, "consumer", [topic_name], **options) as one,
        joined(node, group_id, "consumer", [topic_name], **options) as two,
    ):
        wait_for_shares([one, two], [3, 3])


def test_a_cooperative_member_keeps_what_it_need_not_give_away(node: Node, topic_name: str, group_id: str) -> None:
    create(node, topic_name, 4)
    revoked: list[int] = []
    options: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}

    def on_revoke(consumer: Any, partitions: list[TopicPartition]) -> None:
        revoked.extend(one.partition for one in partitions)

    with joined(node, group_id, "classic", [topic_name], on_revoke=on_revoke, **options) as one:
        wait_for_shares([one], [4])
        with joined(node, group_id, "classic", [topic_name], **options) as two:
            wait_for_shares([one, two], [2, 2])
            assert len(revoked) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rebalance_callbacks_tell_what_comes_and_goes(
    node: Node, topic_name: str, group_id: str, protocol: str
) -> None:
    create(node, topic_name, 2)
    owned: set[int] = set()
    calls: list[str] = []

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        calls.append("assign")
        owned.update(one.partition for one in partitions)

    def on_revoke(consumer: Any, partitions: list[TopicPartition]) -> None:
        calls.append("revoke")
        owned.difference_update(one.partition for one in partitions)

    with joined(node, group_id, protocol, [topic_name], on_assign=on_assign, on_revoke=on_revoke) as one:
        poll_all([one], lambda: owned == {0, 1})
        with joined(node, group_id, protocol, [topic_name]) as two:
            wait_for_shares([one, two], [1, 1])
            assert {("t", partition) for partition in owned} == {("t", partition) for _, partition in shares([one])[0]}
    assert calls[0] == "assign"
    assert calls[-1] == "revoke"
    assert not owned


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_takes_in_topics_that_come_later(node: Node, topic_name: str, group_id: str, protocol: str) -> None:
    create(node, f"{topic_name}-1", 1)
    create(node, f"other-{topic_name}", 1)
    with joined(node, group_id, protocol, [f"^{topic_name}-.*"]) as one:
        wait_for_shares([one], [1])
        create(node, f"{topic_name}-2", 2)
        assert wait_for_shares([one], [3]) == [[(f"{topic_name}-1", 0), (f"{topic_name}-2", 0), (f"{topic_name}-2", 1)]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_that_comes_back_has_its_partitions_and_disturbs_nobody(
    node: Node, topic_name: str, group_id: str, protocol: str
) -> None:
    create(node, topic_name, 2)
    calls: list[str] = []
    with joined(
        node,
        group_id,
        protocol,
        [topic_name],
        group_instance_id="stays",
        on_assign=lambda *_: calls.append("assign"),
        on_revoke=lambda *_: calls.append("revoke"),
    ) as stays:
        with joined(node, group_id, protocol, [topic_name], group_instance_id="restarts") as restarts:
            wait_for_shares([stays, restarts], [1, 1])
            before = shares([stays, restarts])
        calls.clear()
        with joined(node, group_id, protocol, [topic_name], group_instance_id="restarts") as back:
            wait_for_shares([stays, back], [1, 1])
            assert shares([stays, back]) == before
            assert not calls


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_who_comes_next_goes_on_after_the_last_commit(
    node: Node, topic_name: str, group_id: str, protocol: str, asynchronous: bool
) -> None:
    create(node, topic_name, 2)
    fill(node, topic_name, 100, 2)
    with joined(node, group_id, protocol, [topic_name]) as first:
        receive([first], 100)
        offsets = [TopicPartition(topic_name, 0, 20, "a note"), TopicPartition(topic_name, 1, 50)]
        if asynchronous:
            first.commit(offsets=offsets, asynchronous=True)
            poll_all([first], lambda: committed(first, topic_name, 0, 1) == [20, 50])
        else:
            first.commit(offsets=offsets, asynchronous=False)
            assert committed(first, topic_name, 0, 1) == [20, 50]
    with joined(node, group_id, protocol, [topic_name]) as second:
        received = receive([second], 30)
        assert {message.partition() for _, message in received} == {0}
        assert min(message.offset() or 0 for _, message in received) == 20
        (kept,) = second.committed([TopicPartition(topic_name, 0)], timeout=SECONDS_MAX)
        assert kept.metadata == "a note"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_are_committed_by_themselves_and_on_closing(
    node: Node, topic_name: str, group_id: str, protocol: str
) -> None:
    create(node, topic_name)
    fill(node, topic_name, 10, 1)
    with joined(node, group_id, protocol, [topic_name], enable_auto_commit=True) as one:
        receive([one], 10)
    with joined(node, group_id, protocol, [topic_name]) as two:
        assert committed(two, topic_name, 0) == [10]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_commits_the_reset_policy_says_where_to_begin(
    node: Node, topic_name: str, group_id: str, protocol: str
) -> None:
    create(node, topic_name)
    fill(node, topic_name, 10, 1)
    with joined(node, group_id, protocol, [topic_name]) as earliest:
        assert receive([earliest], 10)[0][1].offset() == 0
        assert committed(earliest, topic_name, 0) == [OFFSET_INVALID]
    with joined(node, new_group(), protocol, [topic_name], auto_offset_reset="latest") as latest:
        wait_for_shares([latest], [1])
        message = None
        while message is None:
            # It may still be asking where the end is.
            fill(node, topic_name, 1, 1)
            message = latest.poll(0.2)
        assert (message.offset() or 0) >= 10
    with (
        joined(node, new_group(), protocol, [topic_name], auto_offset_reset="error") as refused,
        pytest.raises(KafkaException) as failed,
    ):
        receive([refused], 1)
    assert failed.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_paused_partition_stays_with_its_member_and_is_silent(
    node: Node, topic_name: str, group_id: str, protocol: str
) -> None:
    create(node, topic_name, 2)
    with joined(node, group_id, protocol, [topic_name]) as one:
        wait_for_shares([one], [2])
        one.pause([TopicPartition(topic_name, 0)])
        fill(node, topic_name, 20, 2)
        assert {message.partition() for _, message in receive([one], 10)} == {1}
        assert one.poll(0.5) is None
        one.resume([TopicPartition(topic_name, 0)])
        assert {message.partition() for _, message in receive([one], 10)} == {0}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_that_are_added_are_given_out(node: Node, topic_name: str, group_id: str, protocol: str) -> None:
    create(node, topic_name, 1)
    with joined(node, group_id, protocol, [topic_name]) as one:
        wait_for_shares([one], [1])
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_partitions([NewPartitions(topic_name, 3)])[topic_name].result(SECONDS_MAX)
        wait_for_shares([one], [3])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_are_administered(node: Node, topic_name: str, group_id: str, protocol: str) -> None:
    create(node, topic_name, 2)
    fill(node, topic_name, 10, 2)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    with joined(node, group_id, protocol, [topic_name]) as one:
        receive([one], 10)
        one.commit(asynchronous=False)
        described = admin.describe_consumer_groups([group_id])[group_id].result(SECONDS_MAX)
        assert described.state == ConsumerGroupState.STABLE
        (member,) = described.members
        assert [(part.topic, part.partition) for part in member.assignment.topic_partitions] == [
            (topic_name, 0),
            (topic_name, 1),
        ]
        with pytest.raises(KafkaException) as failed:
            admin.delete_consumer_groups([group_id])[group_id].result(SECONDS_MAX)
        assert failed.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    wait_until(lambda: _state(admin, group_id) == ConsumerGroupState.EMPTY, "the group is empty")
    asked = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)])
    kept = admin.list_consumer_group_offsets([asked])[group_id].result(SECONDS_MAX)
    assert [part.offset for part in kept.topic_partitions] == [5, 5]
    moved = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic_name, 0, 1)])
    admin.alter_consumer_group_offsets([moved])[group_id].result(SECONDS_MAX)
    kept = admin.list_consumer_group_offsets([asked])[group_id].result(SECONDS_MAX)
    assert [part.offset for part in kept.topic_partitions] == [1, 5]
    admin.delete_consumer_groups([group_id])[group_id].result(SECONDS_MAX)
    assert _state(admin, group_id) is None


def _state(admin: AdminClient, group_id: str) -> ConsumerGroupState | None:
    listed = admin.list_consumer_groups().result(SECONDS_MAX)
    assert not listed.errors
    return next((group.state for group in listed.valid if group.group_id == group_id), None)


def test_members_of_both_protocols_share_a_group(node: Node, topic_name: str, group_id: str) -> None:
    """The online upgrade, one member after the other, and back."""
    create(node, topic_name, 4)
    with joined(node, group_id, "classic", [topic_name]) as old:
        wait_for_shares([old], [4])
        with joined(node, group_id, "consumer", [topic_name]) as new:
            wait_for_shares([old, new], [2, 2])
            fill(node, topic_name, 40, 4)
            assert values(receive([old, new], 40)) == list(range(40))
        wait_for_shares([old], [4])
