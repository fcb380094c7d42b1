"""Groups of the new protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe, and both protocols together."""

import uuid
from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cases.group_requests import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Groups,
    assignment,
    commit_of,
    fetch_offsets_of,
    first_report_of,
    heartbeat_of,
    join_of,
    leave_of,
    report_of,
    subscription,
    sync_of,
)
from tests.conformance.cases.groups import LONG_ID, group_case, listed, settled
from tests.conformance.cluster import versions_of
from tests.e2e.node import wait_until

UNKNOWN_ID = uuid.UUID(int=0xABCDEF)
INTERVAL_MS_MAX = 15_000
BEATS = versions_of(CONSUMER_GROUP_HEARTBEAT)


class Reporter:
    """A member that does as it is told, until there is nothing more to do."""

    def __init__(self, groups: Groups, group_id: str, member_id: str, version: int = 1, **options: Any) -> None:
        self.groups = groups
        self.group_id = group_id
        self.member_id = member_id
        self.version = version
        self.options = options
        self.epoch = 0
        self.owned: list[tuple[uuid.UUID, list[int]]] = []

    def join(self, *topics: str) -> Any:
        return self._report(first_report_of(self.group_id, self.member_id, *topics, **self.options))

    def report(self, **changes: Any) -> Any:
        """Says what it owns; takes up what it is given."""
        body = report_of(self.group_id, self.member_id, self.epoch, owned=self.owned, **changes, **self.options)
        return self._report(body)

    def _report(self, body: Struct) -> Any:
        answer = self.groups.cluster.ask_raw(CONSUMER_GROUP_HEARTBEAT, self.version, body)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if not self.member_id:
                self.member_id = answer.member_id
                self.groups.names[self.member_id] = "the id it was given"
            if answer.assignment is not None:
                self.owned = [(part.topic_id, list(part.partitions)) for part in answer.assignment.topic_partitions]
        return self.groups.shown(answer)


def prepare(groups: Groups, topic: str, partitions: int = 1) -> uuid.UUID:
    """A topic that the coordinator knows of already, which may be a moment after its creation was answered: else a
    member that joins has an epoch without partitions first, on one of the two brokers."""
    topic_id = groups.prepare(topic, partitions)
    assert topic_id is not None
    scout = Reporter(groups, f"scouts-of-{topic}", "scout")
    scout.join(topic)

    def has_found_it() -> bool:
        scout.report()
        return bool(scout.owned)

    wait_until(has_found_it, f"the coordinator knows {topic}")
    scout.epoch = -1
    scout.report()
    return topic_id


def described(groups: Groups, *group_ids: str) -> Any:
    return groups.ask_all_versions(
        CONSUMER_GROUP_DESCRIBE, Struct(group_ids=group_ids, include_authorized_operations=True)
    )


def settle(groups: Groups, *members: Reporter) -> Any:
    """Reports go round until the group is stable; what it looks like then."""
    group_id = members[0].group_id

    def is_stable() -> bool:
        for member in members:
            member.report()
        raw = groups.cluster.ask_raw(CONSUMER_GROUP_DESCRIBE, 0, Struct(group_ids=[group_id]))
        return bool(raw.groups[0].group_state == "Stable")

    wait_until(is_stable, f"{group_id} is stable")
    return described(groups, group_id)


@group_case
def a_reporting_member_alone(groups: Groups) -> Any:
    groups.count_epochs_from_one()
    prepare(groups, "solo", 3)
    answers = []
    for version in BEATS:
        group_id = f"solo-{version}"
        member = Reporter(groups, group_id, "me" if version else "", version)
        answers.append(member.join("solo"))
        answers.append(settle(groups, member))
        answers.append(member.report())
        answers.append(groups.ask_all_versions(DESCRIBE_GROUPS, Struct(groups=[group_id])))
        answers.append(listed(groups, group_id))
        answers.append(groups.ask(DELETE_GROUPS, 2, Struct(groups_names=[group_id])))
        answers.append(groups.ask(CONSUMER_GROUP_HEARTBEAT, version, report_of(group_id, member.member_id, -1)))
        answers.append(described(groups, group_id))
        answers.append(listed(groups, group_id))
        answers.append(member.report())
        answers.append(groups.ask(DELETE_GROUPS, 2, Struct(groups_names=[group_id])))
        answers.append(described(groups, group_id))
    return answers


