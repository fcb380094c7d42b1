"""What `cluster health` makes of a cluster's state."""

from dataclasses import replace

from penstock.cli.cluster_health import health_report
from penstock.cli.cluster_state import ClusterState, NodeState, PartitionState, QuorumState

GOOD = ClusterState(
    "id",
    {number: NodeState(number, "h", 9092, None) for number in (1, 2, 3)},
    {("t", 0): PartitionState(1, (1, 2, 3), (1, 2, 3), min_isr=2)},
    QuorumState(1, 4, 100, {1: 0, 2: 0, 3: 1}, {}),
)


def with_partition(partition: PartitionState) -> ClusterState:
    return replace(GOOD, partitions={("t", 0): partition})


def test_a_cluster_without_problems_is_healthy() -> None:
    report = health_report(GOOD)
    assert report["healthy"]
    assert report["problems"] == []
    assert report["controller"] == 1


def test_no_controller_is_a_problem_with_its_reason() -> None:
    report = health_report(replace(GOOD, quorum=None, quorum_problem="nobody leads"))
    assert not report["healthy"]
    assert "no controller: nobody leads" in report["problems"][0]
    assert report["controller"] is None


def test_a_silent_voter_is_a_problem() -> None:
    quorum = QuorumState(1, 4, 100, {1: 0, 2: 0, 3: 50}, {}, silent_voters=(3,))
    assert "silent in the quorum: node 3" in health_report(replace(GOOD, quorum=quorum))["problems"][0]


def test_a_fenced_broker_is_a_problem() -> None:
    nodes = GOOD.nodes | {3: NodeState(3, "h", 9092, None, is_fenced=True)}
    report = health_report(replace(GOOD, nodes=nodes))
    assert report["fenced_nodes"] == [3]
    assert not report["healthy"]


def test_partitions_are_counted_by_what_is_wrong_with_them() -> None:
    report = health_report(with_partition(PartitionState(None, (1, 2, 3), (2,), min_isr=2)))
    assert (report["offline"], report["under_min_isr"], report["under_replicated"]) == (1, 1, 1)
    assert len(report["problems"]) == 3
    assert all("t-0" in problem for problem in report["problems"])


def test_a_replica_that_is_only_arriving_is_not_missed() -> None:
    report = health_report(with_partition(PartitionState(1, (1, 2, 3), (1, 2), adding=(3,), min_isr=2)))
    assert report["healthy"]
    assert report["moving"] == 1
