"""Groups: coordinators, offsets, the classic protocol, the consumer protocol (KIP-848)."""

import uuid
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from tests.conformance.cases.registry import case
from tests.conformance.cluster import Cluster, versions_of
from tests.conformance.normalise import plain
from tests.conformance.wire import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from tests.e2e.node import wait_until

UNKNOWN_ID = uuid.UUID(int=0xABCDEF)
NO_MEMBER_VERSIONS = range(4)


def commit_of(
    group: str,
    topic: str,
    offsets: dict[int, int],
    *,
    topic_id: uuid.UUID | None = None,
    member: tuple[str, int] = ("", -1),
    metadata: str | None = "note",
) -> Struct:
    """`member` is (member id, generation or member epoch)."""
    partitions = [
        Struct(partition_index=index, committed_offset=offset, committed_leader_epoch=0, committed_metadata=metadata)
        for index, offset in offsets.items()
    ]
    return Struct(
        group_id=group,
        generation_id_or_member_epoch=member[1],
        member_id=member[0],
        retention_time=-1,
        topics=[Struct(name=topic, topic_id=topic_id, partitions=partitions)],
    )


def offsets_of(
    group: str, topic: str, indexes: list[int] | None, topic_id: uuid.UUID | None = None, *, stable: bool = False
) -> Struct:
    """With no indexes: all that is committed."""
    topics = None if indexes is None else [Struct(name=topic, topic_id=topic_id, partition_indexes=indexes)]
    return Struct(group_id=group, topics=topics, groups=[Struct(group_id=group, topics=topics)], require_stable=stable)


def ready(cluster: Cluster) -> Cluster:
    """Kafka makes the topic of groups when it is first asked, and loads it a moment later."""

    def is_loaded() -> bool:
        found = cluster.wire.ask(FIND_COORDINATOR, 3, Struct(key="probe"))
        if found.error_code != 0:
            return False
        fetched = cluster.wire.ask(OFFSET_FETCH, 7, offsets_of("probe", "", None))
        return bool(fetched.error_code == 0)

    wait_until(is_loaded, "the coordinator has loaded")
    return cluster


@case
def find_coordinator_in_every_version(cluster: Cluster) -> Any:
    ready(cluster)
    return [
        cluster.ask_all_versions(FIND_COORDINATOR, Struct(key=key, key_type=0, coordinator_keys=[key]))
        for key in ("some-group", "")
    ]


@case
def find_coordinator_of_types_that_do_not_exist(cluster: Cluster) -> Any:
    ready(cluster)
    return [
        cluster.ask(FIND_COORDINATOR, version, Struct(key="g", key_type=key_type, coordinator_keys=["g"]))
        for version in (1, 4, 6)
        for key_type in (3, 77, -1)
    ]


@case
def offsets_committed_without_members(cluster: Cluster) -> Any:
    ready(cluster)
    topic_id = cluster.topic("commits", 2)
    answers = []
    for version in versions_of(OFFSET_COMMIT):
        group = f"commits-{version}"
        body = commit_of(group, "commits", {0: 5, 1: 7}, topic_id=topic_id)
        answers.append(cluster.ask(OFFSET_COMMIT, version, body))
        answers.append(cluster.ask_all_versions(OFFSET_FETCH, offsets_of(group, "commits", [0, 1], topic_id)))
        answers.append(cluster.ask_all_versions(OFFSET_FETCH, offsets_of(group, "commits", None), first=2))
    return answers


@case
def offsets_committed_in_odd_ways(cluster: Cluster) -> Any:
    ready(cluster)
    topic_id = cluster.topic("odd-commits")
    answers: dict[str, Any] = {}
    for name, body in {
        "unknown topic": commit_of("odd-a", "odd-nowhere", {0: 1}, topic_id=UNKNOWN_ID),
        "unknown partition": commit_of("odd-a", "odd-commits", {7: 1, -1: 1}, topic_id=topic_id),
        "negative offset": commit_of("odd-a", "odd-commits", {0: -1}, topic_id=topic_id),
        "no metadata": commit_of("odd-a", "odd-commits", {0: 1}, topic_id=topic_id, metadata=None),
        "long metadata": commit_of("odd-a", "odd-commits", {0: 1}, topic_id=topic_id, metadata="x" * 5000),
        "empty group": commit_of("", "odd-commits", {0: 1}, topic_id=topic_id),
        "unknown member": commit_of("odd-b", "odd-commits", {0: 1}, topic_id=topic_id, member=("nobody", 3)),
        "generation without a group": commit_of("odd-c", "odd-commits", {0: 1}, topic_id=topic_id, member=("", 3)),
        "bad topic name": commit_of("odd-a", "..", {0: 1}, topic_id=None),
    }.items():
        answers[name] = cluster.ask_all_versions(OFFSET_COMMIT, body)
    return [answers, cluster.ask(OFFSET_FETCH, 9, offsets_of("odd-a", "", None))]


