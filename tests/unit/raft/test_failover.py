"""How long a quorum of three is without a leader, with the settings that nodes have."""

import pytest

from penstock.cluster.raft import Role
from penstock.cluster.raft.rpc import RemoveVoterRequest
from tests.unit.raft.cluster import CLUSTER_ID, Cluster, key


def led(seed: int) -> tuple[Cluster, int]:
    cluster = Cluster(seed, [1, 2, 3])
    cluster.start()
    assert cluster.run_until(lambda: is_led(cluster), 10_000)
    cluster.run(3000 + seed * 37)
    leader = cluster.leader()
    assert leader is not None
    return cluster, leader.id


def is_led(cluster: Cluster, but: int = 0) -> bool:
    return any(one.id != but and one.quorum is not None and one.quorum.is_leading for one in cluster.members.values())


@pytest.mark.parametrize("seed", range(12))
def test_a_new_quorum_has_a_leader_within_two_seconds(seed: int) -> None:
    cluster = Cluster(seed, [1, 2, 3])
    cluster.start()
    assert cluster.run_until(lambda: is_led(cluster), 2000)


@pytest.mark.parametrize("seed", range(12))
def test_a_dead_leader_is_replaced_within_half_a_second(seed: int) -> None:
    """Its connections break, so nobody waits for a timeout."""
    cluster, leader = led(seed)
    cluster.crash(leader)
    assert cluster.run_until(lambda: is_led(cluster, leader), 500)


@pytest.mark.parametrize("seed", range(12))
def test_a_hung_leader_is_replaced_within_three_seconds(seed: int) -> None:
    cluster, leader = led(seed)
    cluster.members[leader].paused_until_ms = cluster.now_ms + 60_000
    assert cluster.run_until(lambda: is_led(cluster, leader), 3000)


@pytest.mark.parametrize("seed", range(12))
def test_a_leader_that_stops_hands_over_within_a_fifth_of_a_second(seed: int) -> None:
    cluster, leader = led(seed)
    cluster.call(leader, lambda quorum: quorum.shut_down(cluster.now_ms))
    assert cluster.run_until(lambda: is_led(cluster, leader), 200)
    stopping = cluster.members[leader].quorum
    assert stopping is not None
    assert cluster.run_until(lambda: stopping.may_stop, 200)
    cluster.crash(leader)
    epoch = stopping.epoch
    cluster.run(5000)
    assert {one.quorum.epoch for one in cluster.members.values() if one.quorum} == {epoch}


@pytest.mark.parametrize("seed", range(6))
def test_a_leader_that_stops_does_not_wait_for_those_who_are_gone(seed: int) -> None:
    cluster, leader = led(seed)
    for other in set(cluster.members) - {leader}:
        cluster.crash(other)
    stopping = cluster.members[leader].quorum
    assert stopping is not None
    cluster.call(leader, lambda quorum: quorum.shut_down(cluster.now_ms))
    assert not stopping.may_stop
    assert cluster.run_until(lambda: stopping.may_stop, 200)


@pytest.mark.parametrize("seed", range(6))
def test_a_broken_connection_to_a_living_leader_changes_nothing(seed: int) -> None:
    cluster, leader = led(seed)
    follower = next(one for one in cluster.members.values() if one.id != leader)
    assert follower.quorum is not None
    epoch = follower.quorum.epoch
    for _ in range(20):
        cluster.break_connections(follower.id, leader)
        cluster.run(10)
    cluster.run(5000)
    assert follower.quorum.role is Role.FOLLOWER
    assert (follower.quorum.epoch, follower.quorum.leader_id) == (epoch, leader)


@pytest.mark.parametrize("restarts", [True, False], ids=["crashed", "cut off"])
@pytest.mark.parametrize("seed", range(6))
def test_who_was_removed_stands_until_its_removal_is_committed(seed: int, restarts: bool) -> None:
    """Raft (Ongaro's thesis) 4.2.2: it may be the only one with a log that can win, and does not count its own vote."""
    cluster = Cluster(seed, [1, 2])
    cluster.start()
    assert cluster.run_until(lambda: is_led(cluster), 10_000)
    cluster.run(3000)
    leader = cluster.leader()
    assert leader is not None
    other = cluster.members[3 - leader.id]
    assert other.quorum is not None
    cluster.isolate(leader.id)
    cluster.ask(leader.id, RemoveVoterRequest(CLUSTER_ID, key(leader.id)))
    cluster.run(100)
    if restarts:
        cluster.crash(leader.id, lambda count: count)
        cluster.start(leader.id)
    cluster.run(5000)
    assert not is_led(cluster)
    cluster.heal()
    assert cluster.run_until(lambda: is_led(cluster, leader.id), 10_000)
    assert other.quorum.voters.ids == [other.id]
    epoch = other.quorum.epoch
    cluster.run(10_000)
    assert other.quorum.is_leading
    assert other.quorum.epoch == epoch
