"""Consumer groups as anybody may see them: which there are, and what they have committed."""

from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.client.cluster import Cluster, TopicPartition
from penstock.client.connection import FIND_COORDINATOR, LIST_GROUPS, OFFSET_FETCH, code_of
from penstock.client.errors import Refusal
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


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    """Of all partitions that the group has committed."""

    def attempt() -> dict[TopicPartition, int]:
        asked = Struct(key_type=_GROUP_KEY, key=group_id, coordinator_keys=[group_id])
        coordinator = cluster.ask_any(FIND_COORDINATOR, asked).coordinators[0]
        _check(code_of(coordinator.error_code), f"the coordinator of group {group_id}")
        address = (str(coordinator.host), int(coordinator.port))
        group = Struct(group_id=group_id, topics=None)
        (answer,) = cluster.ask(address, OFFSET_FETCH, Struct(groups=[group], require_stable=False)).groups
        _check(code_of(answer.error_code), f"the offsets of group {group_id}")
        return {
            TopicPartition(str(topic.name), int(each.partition_index)): int(each.committed_offset)
            for topic in answer.topics
            for each in topic.partitions
            if code_of(each.error_code) == ErrorCode.none and each.committed_offset >= 0
        }

    return cluster.patiently(attempt, f"asking for the offsets of group {group_id}")


def _check(code: ErrorCode, what: str) -> None:
    if code != ErrorCode.none:
        raise Refusal(code, what)