@case
def offsets_fetched_of_what_is_unknown(cluster: Cluster) -> Any:
    ready(cluster)
    topic_id = cluster.topic("fetched")
    return [
        cluster.ask_all_versions(OFFSET_FETCH, offsets_of("nobodys", "fetched", [0, 9], topic_id)),
        cluster.ask_all_versions(OFFSET_FETCH, offsets_of("nobodys", "fetched-nowhere", [0], UNKNOWN_ID)),
        cluster.ask_all_versions(OFFSET_FETCH, offsets_of("nobodys", "fetched", None), first=2),
        cluster.ask_all_versions(OFFSET_FETCH, offsets_of("", "fetched", [0], topic_id)),
        cluster.ask_all_versions(OFFSET_FETCH, offsets_of("nobodys", "fetched", [0], topic_id, stable=True), first=7),
        cluster.ask(OFFSET_FETCH, 8, Struct(groups=[])),
    ]


def join_of(group: str, member_id: str = "", **changes: Any) -> Struct:
    body = Struct(
        group_id=group,
        session_timeout=10_000,
        rebalance_timeout=10_000,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[Struct(name="range", metadata=b"meta")],
        reason="test",
    )
    body.__dict__.update(changes)
    return body


@case
def join_group_refused(cluster: Cluster) -> Any:
    ready(cluster)
    answers: dict[str, Any] = {}
    for name, body in {
        "too short a session": join_of("join-a", session_timeout=1),
        "too long a session": join_of("join-a", session_timeout=10**9),
        "empty group": join_of(""),
        "unknown member": join_of("join-a", "nobody"),
        "no protocols": join_of("join-a", protocols=[]),
        "no protocol type": join_of("join-a", protocol_type=""),
    }.items():
        answers[name] = cluster.ask_all_versions(JOIN_GROUP, body)
    return answers


@case
def a_classic_group_from_its_first_member_to_its_last(cluster: Cluster) -> Any:
    """Version 4 and later make a new member come back with the id it is given (KIP-394)."""
    ready(cluster)
    topic_id = cluster.topic("classic-topic", 2)
    answers: list[Any] = []

    def ask(api_key: int, version: int, body: Struct) -> Any:
        raw = cluster.ask_raw(api_key, version, body)
        answers.append(plain(raw, cluster.topic_names))
        return raw

    for join, sync, beat, leave, commit in [(0, 0, 0, 0, 2), (3, 2, 2, 2, 6), (5, 3, 3, 3, 8), (9, 5, 4, 5, 9)]:
        group = f"classic-{join}"
        joined = ask(JOIN_GROUP, join, join_of(group))
        if joined.error_code == ErrorCode.member_id_required:
            joined = ask(JOIN_GROUP, join, join_of(group, joined.member_id))
        me, generation = joined.member_id, joined.generation_id
        naming = {"group_id": group, "generation_id": generation, "member_id": me}
        typed = {"protocol_type": "consumer", "protocol_name": "range"}
        ask(HEARTBEAT, beat, Struct(**naming))
        ask(SYNC_GROUP, sync, Struct(**naming, **typed, assignments=[Struct(member_id=me, assignment=b"mine")]))
        ask(SYNC_GROUP, sync, Struct(**naming, **typed, assignments=[]))
        ask(HEARTBEAT, beat, Struct(**naming))
        for member in ((me, generation), (me, generation + 1), ("nobody", generation), ("", -1)):
            body = commit_of(group, "classic-topic", {0: 3}, topic_id=topic_id, member=member)
            ask(OFFSET_COMMIT, commit, body)
        ask(HEARTBEAT, beat, Struct(group_id=group, generation_id=generation + 1, member_id=me))
        ask(HEARTBEAT, beat, Struct(group_id=group, generation_id=generation, member_id="nobody"))
        ask(SYNC_GROUP, sync, Struct(group_id=group, generation_id=99, member_id=me, **typed, assignments=[]))
        for version in (0, 4, 6):
            ask(DESCRIBE_GROUPS, version, Struct(groups=[group], include_authorized_operations=version == 4))
        ask(DELETE_GROUPS, 2, Struct(groups_names=[group]))
        ask(LEAVE_GROUP, leave, Struct(group_id=group, member_id="nobody", members=[Struct(member_id="nobody")]))
        ask(LEAVE_GROUP, leave, Struct(group_id=group, member_id=me, members=[Struct(member_id=me, reason="bye")]))
        ask(HEARTBEAT, beat, Struct(**naming))
        ask(DESCRIBE_GROUPS, 5, Struct(groups=[group]))
        ask(OFFSET_FETCH, 7, offsets_of(group, "classic-topic", [0, 1]))
        topics = [Struct(name="classic-topic", partitions=[Struct(partition_index=0), Struct(partition_index=9)])]
        ask(OFFSET_DELETE, 0, Struct(group_id=group, topics=topics))
        ask(OFFSET_FETCH, 7, offsets_of(group, "classic-topic", None))
        ask(DELETE_GROUPS, 2, Struct(groups_names=[group]))
        ask(DESCRIBE_GROUPS, 5, Struct(groups=[group]))
    return answers


