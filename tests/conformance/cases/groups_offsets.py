"""OffsetCommit, OffsetFetch, OffsetDelete: with and without members, by name and by topic id."""

import uuid
from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cases.group_requests import (
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    MANY_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    Groups,
    assignment,
    commit_of,
    delete_offsets_of,
    fetch_offsets_of,
    first_report_of,
    subscription,
)
from tests.conformance.cases.groups import LONG_ID, NOBODY, group_case, listed, settled
from tests.conformance.cluster import versions_of
from tests.conformance.wire import DELETE_TOPICS
from tests.e2e.node import wait_until

UNKNOWN_ID = uuid.UUID(int=0xABCDEF)


@group_case
def commits_of_nobody_in_particular(groups: Groups) -> Any:
    """Without members: offsets are only kept, by anyone who says so."""
    topic_id = groups.prepare("plain-commits", 3)
    answers = []
    for version in versions_of(OFFSET_COMMIT):
        group_id = f"plain-{version}"
        everything = fetch_offsets_of(group_id)
        body = commit_of(group_id, "plain-commits", [(0, 10), (2, 0)], topic_id=topic_id, leader_epoch=0)
        answers.append(groups.ask(OFFSET_COMMIT, version, body))
        body = commit_of(group_id, "plain-commits", [(0, 5)], topic_id=topic_id, metadata="note", retention_ms=1000)
        answers.append(groups.ask(OFFSET_COMMIT, version, body))
        body = commit_of(group_id, "plain-commits", [(1, 2**62)], topic_id=topic_id, metadata=None)
        answers.append(groups.ask(OFFSET_COMMIT, version, body))
        answers.append(groups.ask_all_versions(OFFSET_FETCH, everything, first=2))
        answers.append(groups.ask(DESCRIBE_GROUPS, 6, Struct(groups=[group_id])))
        answers.append(listed(groups, group_id))
        answers.append(groups.ask(DELETE_GROUPS, 2, Struct(groups_names=[group_id])))
        answers.append(groups.ask_all_versions(OFFSET_FETCH, everything, first=2))
    return answers


@group_case
def commits_with_bad_input(groups: Groups) -> Any:
    topic_id = groups.prepare("bad-commits", 2)
    known: dict[str, Any] = {"topic": "bad-commits", "topic_id": topic_id}
    bodies = {
        "no group": commit_of("", offsets=[(0, 1)], **known),
        "a generation and no group": commit_of("bad-nobody", offsets=[(0, 1)], member=(NOBODY, 5), **known),
        "a generation and nobody": commit_of("bad-nobody", offsets=[(0, 1)], member=("", 5), **known),
        "a member without generation": commit_of("bad-nobody", offsets=[(0, 1)], member=(NOBODY, -1), **known),
        "an instance": commit_of("bad-nobody", offsets=[(0, 1)], instance_id="i", **known),
        "unknown topic": commit_of("bad-1", "bad-unknown", [(0, 1)], topic_id=UNKNOWN_ID),
        "no topic": commit_of("bad-1", "", [(0, 1)]),
        "unknown partitions": commit_of("bad-1", offsets=[(2, 1), (0, 1), (-1, 1), (10**9, 1)], **known),
        "a partition twice": commit_of("bad-2", offsets=[(0, 1), (0, 2)], **known),
        "no partitions": commit_of("bad-2", offsets=[], **known),
        "negative offsets": commit_of("bad-3", offsets=[(0, -1), (1, -2)], **known),
        "long metadata": commit_of("bad-4", offsets=[(0, 1)], metadata="m" * 4096, **known),
        "too long metadata": commit_of("bad-5", offsets=[(0, 1), (1, 1)], metadata="m" * 4097, **known),
        "too long in bytes": commit_of("bad-5", offsets=[(0, 1)], metadata="ü" * 2100, **known),
        "odd retention": commit_of("bad-6", offsets=[(0, 1)], retention_ms=-5, **known),
    }
    nothing = commit_of("bad-2", offsets=[], **known)
    nothing.topics = []
    bodies["no topics"] = nothing
    answers: dict[str, Any] = {word: groups.ask_all_versions(OFFSET_COMMIT, body) for word, body in bodies.items()}
    answers["kept"] = [groups.ask(OFFSET_FETCH, 9, fetch_offsets_of(f"bad-{number}")) for number in range(1, 7)]
    answers["listed"] = listed(groups, "bad-")
    return answers