@group_case
def members_share_and_hand_over(groups: Groups) -> Any:
    groups.count_epochs_from_one()
    answers = []
    for assignor in ("uniform", "range"):
        topic = f"shared-{assignor}"
        prepare(groups, topic, 5)
        one, two = (Reporter(groups, topic, word, assignor=assignor) for word in ("one", "two"))
        answers.append(one.join(topic))
        settle(groups, one)
        joined = two.join(topic)
        # Nothing is handed over before its owner has let it go.
        answers.append([joined["error_code"], joined["assignment"]])
        after = settle(groups, one, two)
        # Which of them has which partitions is up to the assignor's mood: that each has its share is not.
        for version in after.values():
            for member in version["groups"][0]["members"]:
                for part in (
                    *member["assignment"]["topic_partitions"],
                    *member["target_assignment"]["topic_partitions"],
                ):
                    part["partitions"] = "its share"
        answers.append([after, sorted(len(part) for member in (one, two) for _, part in member.owned)])
        answers.append(groups.ask(CONSUMER_GROUP_HEARTBEAT, 1, report_of(topic, "one", -1)))
        answers.append(settle(groups, two))
    return answers


@group_case
def reports_with_bad_input(groups: Groups) -> Any:
    groups.count_epochs_from_one()
    topic_id = prepare(groups, "reported", 2)
    fresh: dict[str, Any] = {"topics": ["reported"], "owned": [], "rebalance_ms": 30_000}
    bodies = {
        "no group": report_of("", "me", 0, **fresh),
        "blank group": report_of(" ", "me", 0, **fresh),
        "no member": report_of("report-bad", "", 5, **fresh),
        "no member at first": report_of("report-bad-id", "", 0, **fresh),
        "blank member": report_of("report-bad", "  ", 0, **fresh),
        "unknown member": report_of("report-bad", "me", 5),
        "epoch -3": report_of("report-bad", "me", -3, **fresh),
        "leaves, unknown": report_of("report-bad", "me", -1),
        "pauses, unknown": report_of("report-bad", "me", -2, instance_id="i"),
        "pauses without instance": report_of("report-bad", "me", -2),
        "unnamed instance": report_of("report-bad", "me", 0, instance_id="", **fresh),
        "unnamed rack": report_of("report-bad", "me", 0, rack_id="", **fresh),
        "no rebalance timeout": report_of("report-bad", "me", 0, topics=["reported"], owned=[]),
        "rebalance timeout 0": report_of("report-bad", "me", 0, topics=["reported"], owned=[], rebalance_ms=0),
        "no topics": report_of("report-bad", "me", 0, owned=[], rebalance_ms=30_000),
        "nothing owned said": report_of("report-bad", "me", 0, topics=["reported"], rebalance_ms=30_000),
        "owns something": report_of(
            "report-bad", "me", 0, topics=["reported"], owned=[(topic_id, [0])], rebalance_ms=30_000
        ),
        "unknown assignor": report_of("report-bad", "me", 0, assignor="nobody", **fresh),
        "unnamed assignor": report_of("report-bad", "me", 0, assignor="", **fresh),
        "bad expression": report_of("report-bad", "me", 0, regex="[", owned=[], rebalance_ms=30_000),
    }
    answers: dict[str, Any] = {
        word: groups.ask_all_versions(CONSUMER_GROUP_HEARTBEAT, body) for word, body in bodies.items()
    }
    answers["listed"] = listed(groups, "report-bad")
    return answers


@group_case
def subscriptions_of_odd_kinds(groups: Groups) -> Any:
    prepare(groups, "odd-topic", 2)
    answers = []
    odd: list[dict[str, Any]] = [
        {"topics": []},
        {"topics": ["odd-unknown"]},
        {"topics": ["odd-topic", "odd-unknown", "odd-topic"]},
        {"topics": [""]},
        {"topics": ["odd/name"]},
        {"regex": ""},
        {"regex": "odd-nothing.*"},
        {"regex": "odd-top.*"},
        {"regex": "odd-top"},
        {"regex": "odd-nothing", "topics": ["odd-topic"]},
    ]
    for number, subscribed in enumerate(odd):
        group_id = f"odd-{number}"
        member = Reporter(groups, group_id, "me")
        body = report_of(group_id, "me", 0, owned=[], rebalance_ms=30_000, **subscribed)
        first = groups.ask(CONSUMER_GROUP_HEARTBEAT, 1, body)
        # A regular expression is resolved in the background: what is given at first is a matter of luck.
        answers.append(first["error_code"])
        if first["error_code"] == "none":
            member.epoch = first["member_epoch"]
            wanted = 2 if any("odd-top" in str(value) for value in subscribed.values()) else 0
            wanted = 0 if subscribed.get("regex") == "odd-top" else wanted
            for _ in range(500):
                settle(groups, member)
                if sum(len(part) for _, part in member.owned) == wanted:
                    break
            final = described(groups, group_id)["v1"]["groups"][0]
            answers.append([wanted, final["members"][0]["assignment"], final["group_state"]])
    return answers