@case
def a_static_member_comes_back(cluster: Cluster) -> Any:
    """KIP-345."""
    ready(cluster)
    answers: list[Any] = []

    def ask(api_key: int, version: int, body: Struct) -> Any:
        raw = cluster.ask_raw(api_key, version, body)
        answers.append(plain(raw, cluster.topic_names))
        return raw

    first = ask(JOIN_GROUP, 9, join_of("static", group_instance_id="one"))
    naming = {"group_id": "static", "generation_id": first.generation_id, "group_instance_id": "one"}
    typed = {"protocol_type": "consumer", "protocol_name": "range"}
    assignments = [Struct(member_id=first.member_id, assignment=b"mine")]
    ask(SYNC_GROUP, 5, Struct(**naming, **typed, member_id=first.member_id, assignments=assignments))
    again = ask(JOIN_GROUP, 9, join_of("static", group_instance_id="one"))
    ask(SYNC_GROUP, 5, Struct(**naming, **typed, member_id=first.member_id, assignments=[]))
    ask(SYNC_GROUP, 5, Struct(**naming, **typed, member_id=again.member_id, assignments=[]))
    ask(HEARTBEAT, 4, Struct(**naming, member_id=first.member_id))
    ask(HEARTBEAT, 4, Struct(**naming, member_id=again.member_id))
    ask(JOIN_GROUP, 9, join_of("static", first.member_id, group_instance_id="one"))
    ask(LEAVE_GROUP, 5, Struct(group_id="static", members=[Struct(member_id="", group_instance_id="two")]))
    ask(LEAVE_GROUP, 5, Struct(group_id="static", members=[Struct(member_id="", group_instance_id="one")]))
    ask(DESCRIBE_GROUPS, 5, Struct(groups=["static"]))
    return answers


@case
def members_of_groups_that_do_not_exist(cluster: Cluster) -> Any:
    ready(cluster)
    answers: dict[str, Any] = {}
    for group in ("phantom", ""):
        naming = {"group_id": group, "generation_id": 1, "member_id": "nobody"}
        typed = {"protocol_type": "consumer", "protocol_name": "range"}
        answers[f"heartbeat {group}"] = cluster.ask_all_versions(HEARTBEAT, Struct(**naming))
        answers[f"sync {group}"] = cluster.ask_all_versions(SYNC_GROUP, Struct(**naming, **typed))
        leaving = Struct(group_id=group, member_id="nobody", members=[Struct(member_id="nobody")])
        answers[f"leave {group}"] = cluster.ask_all_versions(LEAVE_GROUP, leaving)
        answers[f"describe {group}"] = cluster.ask_all_versions(DESCRIBE_GROUPS, Struct(groups=[group]))
        answers[f"delete {group}"] = cluster.ask_all_versions(DELETE_GROUPS, Struct(groups_names=[group]))
        topics = [Struct(name="t", partitions=[Struct(partition_index=0)])]
        answers[f"offsets {group}"] = cluster.ask(OFFSET_DELETE, 0, Struct(group_id=group, topics=topics))
        described = Struct(group_ids=[group])
        answers[f"consumer describe {group}"] = cluster.ask_all_versions(CONSUMER_GROUP_DESCRIBE, described)
    return answers