@group_case
def commits_of_members(groups: Groups) -> Any:
    topic_id = groups.prepare("member-commits", 2)
    assert topic_id is not None
    answers: list[Any] = []
    with (
        groups.member("member-commits", "A", protocols=[("range", subscription("member-commits"))]) as first,
        groups.member("member-commits", "B", protocols=[("range", subscription("member-commits"))]) as second,
    ):

        def commit(member: tuple[str, int], instance_id: str | None = None) -> None:
            body = commit_of(
                first.group_id,
                "member-commits",
                [(0, 7)],
                topic_id=topic_id,
                member=member,
                instance_id=instance_id,
            )
            answers.append(groups.ask_all_versions(OFFSET_COMMIT, body))

        first.join()
        # The generation has begun, its assignment is not there yet.
        commit(first.identity)
        first.sync({first.member_id: assignment("member-commits", 0, 1)})
        commit(first.identity)
        commit((first.member_id, first.generation - 1))
        commit((first.member_id, first.generation + 1))
        commit((first.member_id, -1))
        commit((NOBODY, first.generation))
        commit(("", first.generation))
        commit(("", -1))
        commit(first.identity, "an-instance")
        second.send_join()
        first.wait_for_news()
        # While the group comes together anew the generation still holds.
        commit(first.identity)
        first.join()
        second.joined()
        commit(first.identity)
        first.leave()
        second.leave()
        commit(first.identity)
        commit(("", -1))
        answers.append(groups.ask_all_versions(OFFSET_FETCH, fetch_offsets_of(first.group_id), first=2))
    return answers


@group_case
def commits_of_static_members(groups: Groups) -> Any:
    topic_id = groups.prepare("static-commits")
    answers = []
    with (
        groups.member("static-commits", "old", instance_id="one") as old,
        groups.member("static-commits", "new", instance_id="one") as new,
    ):
        settled(old)
        settled(new)
        for member, instance_id in [(old, "one"), (new, "one"), (new, "two"), (new, None), (old, None)]:
            body = commit_of(
                "static-commits",
                "static-commits",
                [(0, 3)],
                topic_id=topic_id,
                member=(member.member_id, new.generation),
                instance_id=instance_id,
            )
            answers.append(groups.ask_all_versions(OFFSET_COMMIT, body))
    return answers


@group_case
def fetch_offsets_in_every_version(groups: Groups) -> Any:
    topic_id = groups.prepare("kept", 3)
    other_id = groups.prepare("kept-too")
    groups.ask(OFFSET_COMMIT, 9, commit_of("keeper", "kept", [(0, 5), (1, 6)], metadata="note", leader_epoch=4))
    groups.ask(OFFSET_COMMIT, 9, commit_of("keeper", "kept-too", [(0, 9)]))
    asked: dict[str, Any] = {
        "some": [("kept", topic_id, [0, 2])],
        "both": [("kept", topic_id, [1]), ("kept-too", other_id, [0])],
        "unknown partitions": [("kept", topic_id, [9, -1, 0])],
        "a partition twice": [("kept", topic_id, [0, 0])],
        "a topic twice": [("kept", topic_id, [0]), ("kept", topic_id, [1])],
        "unknown topic": [("kept-unknown", UNKNOWN_ID, [0]), ("kept", topic_id, [0])],
        "no topic": [("", None, [0])],
        "no partitions": [("kept", topic_id, [])],
        "nothing": [],
    }
    answers: dict[str, Any] = {}
    for word, topics in asked.items():
        for group_id in ("keeper", "keeper-nobody"):
            body = fetch_offsets_of(group_id, topics=topics)
            answers[f"{word} of {group_id}"] = groups.ask_all_versions(OFFSET_FETCH, body)
    answers["no group"] = groups.ask_all_versions(OFFSET_FETCH, fetch_offsets_of("", topics=asked["some"]))
    answers["stable"] = groups.ask_all_versions(
        OFFSET_FETCH, fetch_offsets_of("keeper", topics=asked["some"], require_stable=True)
    )
    answers["member"] = groups.ask_all_versions(
        OFFSET_FETCH, fetch_offsets_of("keeper", topics=asked["some"], member=(NOBODY, 3)), first=MANY_GROUPS
    )
    return answers


@group_case
def fetch_offsets_of_many_groups(groups: Groups) -> Any:
    topic_id = groups.prepare("kept-by-many", 2)
    for group_id in ("many-1", "many-2"):
        groups.ask(OFFSET_COMMIT, 9, commit_of(group_id, "kept-by-many", [(0, 5)]))
    sets = [("many-1", "many-2"), ("many-2", "many-nobody", "many-1", ""), ("many-1", "many-1")]
    answers = [
        groups.ask_all_versions(OFFSET_FETCH, fetch_offsets_of(*names, topics=topics), first=MANY_GROUPS)
        for names in sets
        for topics in (None, [("kept-by-many", topic_id, [0, 1])])
    ]
    answers.append(groups.ask_all_versions(OFFSET_FETCH, Struct(groups=[]), first=MANY_GROUPS))
    return answers


