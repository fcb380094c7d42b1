"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what describes and lists them."""

from collections.abc import Callable
from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cases.group_requests import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    Groups,
    Member,
    assignment,
    heartbeat_of,
    join_of,
    leave_of,
    newest,
    subscription,
    sync_of,
)
from tests.conformance.cluster import versions_of

GroupCase = Callable[[Groups], Any]

# Apart from the other cases: these need brokers that do not wait for more members at first.
GROUP_CASES: dict[str, GroupCase] = {}

LONG_ID = "g" * 70_000
NOBODY = "test-00000000-0000-0000-0000-000000000000"


def group_case(function: GroupCase) -> GroupCase:
    assert function.__name__ not in GROUP_CASES
    GROUP_CASES[function.__name__] = function
    return function


def settled(member: Member, share: bytes = b"its share") -> None:
    """A group of this one member, with its assignment."""
    member.join()
    member.sync({member.member_id: share})


def listed(groups: Groups, prefix: str, version: int = 5, **filters: Any) -> Any:
    """ListGroups, of the groups with the prefix."""
    body = Struct(states_filter=filters.get("states", []), types_filter=filters.get("types", []))
    answer = groups.ask(LIST_GROUPS, version, body)
    mine = [group for group in answer["groups"] if group["group_id"].startswith(prefix)]
    answer["groups"] = sorted(mine, key=lambda group: group["group_id"])
    return answer


@group_case
def find_coordinator_in_every_version(groups: Groups) -> Any:
    keys = ["find-me", "", "find me too", "find-me", "ü" * 100]
    return [
        [groups.ask_all_versions(FIND_COORDINATOR, Struct(key=key, coordinator_keys=keys)) for key in ("find-me", "")],
        groups.ask_all_versions(FIND_COORDINATOR, Struct(coordinator_keys=[]), first=4),
        groups.ask_all_versions(FIND_COORDINATOR, Struct(key=LONG_ID, coordinator_keys=[LONG_ID]), first=3),
    ]


@group_case
def find_coordinators_of_other_kinds(groups: Groups) -> Any:
    return [
        groups.ask_all_versions(
            FIND_COORDINATOR, Struct(key="find-odd", coordinator_keys=["find-odd"], key_type=kind), first=1
        )
        for kind in (2, 3, -1, 127)
    ]


@group_case
def a_member_alone_in_every_version(groups: Groups) -> Any:
    answers = []
    for version in versions_of(JOIN_GROUP):

        def at_most(api_key: int, version: int = version) -> int:
            return min(version, newest(api_key))

        group_id = f"alone-{version}"
        about = Struct(groups=[group_id], include_authorized_operations=True)
        with groups.member(group_id, "A", protocols=[("range", b"meta"), ("other", b"")]) as member:
            answers.append(member.join(version))
            answers.append(groups.ask(DESCRIBE_GROUPS, at_most(DESCRIBE_GROUPS), about))
            answers.append(member.heartbeat(at_most(HEARTBEAT)))
            answers.append(member.sync({member.member_id: b"all of it"}, at_most(SYNC_GROUP)))
            answers.append(member.heartbeat(at_most(HEARTBEAT)))
            answers.append(groups.ask(DESCRIBE_GROUPS, at_most(DESCRIBE_GROUPS), about))
            answers.append(listed(groups, group_id, at_most(LIST_GROUPS)))
            # What it has is told again, whoever asks.
            answers.append(member.sync(None, at_most(SYNC_GROUP)))
            answers.append(groups.ask(DELETE_GROUPS, at_most(DELETE_GROUPS), Struct(groups_names=[group_id])))
            answers.append(member.join(version))
            answers.append(member.sync({member.member_id: b"", "stranger": b"x"}, at_most(SYNC_GROUP)))
            answers.append(member.leave(at_most(LEAVE_GROUP)))
            answers.append(member.heartbeat(at_most(HEARTBEAT)))
            answers.append(groups.ask(DESCRIBE_GROUPS, at_most(DESCRIBE_GROUPS), about))
            answers.append(listed(groups, group_id, at_most(LIST_GROUPS)))
            answers.append(groups.ask(DELETE_GROUPS, at_most(DELETE_GROUPS), Struct(groups_names=[group_id])))
            answers.append(groups.ask(DESCRIBE_GROUPS, at_most(DESCRIBE_GROUPS), about))
            answers.append(listed(groups, group_id, at_most(LIST_GROUPS)))
    return answers


