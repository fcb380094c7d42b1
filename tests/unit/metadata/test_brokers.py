import uuid
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.brokers import Heartbeat
from penstock.cluster.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from tests.unit.metadata.cluster_of_three import Brokers
from tests.unit.metadata.conftest import Cluster
from tests.unit.metadata.registering import registration


def refused(call: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.code, caught.value.message


# Registration


def test_a_broker_is_born_fenced_with_the_offset_of_the_decision_as_its_epoch() -> None:
    cluster = Cluster()
    before = cluster.image.end_offset
    decision = cluster.controller.register_broker(registration(7, rack="a"), now_ms=0)
    assert decision.answer == before
    (record,) = decision.records
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_epoch, record.fenced, record.rack) == (before, True, "a")
    cluster.do(decision)
    assert cluster.image.brokers[7].must_know_offset == before


def test_a_broker_with_a_foreign_cluster_id_is_refused() -> None:
    cluster = Cluster()
    code, message = refused(lambda: cluster.controller.register_broker(registration(7, cluster_id="another"), now_ms=0))
    assert code is ErrorCode.inconsistent_cluster_id
    assert message == "Expected cluster ID a-cluster, but got cluster ID another"


def test_a_second_broker_with_the_id_of_a_living_one_is_refused() -> None:
    cluster = Brokers()
    code, _ = refused(lambda: cluster.controller.register_broker(registration(2, incarnation=9), cluster.now_ms))
    assert code is ErrorCode.duplicate_broker_registration


def test_the_id_of_a_broker_whose_session_ran_out_may_be_taken_over_before_it_is_fenced() -> None:
    cluster = Brokers()
    epoch = cluster.epoch(2)
    taken = cluster.do(cluster.controller.register_broker(registration(2, incarnation=9), now_ms=3000))
    assert taken > epoch


def test_the_same_incarnation_that_registers_again_keeps_epoch_and_state() -> None:
    cluster = Brokers()
    epoch = cluster.epoch(2)
    moved = registration(2, listeners=[("PLAINTEXT", "elsewhere", 1234, 0)])
    assert cluster.do(cluster.controller.register_broker(moved, cluster.now_ms)) == epoch
    broker = cluster.image.brokers[2]
    assert (broker.host, broker.port, broker.fenced) == ("elsewhere", 1234, False)


@pytest.mark.parametrize(
    ("log_dirs", "words"),
    [
        ([uuid.UUID(int=5)], "Reserved directory ID"),
        ([uuid.UUID(int=500), uuid.UUID(int=500)], "Duplicate directory ID"),
        ([uuid.UUID(int=777)], "Broker 4 is already registered with directory"),
    ],
)
def test_directories_that_cannot_be_its_own_are_refused(log_dirs: list[uuid.UUID], words: str) -> None:
    cluster = Cluster()
    cluster.do(cluster.controller.register_broker(registration(4, log_dirs=[uuid.UUID(int=777)]), now_ms=0))
    code, message = refused(lambda: cluster.controller.register_broker(registration(5, log_dirs=log_dirs), now_ms=0))
    assert code is ErrorCode.invalid_registration
    assert words in message


@pytest.mark.parametrize("features", [[], [("metadata.version", 7, 29), ("eligible.leader.replicas.version", 0, 1)]])
def test_a_broker_that_cannot_do_a_level_in_force_is_refused(features: list[tuple[str, int, int]]) -> None:
    cluster = Cluster()
    code, message = refused(lambda: cluster.controller.register_broker(registration(5, features=features), now_ms=0))
    assert code is ErrorCode.unsupported_version
    assert "finalized version 30 of metadata.version" in message


# Heartbeats