@group_case
def epochs_of_members_are_checked(groups: Groups) -> Any:
    groups.count_epochs_from_one()
    topic_id = prepare(groups, "epochs-of-members", 2)
    assert topic_id is not None
    group_id = "epochs-of-members"
    member = Reporter(groups, group_id, "me")
    member.join(group_id)
    settle(groups, member)
    member.report(topics=[group_id, "epochs-unknown"])
    settle(groups, member)
    epoch = member.epoch
    all_owned = [(topic_id, [0, 1])]
    bodies = {
        "next epoch": report_of(group_id, "me", epoch + 1, owned=all_owned),
        "old epoch": report_of(group_id, "me", epoch - 1, owned=all_owned),
        "old epoch, owns too much": report_of(group_id, "me", epoch - 1, owned=[(topic_id, [0, 1, 7])]),
        "old epoch, says nothing": report_of(group_id, "me", epoch - 1),
        "stranger": report_of(group_id, "stranger", epoch, owned=all_owned),
        "owns what is not its own": report_of(group_id, "me", epoch, owned=[(UNKNOWN_ID, [0])]),
        "owns partitions that are not there": report_of(group_id, "me", epoch, owned=[(topic_id, [7])]),
        "owns less": report_of(group_id, "me", epoch, owned=[]),
        "owns all": report_of(group_id, "me", epoch, owned=all_owned),
        "says nothing": report_of(group_id, "me", epoch),
        "another assignor": report_of(group_id, "me", epoch, assignor="nobody"),
        "a whole report": report_of(group_id, "me", epoch, owned=all_owned, topics=[group_id], rebalance_ms=30_000),
        "comes again": first_report_of(group_id, "me", group_id),
    }
    answers: dict[str, Any] = {
        word: groups.ask_all_versions(CONSUMER_GROUP_HEARTBEAT, body) for word, body in bodies.items()
    }
    for word, identity in {
        "": ("me", epoch),
        "ahead": ("me", epoch + 1),
        "behind": ("me", epoch - 1),
        "stranger": ("stranger", epoch),
        "nobody": ("", -1),
        "without epoch": ("me", -1),
    }.items():
        body = commit_of(group_id, group_id, [(0, 4)], topic_id=topic_id, member=identity)
        answers[f"commit {word}"] = groups.ask_all_versions(OFFSET_COMMIT, body)
        body = fetch_offsets_of(group_id, topics=[(group_id, topic_id, [0])], member=identity)
        answers[f"fetch {word}"] = groups.ask_all_versions(OFFSET_FETCH, body)
    return answers


@group_case
def a_member_that_was_put_out_comes_again_with_an_old_offset(groups: Groups) -> Any:
    """Out of the group it commits nothing. Back in it, it may commit any partition, also one that another member holds
    and has committed further: whoever has old records in hand and does not heed that they were taken away goes back."""
    groups.count_epochs_from_one()
    topic_id = prepare(groups, "held-by-another")
    group_id = "held-by-another"
    first, second = (Reporter(groups, group_id, word) for word in ("first", "second"))

    def commit(member: Reporter, epoch: int, offset: int) -> Any:
        body = commit_of(group_id, group_id, [(0, offset)], topic_id=topic_id, member=(member.member_id, epoch))
        return groups.ask_all_versions(OFFSET_COMMIT, body)

    first.join(group_id)
    settle(groups, first)
    old_epoch = first.epoch
    answers = [commit(first, old_epoch, 20)]
    first.epoch = -1
    first.report()
    first.owned = []
    second.join(group_id)
    settle(groups, second)
    answers += [commit(second, second.epoch, 128), commit(first, old_epoch, 50)]
    first.epoch = 0
    first.join(group_id)
    settle(groups, first, second)
    assert [partitions for _, partitions in second.owned] == [[0]]
    answers += [commit(first, old_epoch, 50), commit(first, first.epoch, 50)]
    fetch = fetch_offsets_of(group_id, topics=[(group_id, topic_id, [0])])
    return [*answers, groups.ask_all_versions(OFFSET_FETCH, fetch)]


