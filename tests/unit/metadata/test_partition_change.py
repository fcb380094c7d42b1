"""Who leads a partition, and who is in sync, after each kind of change."""

import random
import time
import uuid
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.elections import ElectionType
from penstock.cluster.metadata.features import FeatureUpdate, UpgradeType
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.reassignments import Reassignment
from penstock.cluster.metadata.records import MetadataRecord, decode_record, encode_record
from tests.unit.metadata.cluster_of_three import Brokers


def test_the_isr_is_led_by_its_first_living_member_in_the_order_of_the_replicas() -> None:
    cluster = Brokers()
    cluster.topic("orders", (3, 1, 2))
    assert cluster.state() == (3, (3, 1, 2), ())
    cluster.fence(3)
    assert cluster.state() == (1, (1, 2), ())
    cluster.fence(1)
    assert cluster.state() == (2, (2,), ())


def test_anybody_leads_rather_than_nobody_where_the_topic_says_so() -> None:
    cluster = Brokers()
    cluster.topic("careful", (1, 2))
    cluster.topic("careless", (1, 2), unclean_leader_election_enable="true")
    for name in ("careful", "careless"):
        cluster.propose((1,), name)
    cluster.fence(1)
    assert cluster.state("careful") == (-1, (), (1,))
    assert cluster.state("careless") == (2, (2,), ())
    assert cluster.partition("careless").leader_recovery_state == 1


def test_unclean_elections_follow_when_the_setting_is_changed() -> None:
    cluster = Brokers()
    cluster.topic("orders", (1, 2))
    cluster.propose((1,))
    cluster.fence(1)
    assert cluster.do(cluster.controller.elect_unclean()) is False
    assert cluster.state() == (-1, (), (1,))
    cluster.image.configs[2, "orders"] = {"unclean.leader.election.enable": "true"}
    cluster.do(cluster.controller.elect_unclean())
    assert cluster.state() == (2, (2,), ())


# AlterPartition


def test_the_leader_narrows_and_widens_the_isr() -> None:
    cluster = Brokers()
    cluster.topic()
    epoch = cluster.partition().leader_epoch
    narrowed = cluster.propose((1, 3))
    assert (narrowed.error_code, narrowed.isr, narrowed.partition_epoch) == (ErrorCode.none, (1, 3), 1)
    widened = cluster.propose((1, 3, 2))
    assert (widened.isr, widened.partition_epoch, widened.leader_epoch) == ((1, 3, 2), 2, epoch)
    assert cluster.state() == (1, (1, 3, 2), ())


def test_a_proposal_that_changes_nothing_makes_no_record() -> None:
    cluster = Brokers()
    cluster.topic()
    before = cluster.image.end_offset
    answer = cluster.propose((1, 2, 3))
    assert (answer.error_code, answer.partition_epoch, cluster.image.end_offset) == (ErrorCode.none, 0, before)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"leader_epoch": 0}, ErrorCode.fenced_leader_epoch),
        ({"leader_epoch": 2}, ErrorCode.not_controller),
        ({"partition_epoch": 0}, ErrorCode.invalid_update_version),
        ({"partition_epoch": 9}, ErrorCode.not_controller),
        ({"by": 3}, ErrorCode.invalid_request),
        ({"isr": (3,)}, ErrorCode.invalid_request),
        ({"isr": (2, 4)}, ErrorCode.invalid_request),
        ({"isr": (2, 3, 3)}, ErrorCode.invalid_request),
        ({"leader_recovery_state": 1}, ErrorCode.invalid_request),
        ({"leader_recovery_state": 7}, ErrorCode.invalid_request),
        ({"isr": (2, 1)}, ErrorCode.ineligible_replica),
        ({"new_isr": [(2, -1), (3, 0)]}, ErrorCode.ineligible_replica),
        ({"topic_id": uuid.UUID(int=99)}, ErrorCode.unknown_topic_id),
        ({"partition_index": 1}, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_a_proposal_of_somebody_who_is_not_up_to_date_is_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    cluster = Brokers()
    cluster.topic()
    cluster.fence(1)
    partition = cluster.partition()
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 1, 1)
    before = cluster.state()
    isr = {"isr": (2, 3), **fields}.pop("isr")
    others = {name: value for name, value in fields.items() if name != "isr"}
    assert cluster.propose(isr, **others).error_code is error
    assert cluster.state() == before