@group_case
def two_members_rebalance(groups: Groups) -> Any:
    answers = []
    for version in versions_of(JOIN_GROUP):
        group_id = f"two-{version}"
        protocols = {"A": [("range", b"A"), ("sticky", b"a")], "B": [("range", b"B"), ("other", b"b")]}
        with (
            groups.member(group_id, "A", protocols=protocols["A"]) as first,
            groups.member(group_id, "B", protocols=protocols["B"]) as second,
        ):
            answers += [first.join(version), first.sync({first.member_id: b"1"})]
            answers.append(second.send_join(version))
            first.wait_for_news()
            answers.append(first.heartbeat())
            answers.append(groups.ask(DESCRIBE_GROUPS, 6, Struct(groups=[group_id])))
            answers.append(first.sync({first.member_id: b"late"}))
            answers.append(first.join(version))
            answers.append(second.joined())
            answers += [first.heartbeat(), second.heartbeat()]
            second.send_sync()
            answers.append(groups.ask(DESCRIBE_GROUPS, 6, Struct(groups=[group_id])))
            answers.append(first.sync({second.member_id: b"2", first.member_id: b"1"}))
            answers.append(second.answer())
            answers.append(groups.ask(DESCRIBE_GROUPS, 5, Struct(groups=[group_id])))
            # The follower joins again with nothing new: nothing happens. The leader does: a rebalance.
            answers.append(second.join(version))
            answers.append(second.sync())
            first.send_join(version)
            second.wait_for_news()
            answers.append(second.join(version))
            answers.append(first.joined())
            answers.append(second.leave(min(version, 5)))
            answers += [first.heartbeat(), second.heartbeat(), first.sync({first.member_id: b"1"})]
            answers.append(first.join(version))
    return answers


@group_case
def join_with_bad_input(groups: Groups) -> Any:
    odd: dict[str, dict[str, Any]] = {
        "no protocols": {"protocols": []},
        "no protocol type": {"protocol_type": ""},
        "another protocol type": {"protocol_type": "connect"},
        "unknown member": {"member_id": NOBODY},
        "unknown member of an instance": {"member_id": NOBODY, "instance_id": "i"},
        "unnamed instance": {"instance_id": ""},
        "dotted instance": {"instance_id": ".."},
        "odd instance": {"instance_id": "a/b c"},
        "long instance": {"instance_id": "i" * 250},
    }
    odd |= {f"session {session_ms}": {"session_ms": session_ms} for session_ms in (-1, 0, 5999, 1_800_001, 2**31 - 1)}
    answers: dict[str, Any] = {
        word: {
            f"v{version}": groups.ask(JOIN_GROUP, version, join_of(f"join-bad {word} {version}", **options))
            for version in versions_of(JOIN_GROUP)
        }
        for word, options in odd.items()
    }
    answers["no group"] = groups.ask_all_versions(JOIN_GROUP, join_of(""))
    answers["blank group"] = groups.ask_all_versions(JOIN_GROUP, join_of("  "), first=4)
    answers["listed"] = listed(groups, "join-bad")
    return answers


@group_case
def join_with_odd_rebalance_timeouts(groups: Groups) -> Any:
    answers = []
    # Not below a second: whether the sync is in time is then a matter of luck.
    for rebalance_ms in (5000, 2**31 - 1):
        with groups.member(f"join-odd-{rebalance_ms}", "A", rebalance_ms=rebalance_ms) as member:
            answers.append(member.join())
            if member.generation > 0:
                answers.append(member.sync({member.member_id: b""}))
    return answers


@group_case
def join_with_protocols_that_do_not_fit(groups: Groups) -> Any:
    with groups.member("unfit", "A", protocols=[("range", b""), ("sticky", b"")]) as member:
        settled(member)
        return [
            groups.ask_all_versions(JOIN_GROUP, join_of("unfit", protocols=[("roundrobin", b"")])),
            groups.ask_all_versions(JOIN_GROUP, join_of("unfit", protocol_type="connect")),
            groups.ask_all_versions(JOIN_GROUP, join_of("unfit", member.member_id, protocols=[("other", b"")])),
            groups.ask_all_versions(JOIN_GROUP, join_of("unfit", member.member_id, protocol_type="connect")),
            groups.ask_all_versions(JOIN_GROUP, join_of("unfit", NOBODY)),
            groups.ask_all_versions(
                JOIN_GROUP, join_of("unfit", instance_id="static", protocols=[("other", b"")]), first=5
            ),
            member.heartbeat(),
        ]