@group_case
def static_reporters(groups: Groups) -> Any:
    groups.count_epochs_from_one()
    prepare(groups, "static-new", 2)
    answers = []
    for version in BEATS:
        group_id = f"static-new-{version}"
        old, new = (Reporter(groups, group_id, word, version, instance_id="one") for word in ("old", "new"))
        answers.append(old.join("static-new"))
        answers.append(settle(groups, old))
        answers.append(new.join("static-new"))
        answers.append(
            groups.ask(CONSUMER_GROUP_HEARTBEAT, version, report_of(group_id, "old", old.epoch, instance_id="two"))
        )
        answers.append(groups.ask(CONSUMER_GROUP_HEARTBEAT, version, report_of(group_id, "old", -2, instance_id="one")))
        answers.append(described(groups, group_id))
        answers.append(old.report())
        answers.append(new.join("static-new"))
        answers.append(settle(groups, new))
        answers.append(old.report())
        answers.append(groups.ask(CONSUMER_GROUP_HEARTBEAT, version, report_of(group_id, "old", -1, instance_id="one")))
        answers.append(groups.ask(CONSUMER_GROUP_HEARTBEAT, version, report_of(group_id, "new", -1, instance_id="one")))
        answers.append(described(groups, group_id))
    return answers


@group_case
def describe_consumer_groups_that_are_none(groups: Groups) -> Any:
    with groups.member("described-classic", "A") as member:
        settled(member)
        return described(groups, "described-nobody", "", "described-classic", "described-nobody")


@group_case
def classic_requests_to_a_consumer_group(groups: Groups) -> Any:
    groups.count_epochs_from_one()
    prepare(groups, "mixed-topic", 2)
    group_id = "mixed"
    with groups.assignment_interval(group_id, INTERVAL_MS_MAX):
        member = Reporter(groups, group_id, "me")
        member.join("mixed-topic")
        settle(groups, member)
        return [
            groups.ask_all_versions(JOIN_GROUP, join_of(group_id, protocols=[("range", b"odd")])),
            groups.ask_all_versions(JOIN_GROUP, join_of(group_id, protocol_type="connect")),
            groups.ask_all_versions(JOIN_GROUP, join_of(group_id, protocols=[])),
            groups.ask_all_versions(
                JOIN_GROUP, join_of(group_id, "stranger", protocols=[("range", subscription("x"))])
            ),
            groups.ask_all_versions(HEARTBEAT, heartbeat_of(group_id, "me", member.epoch)),
            groups.ask_all_versions(HEARTBEAT, heartbeat_of(group_id, "stranger", member.epoch)),
            groups.ask_all_versions(SYNC_GROUP, sync_of(group_id, "me", member.epoch)),
            groups.ask_all_versions(SYNC_GROUP, sync_of(group_id, "stranger", member.epoch)),
            groups.ask_all_versions(LEAVE_GROUP, leave_of(group_id, ("stranger", None), ("", "nobody")), first=3),
            groups.ask(CONSUMER_GROUP_HEARTBEAT, 1, report_of(group_id, "me", member.epoch)),
        ]


@group_case
def the_last_reporter_turns_classic(groups: Groups) -> Any:
    """With its own member id: the group has no member of the new protocol any more, so it turns classic, too."""
    groups.count_epochs_from_one()
    prepare(groups, "turncoat-topic", 2)
    answers: list[Any] = []
    protocols = [("range", subscription("turncoat-topic"))]
    for group_id, others in (("turncoat-alone", []), ("turncoat-joined", ["other"])):
        with groups.assignment_interval(group_id, INTERVAL_MS_MAX):
            member = Reporter(groups, group_id, "me")
            member.join("turncoat-topic")
            settle(groups, member)
            for member_id in (*others, "me"):
                answers.append(groups.ask_all_versions(JOIN_GROUP, join_of(group_id, member_id, protocols=protocols)))
            answers.append(listed(groups, group_id))
            report = report_of(group_id, "me", member.epoch)
            answers.append(groups.ask(CONSUMER_GROUP_HEARTBEAT, 1, report)["error_code"])
    return answers