def test_a_restarted_follower_is_not_taken_back_on_the_strength_of_what_its_predecessor_fetched() -> None:
    """KIP-903."""
    cluster = Brokers()
    cluster.topic()
    old_epoch = cluster.epoch(3)
    cluster.fence(3)
    cluster.restart(3, clean=False)
    stale = [(1, cluster.epoch(1)), (2, -1), (3, old_epoch)]
    assert cluster.propose((1, 2, 3), new_isr=stale).error_code is ErrorCode.ineligible_replica
    assert cluster.propose((1, 2, 3)).error_code is ErrorCode.none


def test_a_proposal_of_an_old_incarnation_is_refused_as_a_whole() -> None:
    cluster = Brokers()
    with pytest.raises(Refused) as caught:
        cluster.controller.alter_partitions(1, cluster.epoch(1) + 1, [])
    assert caught.value.code is ErrorCode.stale_broker_epoch


# Elections that are asked for


def test_leadership_goes_back_to_the_preferred_replica_when_it_is_in_sync() -> None:
    cluster = Brokers()
    cluster.topic("orders", (1, 2, 3), (2, 3, 1))
    cluster.fence(1)
    cluster.beat(1)
    elect = [("orders", 0), ("orders", 1), ("orders", 2), ("nothing", 0)]
    codes = [one.error_code for one in cluster.do(cluster.controller.elect_leaders(ElectionType.PREFERRED, elect))]
    assert codes == [
        ErrorCode.preferred_leader_not_available,
        ErrorCode.election_not_needed,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
    ]
    cluster.propose((2, 3, 1))
    (one,) = cluster.do(cluster.controller.elect_leaders(ElectionType.PREFERRED, None))
    assert (one.partition_id, one.error_code, cluster.state()) == (0, ErrorCode.none, (1, (2, 3, 1), ()))


def test_the_cluster_gives_leadership_back_by_itself() -> None:
    cluster = Brokers()
    cluster.topic("orders", *[(1, 2, 3)] * 5)
    cluster.fence(1)
    cluster.beat(1)
    for index in range(4):
        cluster.propose((2, 3, 1), index=index)
    assert cluster.do(cluster.controller.elect_preferred()) is False
    assert [cluster.partition(index=index).leader for index in range(5)] == [1, 1, 1, 1, 2]
    assert len(cluster.image.index.not_preferred) == 1


def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    cluster = Brokers()
    cluster.topic("orders", (1, 2))
    (needless,) = cluster.do(cluster.controller.elect_leaders(ElectionType.UNCLEAN, [("orders", 0)]))
    assert needless.error_code is ErrorCode.election_not_needed
    cluster.propose((1,))
    cluster.fence(1)
    (elected,) = cluster.do(cluster.controller.elect_leaders(ElectionType.UNCLEAN, [("orders", 0)]))
    assert (elected.error_code, cluster.state()) == (ErrorCode.none, (2, (2,), ()))
    cluster.fence(2)
    (impossible,) = cluster.do(cluster.controller.elect_leaders(ElectionType.UNCLEAN, [("orders", 0)]))
    assert impossible.error_code is ErrorCode.eligible_leaders_not_available


def test_there_are_two_types_of_election() -> None:
    with pytest.raises(Refused, match="Unknown election type 2"):
        Brokers().controller.elect_leaders(2, None)


# Reassignment


def reassign(cluster: Brokers, replicas: tuple[int, ...] | None, **options: bool) -> ErrorCode:
    (answer,) = cluster.do(cluster.controller.alter_reassignments([Reassignment("orders", 0, replicas)], **options))
    return answer.error_code


def test_replicas_move_when_the_new_ones_are_in_sync() -> None:
    cluster = Brokers(None, None, None, None)
    cluster.topic("orders", (1, 2))
    assert reassign(cluster, (3, 4)) is ErrorCode.none
    partition = cluster.partition()
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (
        (3, 4, 1, 2),
        (3, 4),
        (1, 2),
    )
    (ongoing,) = cluster.controller.list_reassignments(None)
    assert (ongoing.topic, ongoing.partition_index, ongoing.replicas) == ("orders", 0, (3, 4, 1, 2))
    assert cluster.controller.list_reassignments([("orders", 0), ("orders", 7), ("nothing", 0)]) == [ongoing]
    cluster.propose((1, 2, 3))
    assert cluster.state() == (1, (1, 2, 3), ())
    epoch = cluster.partition().leader_epoch
    assert cluster.propose((1, 2, 3, 4)).error_code is ErrorCode.new_leader_elected
    assert cluster.state() == (3, (3, 4), ())
    assert (partition.replicas, partition.is_reassigning, partition.leader_epoch) == ((3, 4), False, epoch + 1)
    assert cluster.controller.list_reassignments(None) == []


