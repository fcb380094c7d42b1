"""penstock group describe: who is in a group, who reads what, how far behind, and who was last put out and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import Failed
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption
from penstock.cli.printing import Output, print_json, print_pairs, print_rows, say

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster
    from penstock.cli.group_requests import DescribedGroup

_MEMBER_COLUMNS = ["member", "instance", "client", "host", "epoch", "assignment"]
_PARTITION_COLUMNS = ["topic", "partition", "offset", "end", "lag", "consumer"]


def describe(
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="Group names.", show_default=False)],
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Describe groups: members and what they read, offsets and lag, and why a member was last put out."""
    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    groups = [_described(cluster, name) for name in dict.fromkeys(names)]
    if output is Output.JSON:
        print_json(groups)
        return
    for index, group in enumerate(groups):
        if index:
            say()
        _print(group)


def _described(cluster: "Cluster", name: str) -> dict[str, Any]:
    from penstock.cli.group_requests import describe_group

    group = describe_group(cluster, name)
    if group is None:
        raise Failed(_no_group(cluster, name))
    partitions = _partition_rows(cluster, group)
    lags = [row["lag"] for row in partitions if row["lag"] is not None]
    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": group.coordinator,
        "lag": sum(lags) if lags else None,
        "last_eviction": group.last_eviction,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "assignment": member.assignment,
            }
            for member in group.members
        ],
        "partitions": partitions,
    }


def _partition_rows(cluster: "Cluster", group: "DescribedGroup") -> list[dict[str, Any]]:
    """Every partition that somebody reads or that has a committed offset."""
    from penstock.cli.group_requests import committed_offsets

    committed = committed_offsets(cluster, group.name)
    readers = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    ends = _ends(cluster, sorted(committed.keys() | readers.keys()))
    rows = []
    for (topic, partition), end in ends.items():
        offset = committed.get((topic, partition))
        reader = readers.get((topic, partition))
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "end": end,
                # A log that was cut short, or a seek past its end, leaves the group ahead of it.
                "lag": None if offset is None or end is None else max(0, end - offset),
                "consumer": reader.member_id if reader else None,
                "client": reader.client_id if reader else None,
                "host": reader.host if reader else None,
            }
        )
    return rows


def _ends(cluster: "Cluster", wanted: list[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
    """None where the partition is gone or has no leader: offsets outlive it."""
    from confluent_kafka import TopicPartition

    from penstock.cli.connection import end_offsets

    led = {
        (name, number)
        for name, topic in cluster.topics().items()
        for number, partition in topic.partitions.items()
        if partition.leader >= 0
    }
    askable = [key for key in wanted if key in led]
    found = dict(zip(askable, end_offsets(cluster, [TopicPartition(*key) for key in askable]), strict=True))
    return {key: found.get(key) for key in wanted}


def _no_group(cluster: "Cluster", name: str) -> str:
    import difflib

    from penstock.cli.group_requests import list_groups

    near = difflib.get_close_matches(name, [group.name for group in list_groups(cluster)], n=1)
    hint = f"did you mean '{near[0]}'?" if near else "`penstock group list` shows those that are."
    return f"there is no group '{name}'; {hint}"


def _print(group: dict[str, Any]) -> None:
    coordinator = group["coordinator"]
    summary = {name: group[name] for name in ("group", "state", "type", "assignor", "epoch")}
    summary["coordinator"] = f"{coordinator['id']} ({coordinator['host']}:{coordinator['port']})"
    summary["members"] = len(group["members"])
    summary["lag"] = group["lag"]
    summary["last_eviction"] = group["last_eviction"]
    print_pairs(summary)
    if group["members"]:
        say()
        rows = [member | {"assignment": assignment_text(member["assignment"])} for member in group["members"]]
        print_rows(rows, _MEMBER_COLUMNS, Output.TEXT)
    if group["partitions"]:
        say()
        print_rows(group["partitions"], _PARTITION_COLUMNS, Output.TEXT)


def assignment_text(assignment: dict[str, list[int]]) -> str | None:
    """`orders:0-2,5 audit:1`; None for a member that reads nothing."""
    return " ".join(f"{topic}:{_ranges(numbers)}" for topic, numbers in assignment.items() if numbers) or None


def _ranges(numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