@group_case
def a_classic_member_of_a_consumer_group(groups: Groups) -> Any:
    """It joins, is given its share by SyncGroup, lets go when told to, and leaves."""
    groups.count_epochs_from_one()
    prepare(groups, "bridge", 4)
    group_id = "bridge-group"
    with groups.assignment_interval(group_id, 0):
        new = Reporter(groups, group_id, "new")
        answers: list[Any] = [new.join("bridge"), settle(groups, new)]
        with groups.member(group_id, "classic", protocols=[("range", subscription("bridge"))]) as classic:
            answers += [classic.join(), classic.sync()]
            wait_until(lambda: bool(new.report()) and sum(len(part) for _, part in new.owned) == 2, "half is let go")
            new.report()
            classic.wait_for_news()
            answers += [classic.join(), classic.sync(), classic.heartbeat()]
            answers.append(settle(groups, new))
            answers.append(groups.ask_all_versions(DESCRIBE_GROUPS, Struct(groups=[group_id])))
            answers.append(groups.ask(SYNC_GROUP, 5, sync_of(group_id, classic.member_id, classic.generation + 1)))
            answers.append(groups.ask(HEARTBEAT, 4, heartbeat_of(group_id, classic.member_id, classic.generation - 1)))
            answers.append(classic.leave())
            answers.append(settle(groups, new))
        return answers


@group_case
def a_classic_group_is_taken_over(groups: Groups) -> Any:
    """Online upgrade: the first reporter changes the group; the last one leaving changes it back."""
    topic_id = prepare(groups, "upgrade", 2)
    assert topic_id is not None
    group_id = "upgrade-group"
    answers: list[Any] = []
    with groups.member(group_id, "classic", protocols=[("range", subscription("upgrade"))]) as classic:
        settled(classic, assignment("upgrade", 0, 1))
        new = Reporter(groups, group_id, "new")
        answers.append(new.join("upgrade"))
        kind = listed(groups, group_id)
        answers.append(kind)
        classic.wait_for_news()
        answers += [classic.join(), classic.sync()]
        answers.append(groups.ask(CONSUMER_GROUP_HEARTBEAT, 1, report_of(group_id, "new", -1)))
        answers.append(listed(groups, group_id))
        answers.append(groups.ask(DESCRIBE_GROUPS, 6, Struct(groups=[group_id])))
    return answers


@group_case
def a_group_that_cannot_be_taken_over(groups: Groups) -> Any:
    prepare(groups, "foreign-topic")
    answers = []
    with (
        groups.member("foreign-type", "A", protocol_type="connect") as other,
        groups.member("foreign-metadata", "B", protocols=[("range", b"odd")]) as odd,
    ):
        for member in (other, odd):
            settled(member)
            answers.append(
                groups.ask_all_versions(
                    CONSUMER_GROUP_HEARTBEAT, first_report_of(member.group_id, "me", "foreign-topic")
                )
            )
            answers.append(member.heartbeat())
        other.leave()
        answers.append(
            groups.ask(CONSUMER_GROUP_HEARTBEAT, 1, first_report_of("foreign-type", "me", "foreign-topic"))[
                "error_code"
            ]
        )
        answers.append(listed(groups, "foreign-type"))
    return answers


@group_case
def an_empty_consumer_group_turns_classic(groups: Groups) -> Any:
    prepare(groups, "turning", 1)
    group_id = "turning-group"
    answers: list[Any] = []
    new = Reporter(groups, group_id, "new")
    new.join("turning")
    settle(groups, new)
    groups.ask(OFFSET_COMMIT, 9, commit_of(group_id, "turning", [(0, 3)], member=("new", new.epoch)))
    groups.ask(CONSUMER_GROUP_HEARTBEAT, 1, report_of(group_id, "new", -1))
    with groups.member(group_id, "classic") as classic:
        answers += [classic.join(), classic.sync({classic.member_id: b"x"}), listed(groups, group_id)]
        answers.append(groups.ask(OFFSET_FETCH, 9, fetch_offsets_of(group_id)))
        answers.append(described(groups, group_id))
    return answers


@group_case
def consumer_group_ids_too_long_for_the_log(groups: Groups) -> Any:
    groups.count_epochs_from_one()
    prepare(groups, "long-new")
    return [
        groups.ask_all_versions(CONSUMER_GROUP_HEARTBEAT, first_report_of(LONG_ID, "me", "long-new")),
        groups.ask_all_versions(CONSUMER_GROUP_HEARTBEAT, first_report_of("long-member", LONG_ID, "long-new")),
        groups.ask_all_versions(
            CONSUMER_GROUP_HEARTBEAT, first_report_of("long-instance", "me", "long-new", instance_id=LONG_ID)
        ),
        groups.ask_all_versions(CONSUMER_GROUP_DESCRIBE, Struct(group_ids=[LONG_ID])),
    ]
