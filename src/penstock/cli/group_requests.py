"""Groups as their coordinators tell of them, over the wire: librdkafka's AdminClient knows neither epochs nor all the
states of the new protocol, and drops the line in which a broker says why it put a member out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cli.connection import Cluster
from penstock.cli.coordinators import GROUP, coordinator_of, settled
from penstock.cli.failures import Failed
from penstock.cli.wire import request
from penstock.client import cluster as client
from penstock.client import groups
from penstock.client.errors import ClientError
from penstock.coordinator.group.embedded_protocol import MalformedProtocol, read_assignment
from penstock.protocol.messages import Struct

DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION = 15, 6
LIST_GROUPS, LIST_GROUPS_VERSION = 16, 5
CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_DESCRIBE_VERSION = 69, 0


@dataclass(frozen=True)
class ListedGroup:
    name: str
    type: str
    state: str
    # `consumer`; `connect` and others have groups too; empty where somebody only keeps offsets.
    protocol_type: str


@dataclass(frozen=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    # Only the new protocol has one for each member.
    epoch: int | None
    # By topic name.
    assignment: dict[str, list[int]]


@dataclass(frozen=True)
class DescribedGroup:
    name: str
    type: str
    state: str
    assignor: str | None
    # Kafka tells nobody the generation of a classic group.
    epoch: int | None
    coordinator: dict[str, Any]
    members: list[Member]
    last_eviction: str | None


def list_groups(cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """Of all nodes, by name. An empty filter lets everything through."""
    body = Struct(states_filter=list(states), types_filter=list(types))

    def ask(address: tuple[str, int]) -> Any:
        answer = request(cluster, address, LIST_GROUPS, LIST_GROUPS_VERSION, body)
        return answer, answer.error_code, None

    found = {}
    for address in cluster.nodes().values():
        for group in settled(lambda address=address: ask(address)).groups:  # type: ignore[misc]
            listed = ListedGroup(group.group_id, group.group_type.lower(), group.group_state, group.protocol_type)
            found[listed.name] = listed
    return [found[name] for name in sorted(found)]


def describe_group(cluster: Cluster, name: str) -> DescribedGroup | None:
    """None where there is no such group."""
    coordinator = coordinator_of(cluster, GROUP, name)
    address = (coordinator["host"], coordinator["port"])

    def ask(api_key: int, version: int, body: Struct) -> Any:
        (group,) = request(cluster, address, api_key, version, body).groups
        is_found = group.error_code != ErrorCode.group_id_not_found
        return (group, group.error_code, group.error_message) if is_found else (None, ErrorCode.none, None)

    body = Struct(group_ids=[name], include_authorized_operations=False)
    group = settled(lambda: ask(CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_DESCRIBE_VERSION, body))
    if group is not None:
        return _described_consumer(group, coordinator)
    body = Struct(groups=[name], include_authorized_operations=False)
    group = settled(lambda: ask(DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, body))
    return None if group is None else _described_classic(group, coordinator)


def committed_offsets(cluster: Cluster, name: str) -> dict[tuple[str, int], int]:
    """By topic and partition."""
    try:
        with client.Cluster(cluster.client_config) as asking:
            return groups.committed_offsets(asking, name)
    except ClientError as problem:
        raise Failed(str(problem)) from problem


def _described_consumer(group: Any, coordinator: dict[str, Any]) -> DescribedGroup:
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            member.member_epoch,
            {topic.topic_name: sorted(topic.partitions) for topic in member.assignment.topic_partitions},
        )
        for member in group.members
    ]
    return DescribedGroup(
        group.group_id,
        "consumer",
        group.group_state,
        group.assignor_name or None,
        group.group_epoch,
        coordinator,
        _in_order(members),
        group.error_message or None,
    )


def _described_classic(group: Any, coordinator: dict[str, Any]) -> DescribedGroup:
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            None,
            _assignment(member.member_assignment) if group.protocol_type == "consumer" else {},
        )
        for member in group.members
    ]
    return DescribedGroup(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_data or None,
        None,
        coordinator,
        _in_order(members),
        group.error_message or None,
    )


def _in_order(members: Iterable[Member]) -> list[Member]:
    return sorted(members, key=lambda member: (member.client_id, member.member_id))


def _assignment(data: bytes) -> dict[str, list[int]]:
    try:
        partitions = read_assignment(data).partitions
    except MalformedProtocol:
        # A client of its own making: the rest of the group is worth showing.
        return {}
    return {topic: sorted(numbers) for topic, numbers in sorted(partitions.items())}