def test_a_broker_serves_once_it_has_read_of_its_own_registration() -> None:
    cluster = Brokers()
    epoch = cluster.do(cluster.controller.register_broker(registration(4), now_ms=0))
    cluster.incarnations[4] = 1
    behind = cluster.beat(4, offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    caught_up = cluster.beat(4, offset=epoch)
    assert (caught_up.is_caught_up, caught_up.is_fenced) == (True, False)
    assert not cluster.image.brokers[4].fenced


def test_a_heartbeat_of_an_old_epoch_or_of_nobody_is_refused() -> None:
    cluster = Brokers()
    for broker_id, epoch in ((1, cluster.epoch(1) - 1), (9, 0)):
        code, _ = refused(lambda i=broker_id, e=epoch: cluster.controller.heartbeat(Heartbeat(i, e, 0), now_ms=0))
        assert code is ErrorCode.stale_broker_epoch


def test_a_silent_broker_is_fenced_when_its_session_runs_out_and_not_before() -> None:
    cluster = Brokers()
    cluster.topic()
    for now_ms in (1000, 2000):
        cluster.now_ms = now_ms
        cluster.beat(2)
        cluster.beat(3)
    assert cluster.controller.next_deadline_ms() == 3000
    assert cluster.do(cluster.controller.on_deadline(2999)) is None
    assert cluster.do(cluster.controller.on_deadline(3000)) == 1
    assert cluster.image.brokers[1].fenced
    assert cluster.state() == (2, (2, 3), ())
    assert cluster.controller.next_deadline_ms() == 5000
    assert cluster.do(cluster.controller.on_deadline(3000)) is None


def test_stale_brokers_are_fenced_one_after_another() -> None:
    cluster = Brokers()
    cluster.now_ms = 2000
    cluster.beat(3)
    fenced = [cluster.do(cluster.controller.on_deadline(3500)) for _ in range(3)]
    assert fenced == [1, 2, None]


def test_a_controller_that_was_away_itself_fences_nobody_for_it() -> None:
    cluster = Brokers()
    assert cluster.do(cluster.controller.on_deadline(60_000)) is None
    assert cluster.controller.next_deadline_ms() == 63_000
    assert not any(broker.fenced for broker in cluster.image.brokers.values())


def test_a_new_controller_gives_every_broker_that_serves_a_session() -> None:
    cluster = Brokers()
    cluster.fence(3)
    cluster.controller.activate(now_ms=50_000)
    assert cluster.controller.next_deadline_ms() == 53_000
    cluster.now_ms = 52_000
    cluster.beat(1)
    assert [cluster.do(cluster.controller.on_deadline(53_000)) for _ in range(2)] == [2, None]


def test_a_controller_that_hung_gets_no_second_session_from_the_one_that_noticed() -> None:
    cluster = Brokers()
    cluster.controller.activate(now_ms=50_000, heard_ms={2: 47_800})
    assert cluster.controller.next_deadline_ms() == 50_800
    assert [cluster.do(cluster.controller.on_deadline(50_800)) for _ in range(2)] == [2, None]
    assert cluster.controller.next_deadline_ms() == 53_000


def test_whoever_must_find_a_new_controller_has_the_time_for_it() -> None:
    cluster = Brokers()
    cluster.controller.activate(now_ms=50_000, heard_ms={2: 1})
    assert cluster.controller.next_deadline_ms() == 50_500
    cluster.now_ms = 50_400
    cluster.beat(2)
    assert cluster.do(cluster.controller.on_deadline(50_500)) is None


def test_a_broker_whose_connection_closed_is_fenced_at_once_and_only_once() -> None:
    cluster = Brokers()
    epoch = cluster.epoch(1)
    assert cluster.do(cluster.controller.on_connection_lost(1, epoch)) is True
    assert cluster.controller.on_connection_lost(1, epoch).records == []
    assert cluster.controller.on_connection_lost(2, cluster.epoch(2) - 1).records == []


def test_a_broker_fenced_by_mistake_serves_again_with_its_next_heartbeat() -> None:
    cluster = Brokers()
    cluster.topic()
    cluster.fence(2)
    assert cluster.state() == (1, (1, 3), ())
    assert cluster.beat(2).is_fenced is False
    # The ISR is the leader's to widen.
    assert cluster.state() == (1, (1, 3), ())


def test_a_broker_is_let_in_again_when_it_has_read_that_it_was_fenced() -> None:
    """Before, it takes itself for the leader of what others lead by now."""
    cluster = Brokers()
    cluster.topic()
    known = cluster.image.end_offset - 1
    cluster.fence(2)
    behind = cluster.beat(2, offset=known)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    assert cluster.beat(2, offset=cluster.image.end_offset - 1).is_fenced is False


def test_a_broker_may_ask_to_be_fenced() -> None:
    cluster = Brokers()
    answer = cluster.beat(2, want_fence=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, False)
    assert cluster.image.brokers[2].fenced


# Controlled shutdown


def test_a_controlled_shutdown_moves_the_leaders_and_waits_until_everybody_knows() -> None:
    cluster = Brokers()
    cluster.topic()
    started = cluster.beat(1, want_shut_down=True)
    assert (started.is_fenced, started.should_shut_down) == (False, False)
    assert cluster.state() == (2, (2, 3), ())
    assert cluster.image.brokers[1].in_controlled_shutdown
    moved_at = cluster.image.end_offset - 1
    cluster.beat(2, offset=moved_at)
    cluster.beat(3, offset=moved_at - 1)
    assert cluster.beat(1, want_shut_down=True).should_shut_down is False
    cluster.beat(3, offset=moved_at)
    done = cluster.beat(1, want_shut_down=True)
    assert (done.is_fenced, done.should_shut_down) == (True, True)
    assert cluster.image.brokers[1].fenced


def test_a_broker_that_leads_nothing_or_is_fenced_may_stop_at_once() -> None:
    cluster = Brokers()
    cluster.topic("orders", (1, 2))
    assert cluster.beat(3, want_shut_down=True).should_shut_down is True
    cluster.fence(1)
    decision = cluster.controller.heartbeat(Heartbeat(1, cluster.epoch(1), 0, want_shut_down=True), now_ms=0)
    assert (decision.answer.should_shut_down, decision.records) == (True, [])


def test_a_broker_that_wants_to_stop_now_is_fenced_with_its_leaders_moved() -> None:
    cluster = Brokers()
    cluster.topic()
    assert cluster.beat(1, want_fence=True, want_shut_down=True).should_shut_down is True
    assert cluster.state() == (2, (2, 3), ())


def test_the_only_broker_may_stop_though_nobody_can_take_over() -> None:
    cluster = Brokers(None)
    cluster.topic("orders", (1,))
    cluster.beat(1, want_shut_down=True)
    assert cluster.state() == (-1, (), (1,))
    assert cluster.beat(1, want_shut_down=True).should_shut_down is True
    cluster.restart(1, clean=True)
    assert cluster.state() == (1, (1,), ())


# Unclean shutdown


def test_after_an_unclean_shutdown_a_broker_is_in_neither_isr_nor_elr_when_it_registers() -> None:
    """KIP-966: what it had acknowledged may be lost."""
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="2")
    cluster.topic("bills")
    cluster.fence(3)
    cluster.fence(2)
    assert cluster.state("orders") == (1, (1,), (2,))
    cluster.register_again(2, clean=False)
    assert cluster.state("orders") == (1, (1,), ())
    cluster.register_again(1, clean=False)
    assert cluster.state("orders") == (-1, (), ())
    assert cluster.partition("orders").last_known_elr == (1,)