@group_case
def ids_of_members_are_given_out_first(groups: Groups) -> Any:
    """A member id that was handed out, before its owner has joined with it."""
    answers = []
    for version in range(4, newest(JOIN_GROUP) + 1):
        group_id = f"pending-{version}"
        raw = groups.cluster.ask_raw(JOIN_GROUP, version, join_of(group_id))
        pending = raw.member_id
        answers.append(groups.shown(raw))
        # Kafka describes what it has written, which comes a moment later.
        groups.wait_for_state(group_id, "Empty")
        answers.append(groups.ask(DESCRIBE_GROUPS, 6, Struct(groups=[group_id])))
        answers.append(listed(groups, group_id))
        answers.append(groups.ask(HEARTBEAT, 4, heartbeat_of(group_id, pending, 0)))
        answers.append(groups.ask(SYNC_GROUP, 5, sync_of(group_id, pending, 0)))
        answers.append(groups.ask(LEAVE_GROUP, 5, leave_of(group_id, (pending, None))))
        answers.append(groups.ask(JOIN_GROUP, version, join_of(group_id, pending)))
        answers.append(groups.ask(DELETE_GROUPS, 2, Struct(groups_names=[group_id])))
        answers.append(groups.ask(DESCRIBE_GROUPS, 6, Struct(groups=[group_id])))
    return answers


@group_case
def sync_with_bad_input(groups: Groups) -> Any:
    with groups.member("sync-bad", "A") as member:
        settled(member)
        mine, generation = member.identity
        bodies = {
            "no group": sync_of("", mine, generation),
            "unknown group": sync_of("sync-nobody", mine, generation),
            "unknown member": sync_of("sync-bad", NOBODY, generation),
            "no member": sync_of("sync-bad", "", generation),
            "old generation": sync_of("sync-bad", mine, generation - 1),
            "next generation": sync_of("sync-bad", mine, generation + 1),
            "negative generation": sync_of("sync-bad", mine, -1),
            "another type": sync_of("sync-bad", mine, generation, protocol=("connect", "range")),
            "another protocol": sync_of("sync-bad", mine, generation, protocol=("consumer", "sticky")),
            "no protocol": sync_of("sync-bad", mine, generation, protocol=(None, None)),
            "half a protocol": sync_of("sync-bad", mine, generation, protocol=(None, "range")),
            "unknown instance": sync_of("sync-bad", mine, generation, instance_id="nobody"),
            "assignment again": sync_of("sync-bad", mine, generation, {mine: b"another"}),
        }
        return {word: groups.ask_all_versions(SYNC_GROUP, body) for word, body in bodies.items()}


@group_case
def heartbeat_with_bad_input(groups: Groups) -> Any:
    with groups.member("beat-bad", "A") as member:
        settled(member)
        mine, generation = member.identity
        bodies = {
            "no group": heartbeat_of("", mine, generation),
            "unknown group": heartbeat_of("beat-nobody", mine, generation),
            "unknown member": heartbeat_of("beat-bad", NOBODY, generation),
            "no member": heartbeat_of("beat-bad", "", generation),
            "old generation": heartbeat_of("beat-bad", mine, generation - 1),
            "next generation": heartbeat_of("beat-bad", mine, generation + 1),
            "negative generation": heartbeat_of("beat-bad", mine, -1),
            "unknown instance": heartbeat_of("beat-bad", mine, generation, instance_id="nobody"),
            "all well": heartbeat_of("beat-bad", mine, generation),
        }
        return {word: groups.ask_all_versions(HEARTBEAT, body) for word, body in bodies.items()}


@group_case
def leave_with_bad_input(groups: Groups) -> Any:
    with groups.member("leave-bad", "A") as member:
        settled(member)
        bodies = {
            "no group": leave_of("", (NOBODY, None)),
            "unknown group": leave_of("leave-nobody", (NOBODY, None), ("", "i")),
            "unknown member": leave_of("leave-bad", (NOBODY, None)),
            "no member": leave_of("leave-bad", ("", None)),
            "nobody at all": leave_of("leave-bad"),
            "unknown instance": leave_of("leave-bad", ("", "nobody")),
            "unknown instance of a member": leave_of("leave-bad", (NOBODY, "nobody")),
            "several": leave_of("leave-bad", (NOBODY, None), ("", "nobody"), (NOBODY, None)),
        }
        answers = {word: groups.ask_all_versions(LEAVE_GROUP, body) for word, body in bodies.items()}
        answers["still there"] = member.heartbeat()
        return answers