@group_case
def offsets_of_a_topic_that_is_deleted(groups: Groups) -> Any:
    topic_id = groups.prepare("kept-and-deleted")
    groups.ask(OFFSET_COMMIT, 9, commit_of("mourner", "kept-and-deleted", [(0, 5)]))
    groups.cluster.ask_raw(DELETE_TOPICS, 5, Struct(topic_names=["kept-and-deleted"], timeout=10_000))
    groups.cluster.wait_until_gone("kept-and-deleted")

    def are_forgotten() -> bool:
        return not groups.cluster.ask_raw(OFFSET_FETCH, 9, fetch_offsets_of("mourner")).groups[0].topics

    wait_until(are_forgotten, "the offsets are forgotten", seconds_max=20)
    answers = [groups.ask_all_versions(OFFSET_FETCH, fetch_offsets_of("mourner"), first=2)]
    body = commit_of("mourner", "kept-and-deleted", [(0, 6)], topic_id=topic_id)
    answers.append(groups.ask_all_versions(OFFSET_COMMIT, body))
    return answers


@group_case
def delete_offsets(groups: Groups) -> Any:
    groups.prepare("forget-offsets", 3)
    groups.prepare("forget-too")
    for group_id in ("forgetful", "forgetful-member", "forgetful-other", "forgetful-odd"):
        groups.ask(OFFSET_COMMIT, 9, commit_of(group_id, "forget-offsets", [(0, 5), (1, 6)]))
        groups.ask(OFFSET_COMMIT, 9, commit_of(group_id, "forget-too", [(0, 7)]))
    consumers = [("range", subscription("forget-offsets"))]
    with (
        groups.member("forgetful-member", "A", protocols=consumers) as member,
        groups.member("forgetful-other", "B", protocol_type="other") as other,
        groups.member("forgetful-odd", "C", protocols=[("range", b"odd")]) as odd,
    ):
        for one in (member, other, odd):
            settled(one)
        bodies = [
            delete_offsets_of("", "forget-offsets", 0),
            delete_offsets_of("forgetful-nobody", "forget-offsets", 0),
            delete_offsets_of("forgetful", "forget-unknown", 0),
            delete_offsets_of("forgetful", "forget-offsets", 2, 9, -1),
            delete_offsets_of("forgetful", "forget-offsets", 0, 0),
            delete_offsets_of("forgetful", "forget-offsets"),
            Struct(group_id="forgetful", topics=[]),
            delete_offsets_of("forgetful-member", "forget-offsets", 0),
            delete_offsets_of("forgetful-member", "forget-too", 0),
            delete_offsets_of("forgetful-other", "forget-offsets", 0),
            delete_offsets_of("forgetful-odd", "forget-offsets", 0),
            delete_offsets_of(LONG_ID[:30_000], "forget-offsets", 0),
        ]
        answers = [groups.ask(OFFSET_DELETE, 0, body) for body in bodies]
        kept = ("forgetful", "forgetful-member", "forgetful-other", "forgetful-odd")
        answers.append(groups.ask(OFFSET_FETCH, 9, fetch_offsets_of(*kept)))
        member.leave()
        answers.append(groups.ask(OFFSET_DELETE, 0, delete_offsets_of("forgetful-member", "forget-offsets", 0, 1)))
        answers.append(groups.ask(OFFSET_FETCH, 9, fetch_offsets_of(*kept)))
        answers.append(listed(groups, "forgetful"))
    return answers


@group_case
def delete_offsets_of_a_consumer_group(groups: Groups) -> Any:
    groups.prepare("forget-new", 2)
    groups.prepare("forget-new-too")
    groups.ask(OFFSET_COMMIT, 9, commit_of("forgetful-new", "forget-new", [(0, 5)]))
    groups.ask(OFFSET_COMMIT, 9, commit_of("forgetful-new", "forget-new-too", [(0, 5)]))
    groups.ask(CONSUMER_GROUP_HEARTBEAT, 1, first_report_of("forgetful-new", "me", "forget-new"))
    return [
        groups.ask(OFFSET_DELETE, 0, delete_offsets_of("forgetful-new", "forget-new", 0)),
        groups.ask(OFFSET_DELETE, 0, delete_offsets_of("forgetful-new", "forget-new-too", 0)),
        groups.ask(OFFSET_FETCH, 9, fetch_offsets_of("forgetful-new")),
    ]


@group_case
def offsets_of_ids_too_long_for_the_log(groups: Groups) -> Any:
    topic_id = groups.prepare("long-ids")
    return [
        groups.ask_all_versions(
            OFFSET_COMMIT, commit_of(LONG_ID, "long-ids", [(0, 1)], topic_id=topic_id), first=MANY_GROUPS
        ),
        groups.ask_all_versions(OFFSET_FETCH, fetch_offsets_of(LONG_ID), first=6),
        groups.ask_all_versions(
            OFFSET_COMMIT,
            commit_of("long-ids", "long-ids", [(0, 1)], topic_id=topic_id, metadata="m" * 70_000),
            first=MANY_GROUPS,
        ),
    ]