@case
def list_groups_by_state_and_type(cluster: Cluster) -> Any:
    """Only whether the two groups made here are among them: all cases share the brokers."""
    ready(cluster)
    topic_id = cluster.topic("listing")
    for group in ("listing-a", "listing-b"):
        cluster.ask(OFFSET_COMMIT, 9, commit_of(group, "listing", {0: 1}, topic_id=topic_id))
    answers: dict[str, Any] = {}
    for states in ([], ["Empty"], ["Stable"], ["empty"], ["Nonsense"]):
        for types in ([], ["classic"], ["Classic"], ["consumer"], ["nonsense"]):
            for version in (0, 4, 5):
                raw = cluster.ask_raw(LIST_GROUPS, version, Struct(states_filter=states, types_filter=types))
                groups = sorted((plain(one, {}) for one in raw.groups), key=lambda one: str(one["group_id"]))
                found = [one for one in groups if one["group_id"].startswith("listing-")]
                answers[f"v{version} {states} {types}"] = [raw.error_code.name, found]
    return answers


def beat_of(group: str, member_id: str, epoch: int, **fields: Any) -> Struct:
    return Struct(group_id=group, member_id=member_id, member_epoch=epoch, **fields)


@case
def consumer_group_heartbeats_refused(cluster: Cluster) -> Any:
    ready(cluster)
    cluster.topic("next-topic")
    joining = {"rebalance_timeout": 5000, "subscribed_topic_names": ["next-topic"], "topic_partitions": []}
    answers: dict[str, Any] = {}
    for name, body in {
        "empty group": beat_of("", "m", 0, **joining),
        "no member id": beat_of("next-a", "", 0, **joining),
        "unknown member": beat_of("next-a", "m", 3),
        "unknown leaves": beat_of("next-a", "m", -1),
        "odd epoch": beat_of("next-a", "m", -5, **joining),
        "static leaves without an id": beat_of("next-a", "m", -2),
        "no timeout": beat_of("next-a", "m", 0, **{**joining, "rebalance_timeout": -1}),
        "no subscription": beat_of("next-a", "m", 0, rebalance_timeout=5000, topic_partitions=[]),
        "owns without being": beat_of(
            "next-a", "m", 0, **{**joining, "topic_partitions": [Struct(topic_id=UNKNOWN_ID, partitions=[0])]}
        ),
        "empty instance": beat_of("next-a", "m", 0, **joining, instance_id=""),
        "empty rack": beat_of("next-a", "m", 0, **joining, rack_id=""),
        "unknown assignor": beat_of("next-a", "m", 0, **joining, server_assignor="nonsense"),
    }.items():
        answers[name] = cluster.ask_all_versions(CONSUMER_GROUP_HEARTBEAT, body)
    return answers


@case
def a_consumer_group_of_one_and_two(cluster: Cluster) -> Any:
    """KIP-848: epochs, assignments and the taking over of partitions."""
    ready(cluster)
    topic_id = cluster.topic("duo", 2)
    answers: list[Any] = []

    def beat(member_id: str, epoch: int, **fields: Any) -> Any:
        raw = cluster.ask_raw(CONSUMER_GROUP_HEARTBEAT, 1, beat_of("duo", member_id, epoch, **fields))
        answers.append(plain(raw, cluster.topic_names))
        return raw

    joining = {"rebalance_timeout": 5000, "subscribed_topic_names": ["duo"], "topic_partitions": []}
    both = [Struct(topic_id=topic_id, partitions=[0, 1])]
    epoch = beat("first", 0, **joining).member_epoch
    beat("first", epoch, topic_partitions=both)
    beat("first", epoch)
    answers.append(cluster.ask_all_versions(CONSUMER_GROUP_DESCRIBE, Struct(group_ids=["duo"])))
    for member in (("first", epoch), ("first", epoch + 7), ("nobody", epoch)):
        body = commit_of("duo", "duo", {0: 3}, topic_id=topic_id, member=member)
        answers.append(cluster.ask_all_versions(OFFSET_COMMIT, body, first=9))
    beat("first", epoch + 7)
    beat("second", 0, **joining)
    answers.append(cluster.ask(DESCRIBE_GROUPS, 6, Struct(groups=["duo"])))
    answers.append(cluster.ask(DELETE_GROUPS, 2, Struct(groups_names=["duo"])))
    answers.append(cluster.ask(JOIN_GROUP, 9, join_of("duo", protocol_type="other")))
    beat("second", -1)
    beat("first", -1)
    beat("first", epoch)
    answers.append(cluster.ask(CONSUMER_GROUP_DESCRIBE, 1, Struct(group_ids=["duo"])))
    answers.append(cluster.ask(OFFSET_FETCH, 9, offsets_of("duo", "", None)))
    answers.append(cluster.ask(DELETE_GROUPS, 2, Struct(groups_names=["duo"])))
    return answers
