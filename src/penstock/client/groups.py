"""Consumer groups as anybody may see them: which there are, and what they have committed."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.client.cluster import ClientConfig, Cluster
from penstock.client.connection import FIND_COORDINATOR, LIST_GROUPS, OFFSET_FETCH, code_of
from penstock.client.errors import ClientError, Refusal
from penstock.protocol.messages import Struct

_GROUP_KEY = 0


class Group(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str
    coordinator_id: int


def list_groups(cluster: Cluster) -> list[Group]:
    def attempt() -> list[Group]:
        cluster.refresh([])
        found = []
        for node_id, address in cluster.nodes.items():
            answer = cluster.ask(address, LIST_GROUPS, Struct(states_filter=[], types_filter=[]))
            _check(code_of(answer.error_code), "the list of groups")
            for group in answer.groups:
                state = str(getattr(group, "group_state", ""))
                kind = str(getattr(group, "group_type", ""))
                found.append(Group(str(group.group_id), str(group.protocol_type), state, kind, node_id))
        return sorted(found)

    return cluster.patiently(attempt, "listing groups")


def offsets_of_groups(config: ClientConfig, group_ids: Iterable[str]) -> dict[str, dict[tuple[str, int], int]]:
    """What each group has committed, by its id; without those that cannot be told now. Several coordinators that do not
    answer are waited for no longer than one request, or two, may take."""
    found = {}
    deadline_s = time.monotonic() + config.request_timeout_ms / 1000
    with Cluster(config._replace(patience_ms=0)) as cluster:
        for group_id in group_ids:
            if time.monotonic() > deadline_s:
                break
            try:
                found[group_id] = committed_offsets(cluster, group_id)
            except ClientError:
                continue
    return found


def committed_offsets(cluster: Cluster, group_id: str) -> dict[tuple[str, int], int]:
    """Of all topics and partitions that the group has committed.

    librdkafka's AdminClient can be asked the same, but it takes the whole process with it when the group has just moved
    to another coordinator (2.16: `rd_kafka_handle_OffsetFetch` takes every client for a member of a group).
    """

    def attempt() -> dict[tuple[str, int], int]:
        asked = Struct(key_type=_GROUP_KEY, key=group_id, coordinator_keys=[group_id])
        coordinator = cluster.ask_any(FIND_COORDINATOR, asked).coordinators[0]
        _check(code_of(coordinator.error_code), f"the coordinator of group {group_id}")
        address = (str(coordinator.host), int(coordinator.port))
        group = Struct(group_id=group_id, topics=None)
        (answer,) = cluster.ask(address, OFFSET_FETCH, Struct(groups=[group], require_stable=False)).groups
        _check(code_of(answer.error_code), f"the offsets of group {group_id}")
        return {
            (str(topic.name), int(each.partition_index)): int(each.committed_offset)
            for topic in answer.topics
            for each in topic.partitions
            if code_of(each.error_code) == ErrorCode.none and each.committed_offset >= 0
        }

    return cluster.patiently(attempt, f"asking for the offsets of group {group_id}")


def _check(code: ErrorCode, what: str) -> None:
    if code != ErrorCode.none:
        raise Refusal(code, what)