def test_after_a_clean_shutdown_a_broker_stays_eligible() -> None:
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="2")
    cluster.fence(3)
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.state() == (-1, (), (1, 2))
    cluster.register_again(2, clean=True)
    assert cluster.state() == (-1, (), (1, 2))
    cluster.beat(2)
    assert cluster.state() == (2, (2,), (1,))


def test_the_epoch_of_an_earlier_clean_shutdown_proves_nothing() -> None:
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="2")
    cluster.fence(3)
    cluster.fence(2)
    stale = cluster.epoch(2) - 1
    one = registration(2, incarnation=5, previous_broker_epoch=stale)
    cluster.do(cluster.controller.register_broker(one, now_ms=0))
    assert cluster.state() == (1, (1,), ())


def test_the_only_replica_leads_again_after_a_crash() -> None:
    """Nobody else has anything: the last known leader is elected, and is marked as recovering."""
    cluster = Brokers(None)
    cluster.topic("orders", (1,))
    epoch = cluster.partition().leader_epoch
    cluster.restart(1, clean=False)
    assert cluster.state() == (1, (1,), ())
    assert cluster.partition().leader_recovery_state == 1
    assert cluster.partition().leader_epoch == epoch + 2
    assert cluster.partition().last_known_elr == ()
    assert cluster.propose((1,), leader_recovery_state=0).leader_recovery_state == 0


# Directories, unregistration, controllers


def test_what_lies_in_a_failed_directory_is_led_by_others() -> None:
    cluster = Brokers()
    good, bad = uuid.UUID(int=1000), uuid.UUID(int=1001)
    cluster.register_again(1, clean=True, log_dirs=[good, bad])
    cluster.beat(1)
    topic_id = cluster.topic()
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, directories=(bad, None, None)))
    cluster.beat(1, offline_log_dirs=[bad])
    assert cluster.state() == (2, (2, 3), ())
    assert cluster.image.brokers[1].log_dirs == (good,)
    cluster.beat(1, offline_log_dirs=[bad, good])
    assert cluster.image.brokers[1].fenced


def test_an_unregistered_broker_is_forgotten_and_holds_nothing() -> None:
    cluster = Brokers()
    cluster.topic("orders", min_insync_replicas="3")
    cluster.fence(3)
    assert cluster.state() == (1, (1, 2), (3,))
    cluster.do(cluster.controller.unregister_broker(3))
    assert (cluster.state(), 3 in cluster.image.brokers) == ((1, (1, 2), ()), False)
    code, _ = refused(lambda: cluster.controller.unregister_broker(3))
    assert code is ErrorCode.broker_id_not_registered


def test_controllers_are_kept_with_their_addresses() -> None:
    cluster = Cluster()
    incarnation = uuid.UUID(int=1234)
    cluster.do(
        cluster.controller.register_controller(
            3, incarnation, [("CONTROLLER", "c3", 9093, 0)], [("metadata.version", 7, 30)]
        )
    )
    kept = cluster.image.controllers[3]
    assert (kept.incarnation_id, kept.end_points[0].host) == (incarnation, "c3")


def test_producer_ids_go_to_registered_incarnations_only_and_run_out_with_an_error() -> None:
    cluster = Brokers()
    code, _ = refused(lambda: cluster.controller.allocate_producer_ids(1, cluster.epoch(1) + 1))
    assert code is ErrorCode.stale_broker_epoch
    cluster.image.next_producer_id = 2**63 - 1000
    code, _ = refused(lambda: cluster.controller.allocate_producer_ids(1, cluster.epoch(1)))
    assert code is ErrorCode.unknown_server_error


def test_fencing_is_recorded_as_kafka_does_after_the_partitions() -> None:
    cluster = Brokers()
    cluster.topic()
    records = cluster.controller.on_connection_lost(1, cluster.epoch(1)).records
    assert [type(record) for record in records] == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
