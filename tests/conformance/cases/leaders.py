"""What an administrator asks of leaders, replicas, brokers and features, on a cluster of one."""

from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cases.registry import case
from tests.conformance.cluster import Cluster
from tests.conformance.wire import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
)

PREFERRED, UNCLEAN = 0, 1
TIMEOUT = 10_000
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@case
def elect_leaders_that_are_there(cluster: Cluster) -> Any:
    cluster.topic("elected", 2)
    asked = [Struct(topic="elected", partitions=[0, 1, 9]), Struct(topic="nowhere", partitions=[0])]
    return [
        cluster.ask_all_versions(
            ELECT_LEADERS, Struct(election_type=kind, topic_partitions=topics, timeout=TIMEOUT), first=first
        )
        for kind, first in ((PREFERRED, 0), (UNCLEAN, 1))
        for topics in (asked, [])
    ]


@case
def reassign_partitions_in_odd_ways(cluster: Cluster) -> Any:
    cluster.topic("reassigned", 2)

    def ask(name: str, *partitions: tuple[int, list[int] | None], allow: bool = True) -> Any:
        wanted = [Struct(partition_index=index, replicas=replicas) for index, replicas in partitions]
        body = Struct(
            topics=[Struct(name=name, partitions=wanted)], timeout=TIMEOUT, allow_replication_factor_change=allow
        )
        return cluster.ask_all_versions(ALTER_PARTITION_REASSIGNMENTS, body)

    return [
        ask("reassigned", (0, [1]), (1, [1])),
        ask("reassigned", (0, None)),
        ask("reassigned", (0, []), (1, [1, 1])),
        ask("reassigned", (0, [77]), (9, [1])),
        ask("reassigned", (0, [1]), allow=False),
        ask("nowhere", (0, [1])),
        ask("nowhere", (0, None)),
        ask("reassigned"),
    ]


@case
def list_reassignments_when_there_are_none(cluster: Cluster) -> Any:
    cluster.topic("unmoved")
    asked = [
        None,
        [],
        [Struct(name="unmoved", partition_indexes=[0, 5])],
        [Struct(name="nowhere", partition_indexes=[0])],
    ]
    return [
        cluster.ask_all_versions(LIST_PARTITION_REASSIGNMENTS, Struct(topics=topics, timeout=TIMEOUT))
        for topics in asked
    ]


@case
def unregister_brokers_that_are_not_there(cluster: Cluster) -> Any:
    return [cluster.ask_all_versions(UNREGISTER_BROKER, Struct(broker_id=broker_id)) for broker_id in (99, -1)]


@case
def update_features_in_odd_ways(cluster: Cluster) -> Any:
    def ask(*updates: tuple[str, int, int]) -> Any:
        asked = [
            Struct(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UPGRADE)
            for name, level, kind in updates
        ]
        return cluster.ask_all_versions(
            UPDATE_FEATURES, Struct(feature_updates=asked, timeout=TIMEOUT, validate_only=True), first=1
        )

    return [
        ask(("nonsense", 1, UPGRADE)),
        ask(("metadata.version", 999, UPGRADE)),
        ask(("metadata.version", 30, UPGRADE)),
        ask(("eligible.leader.replicas.version", 1, UPGRADE)),
        ask(("eligible.leader.replicas.version", 0, UPGRADE)),
        ask(("eligible.leader.replicas.version", 2, UPGRADE)),
        ask(("eligible.leader.replicas.version", 1, SAFE_DOWNGRADE)),
        ask(("eligible.leader.replicas.version", 0, SAFE_DOWNGRADE)),
        ask(("eligible.leader.replicas.version", -1, UPGRADE)),
        ask(("eligible.leader.replicas.version", 1, 9)),
        ask(),
    ]