@group_case
def static_members_come_back_and_are_fenced(groups: Groups) -> Any:
    answers = []
    for version in range(5, newest(JOIN_GROUP) + 1):
        group_id = f"static-{version}"
        with (
            groups.member(group_id, "old", instance_id="one") as old,
            groups.member(group_id, "new", instance_id="one") as new,
        ):
            answers += [old.join(version), old.sync({old.member_id: b"share"}), old.heartbeat()]
            answers.append(new.join(version))
            answers.append(new.sync({new.member_id: b"new share"}))
            answers.append(new.heartbeat())
            answers += [old.heartbeat(), old.sync(), old.join(version), old.leave(min(version, 5))]
            answers.append(groups.ask_all_versions(DESCRIBE_GROUPS, Struct(groups=[group_id])))
            answers.append(groups.ask(HEARTBEAT, 4, heartbeat_of(group_id, "new", new.generation, instance_id="two")))
            answers.append(groups.ask(LEAVE_GROUP, 5, leave_of(group_id, ("", "one"), ("", "one"), ("", "two"))))
            answers += [new.heartbeat(), groups.ask(DESCRIBE_GROUPS, 6, Struct(groups=[group_id]))]
    return answers


@group_case
def a_static_leader_with_another_subscription(groups: Groups) -> Any:
    """KIP-814: whoever comes back as the leader, with something new to say, starts a rebalance."""
    protocols = [("range", subscription("some"))]
    with (
        groups.member("static-changed", "old", instance_id="one", protocols=protocols) as old,
        groups.member("static-changed", "new", instance_id="one", protocols=[("range", subscription("more"))]) as new,
    ):
        settled(old, assignment("some", 0))
        return [new.join(), new.sync({new.member_id: b"x"}), new.heartbeat(), old.heartbeat()]


@group_case
def describe_what_is_not_there(groups: Groups) -> Any:
    asked = ["describe-nobody", "", "describe-nobody", "ü"]
    return [
        groups.ask_all_versions(DESCRIBE_GROUPS, Struct(groups=asked, include_authorized_operations=ops))
        for ops in (False, True)
    ] + [groups.ask_all_versions(DESCRIBE_GROUPS, Struct(groups=[]))]


@group_case
def delete_groups_in_every_version(groups: Groups) -> Any:
    answers = []
    for version in versions_of(DELETE_GROUPS):
        with groups.member(f"delete-full-{version}", "A") as full, groups.member(f"delete-me-{version}", "B") as gone:
            settled(full)
            settled(gone)
            gone.leave()
            names = [full.group_id, gone.group_id, "delete-nobody", "", full.group_id]
            answers.append(groups.ask(DELETE_GROUPS, version, Struct(groups_names=names)))
            answers.append(groups.ask(DELETE_GROUPS, version, Struct(groups_names=[gone.group_id, gone.group_id])))
            answers.append(groups.ask(DELETE_GROUPS, version, Struct(groups_names=[])))
    answers.append(listed(groups, "delete-"))
    return answers


@group_case
def list_groups_with_filters(groups: Groups) -> Any:
    with groups.member("list-stable", "A") as stable, groups.member("list-empty", "B", protocol_type="x") as empty:
        settled(stable)
        settled(empty)
        empty.leave()
        states = [[], ["Stable"], ["stable"], ["STABLE", "Empty"], ["Dead"], ["Nonsense"], [""], [" Stable "]]
        types = [[], ["classic"], ["Classic"], ["consumer"], ["nonsense"], [""], ["classic", "consumer"]]
        answers: list[Any] = [
            {f"v{version}": listed(groups, "list-", version, states=some) for version in versions_of(LIST_GROUPS)}
            for some in states
        ]
        answers += [listed(groups, "list-", types=some) for some in types]
        answers.append(listed(groups, "list-", types=["classic"], states=["Empty"]))
        return answers


@group_case
def group_ids_too_long_for_the_log(groups: Groups) -> Any:
    """70,000 bytes: more than a record's key can hold, and than old versions can say."""
    member = "m" * 70_000
    return [
        groups.ask_all_versions(JOIN_GROUP, join_of(LONG_ID), first=6),
        groups.ask_all_versions(JOIN_GROUP, join_of(LONG_ID, instance_id="i"), first=6),
        groups.ask_all_versions(JOIN_GROUP, join_of("long-member", member), first=6),
        groups.ask_all_versions(SYNC_GROUP, sync_of(LONG_ID, member, 1), first=4),
        groups.ask_all_versions(HEARTBEAT, heartbeat_of(LONG_ID, member, 1), first=4),
        groups.ask_all_versions(LEAVE_GROUP, leave_of(LONG_ID, (member, None)), first=4),
        groups.ask_all_versions(DESCRIBE_GROUPS, Struct(groups=[LONG_ID]), first=5),
        groups.ask_all_versions(DELETE_GROUPS, Struct(groups_names=[LONG_ID]), first=2),
    ]
