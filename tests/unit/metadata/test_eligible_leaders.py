"""Who may lead though he is not in sync (KIP-966), and when no longer."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.configs import Change, ResourceChanges
from penstock.cluster.metadata.features import FeatureUpdate, UpgradeType
from tests.unit.metadata.cluster_of_three import Brokers


def test_who_leaves_an_isr_that_is_too_small_becomes_eligible() -> None:
    """KIP-966."""
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="2")
    cluster.fence(3)
    assert cluster.state() == (1, (1, 2), ())
    cluster.fence(1)
    assert cluster.state() == (2, (2,), (1,))
    cluster.fence(2)
    assert cluster.state() == (-1, (), (1, 2))
    # 3 had left while the ISR was large enough: it may lack what was acknowledged since.
    cluster.beat(3)
    assert cluster.state() == (-1, (), (1, 2))
    cluster.beat(1)
    assert cluster.state() == (1, (1,), (2,))
    cluster.beat(2)
    assert cluster.propose((1, 2)).error_code is ErrorCode.none
    assert cluster.state() == (1, (1, 2), ())


def test_the_last_known_leader_is_remembered_until_somebody_leads() -> None:
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="2")
    cluster.fence(1, 2, 3)
    assert (cluster.state(), cluster.partition().last_known_elr) == ((-1, (), (2, 3)), (3,))
    cluster.register_again(2, clean=False)
    cluster.register_again(3, clean=False)
    assert (cluster.state(), cluster.partition().last_known_elr) == ((-1, (), ()), (3,))
    cluster.beat(2)
    assert cluster.state() == (-1, (), ())
    cluster.beat(3)
    assert (cluster.state(), cluster.partition().last_known_elr) == ((3, (3,), ()), ())


def test_min_isr_counts_no_more_than_there_are_replicas() -> None:
    cluster = Brokers()
    cluster.topic("orders", (1, 2), min_insync_replicas="3")
    cluster.fence(2)
    assert cluster.state() == (1, (1,), (2,))


def test_without_the_elr_feature_the_last_member_of_the_isr_is_waited_for() -> None:
    cluster = Brokers()
    cluster.do(cluster.controller.update_features([FeatureUpdate("eligible.leader.replicas.version", 0, 2)]))
    cluster.topic("orders", min_insync_replicas="2")
    cluster.fence(3, 1, 2)
    assert cluster.state() == (-1, (2,), ())
    cluster.beat(1)
    assert cluster.state() == (-1, (2,), ())
    cluster.beat(2)
    assert cluster.state() == (2, (2,), ())


def test_turning_the_elr_off_clears_it_everywhere() -> None:
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="3")
    cluster.fence(3)
    assert cluster.state() == (1, (1, 2), (3,))
    downgrade = FeatureUpdate("eligible.leader.replicas.version", 0, UpgradeType.SAFE_DOWNGRADE)
    (updated,) = cluster.do(cluster.controller.update_features([downgrade]))
    assert (updated.error_code, cluster.state()) == (ErrorCode.none, (1, (1, 2), ()))
    assert cluster.image.index.eligible_on(3) == []


@pytest.mark.parametrize(("kind", "name"), [(2, "orders"), (4, "")])
def test_where_fewer_replicas_will_do_from_now_on_nobody_else_is_eligible(kind: int, name: str) -> None:
    """The leader goes on without them: they will lack what it acknowledges."""
    cluster = Brokers(min_insync_replicas="2")
    cluster.topic("orders")
    cluster.fence(2, 3)
    assert cluster.state() == (1, (1,), (3,))
    lowered = ResourceChanges(kind, name, [Change("min.insync.replicas", "1")])
    (altered,) = cluster.do(cluster.controller.incremental_alter_configs([lowered]))
    assert (altered.error_code, cluster.state()) == (ErrorCode.none, (1, (1,), ()))


def test_where_too_few_are_in_sync_for_the_new_minimum_too_the_eligible_stay() -> None:
    """The leader may be gone for good and nobody have noticed: then only they hold everything."""
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="2")
    cluster.fence(2, 3)
    assert cluster.state() == (1, (1,), (3,))
    raised = ResourceChanges(2, "orders", [Change("min.insync.replicas", "3")])
    cluster.do(cluster.controller.incremental_alter_configs([raised]))
    assert cluster.state() == (1, (1,), (3,))
    cluster.beat(3)
    cluster.fence(1)
    assert cluster.state() == (3, (3,), (1,))


def test_a_leader_that_has_not_read_the_new_minimum_cannot_let_others_join() -> None:
    """By the old one it would go on with the one who joins, and those who are eligible would lack what it writes."""
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="2")
    cluster.fence(2, 3)
    cluster.beat(2)
    before = cluster.partition().leader_epoch
    raised = ResourceChanges(2, "orders", [Change("min.insync.replicas", "3")])
    cluster.do(cluster.controller.incremental_alter_configs([raised]))
    assert cluster.propose((1, 2), leader_epoch=before).error_code is ErrorCode.fenced_leader_epoch
    assert cluster.propose((1, 2)).error_code is ErrorCode.none
    assert cluster.state() == (1, (1, 2), (3,))


def test_settings_of_another_topic_leave_the_eligible_alone() -> None:
    cluster = Brokers(min_insync_replicas="2")
    cluster.topic("orders")
    cluster.topic("payments")
    cluster.fence(2, 3)
    for name, setting in (("payments", "min.insync.replicas"), ("orders", "retention.ms")):
        change = ResourceChanges(2, name, [Change(setting, "1")])
        cluster.do(cluster.controller.incremental_alter_configs([change]))
    assert (cluster.state("orders"), cluster.state("payments")) == ((1, (1,), (3,)), (1, (1,), ()))


def test_where_nobody_leads_the_eligible_stay_until_one_does_who_needs_no_other() -> None:
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="2")
    cluster.fence(1, 2, 3)
    assert cluster.state() == (-1, (), (2, 3))
    lowered = ResourceChanges(2, "orders", [Change("min.insync.replicas", "1")])
    cluster.do(cluster.controller.incremental_alter_configs([lowered]))
    assert cluster.state() == (-1, (), (2, 3))
    cluster.beat(2)
    assert cluster.state() == (2, (2,), ())