def test_another_order_or_fewer_replicas_take_effect_at_once() -> None:
    cluster = Brokers()
    cluster.topic()
    epoch = cluster.partition().leader_epoch
    assert reassign(cluster, (2, 1, 3)) is ErrorCode.none
    assert (cluster.partition().replicas, cluster.partition().leader_epoch) == ((2, 1, 3), epoch)
    assert reassign(cluster, (1, 2)) is ErrorCode.none
    assert (cluster.partition().replicas, cluster.state()) == ((1, 2), (1, (1, 2), ()))
    assert cluster.partition().leader_epoch == epoch + 1


def test_a_reassignment_under_way_is_cancelled_or_replaced() -> None:
    cluster = Brokers(None, None, None, None)
    cluster.topic("orders", (1, 2))
    assert reassign(cluster, None) is ErrorCode.no_reassignment_in_progress
    reassign(cluster, (3, 2))
    assert reassign(cluster, None) is ErrorCode.none
    assert (cluster.partition().replicas, cluster.partition().is_reassigning) == ((2, 1), False)
    reassign(cluster, (3, 2))
    assert reassign(cluster, (1, 2, 3)) is ErrorCode.none
    partition = cluster.partition()
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((1, 2, 3), (3,), ())


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ((), ErrorCode.invalid_replica_assignment),
        ((1, 1), ErrorCode.invalid_replica_assignment),
        ((1, 9), ErrorCode.invalid_replica_assignment),
        ((1,), ErrorCode.invalid_replication_factor),
    ],
)
def test_an_impossible_reassignment_is_refused(replicas: tuple[int, ...], error: ErrorCode) -> None:
    cluster = Brokers()
    cluster.topic("orders", (1, 2))
    assert reassign(cluster, replicas, may_change_factor=False) is error
    assert cluster.partition().replicas == (1, 2)


def test_a_cancel_that_would_need_an_unclean_leader_is_refused() -> None:
    cluster = Brokers()
    cluster.topic("orders", (1, 2))
    reassign(cluster, (3, 2))
    cluster.fence(2)
    cluster.propose((1, 3))
    cluster.fence(1)
    assert cluster.state()[0] == 3
    assert reassign(cluster, None) is ErrorCode.invalid_replica_assignment


# Features


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (FeatureUpdate("unknown.version", 1), "does not support the given feature"),
        (FeatureUpdate("eligible.leader.replicas.version", 2), "only supports versions 0-1"),
        (FeatureUpdate("eligible.leader.replicas.version", -1), "cannot be less than 0"),
        (FeatureUpdate("eligible.leader.replicas.version", 0), "without setting the upgrade type"),
        (FeatureUpdate("eligible.leader.replicas.version", 0, 7), "upgrade type"),
        (FeatureUpdate("metadata.version", 29, UpgradeType.UNSAFE_DOWNGRADE), "not supported"),
    ],
)
def test_a_feature_level_that_cannot_be_is_refused_with_everything_asked_with_it(
    update: FeatureUpdate, words: str
) -> None:
    cluster = Brokers()
    fine = FeatureUpdate("eligible.leader.replicas.version", 0, UpgradeType.SAFE_DOWNGRADE)
    decision = cluster.controller.update_features([fine, update])
    assert decision.records == []
    assert decision.answer[1].error_code is ErrorCode.invalid_update_version
    assert words in (decision.answer[1].error_message or "")


# The index, replay, scale


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fence", "beat", "clean", "unclean", "narrow", "widen", "prefer", "reassign", "stop"]),
        st.integers(1, 4),
        st.integers(0, 2),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@example([("fence", 2, 0), ("fence", 3, 0), ("stop", 4, 0), ("fence", 4, 0), ("beat", 4, 0), ("prefer", 1, 0)], "1")
@given(STEPS, st.sampled_from(["1", "2", "3"]))
def test_whatever_happens_isr_and_elr_stay_sound(steps: list[tuple[str, int, int]], min_isr: str) -> None:
    """Invariants 5-7: disjoint ISR and ELR, nobody fenced in an ISR, a leader from the ISR or none."""
    cluster = Brokers(None, None, None, None)
    cluster.topic("orders", (1, 2, 3), (2, 3, 4), (4, 1, 2), min_insync_replicas=min_isr)
    for action, broker_id, index in steps:
        epochs = [(one.leader_epoch, one.partition_epoch) for one in cluster.image.topics["orders"].partitions.values()]
        _act(cluster, action, broker_id, index)
        for number, partition in cluster.image.topics["orders"].partitions.items():
            isr, elr = set(partition.isr), set(partition.eligible_leader_replicas)
            assert not isr & elr
            assert isr | elr <= set(partition.replicas)
            assert not any(cluster.image.brokers[one].fenced for one in isr)
            assert partition.leader in isr if isr else partition.leader == -1
            assert len(isr) < int(min_isr) or not elr
            assert (partition.leader_epoch, partition.partition_epoch) >= epochs[number]
        _check_index(cluster.image)


def _act(cluster: Brokers, action: str, broker_id: int, index: int) -> None:
    partition = cluster.partition(index=index)
    match action:
        case "fence":
            cluster.do(cluster.controller.on_connection_lost(broker_id, cluster.epoch(broker_id)))
        case "beat":
            cluster.beat(broker_id)
        case "stop":
            cluster.beat(broker_id, want_shut_down=True)
        case "clean" | "unclean":
            cluster.restart(broker_id, clean=action == "clean")
        case "narrow" if partition.leader >= 0:
            cluster.propose((partition.leader,), index=index)
        case "widen" if partition.leader >= 0:
            others = [one for one in partition.replicas if one != partition.leader]
            cluster.propose((partition.leader, *others), index=index)
        case "prefer":
            cluster.do(cluster.controller.elect_leaders(ElectionType.PREFERRED, None))
        case "reassign":
            target = tuple(one for one in (1, 2, 3, 4) if one != broker_id)
            cluster.do(cluster.controller.alter_reassignments([Reassignment("orders", index, target)]))


def _check_index(image: MetadataImage) -> None:
    partitions = [one for topic in image.topics.values() for one in topic.partitions.values()]
    index = image.index
    for broker_id in image.brokers:
        assert set(index.in_sync_on(broker_id)) == {one for one in partitions if broker_id in one.isr}
        assert set(index.eligible_on(broker_id)) == {
            one for one in partitions if broker_id in one.eligible_leader_replicas
        }
        assert set(index.led_by(broker_id)) == {one for one in partitions if one.leader == broker_id}
    assert set(index.leaderless) == {one for one in partitions if one.leader == -1}
    assert set(index.reassigning) == {one for one in partitions if one.is_reassigning}


def test_the_failure_of_a_node_with_ten_thousand_partitions_is_decided_and_replayed_well_within_a_second() -> None:
    cluster = Brokers(default_replication_factor="3")
    order = random.Random(1)
    for number in range(10):
        replicas = [tuple(order.sample((1, 2, 3), 3)) for _ in range(1000)]
        cluster.topic(f"t{number}", *replicas, min_insync_replicas="2")
    led = len(cluster.image.index.led_by(1))
    assert led > 3000
    begin = time.perf_counter()
    records: list[MetadataRecord] = cluster.controller.on_connection_lost(1, cluster.epoch(1)).records
    encoded = [encode_record(record) for record in records]
    for record in records:
        cluster.image.replay(record)
    replayed = time.perf_counter()
    assert (len(encoded), len(cluster.image.index.led_by(1))) == (10_001, 0)
    # Several times what it takes, for a busy machine.
    assert replayed - begin < 3
    assert decode_record(encoded[0]) == records[0]


def test_topics_that_go_leave_the_index() -> None:
    cluster = Brokers()
    cluster.topic("orders", (1, 2, 3), (2, 3, 1))
    cluster.do(cluster.controller.delete_topics([("orders", None)]))
    assert (cluster.image.index.in_sync_on(1), dict(cluster.image.index.led_by(1))) == ([], {})
