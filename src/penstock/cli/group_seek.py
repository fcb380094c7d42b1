"""penstock group seek: where a group goes on reading when its consumers come back."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import EXIT_FAILED, Failed, Misused, error_of, sentence_of
from penstock.cli.group_plan import (
    Move,
    PartitionState,
    Target,
    Where,
    moved_to,
    parse_offsets,
    parse_target,
    parse_topics,
    plan,
)
from penstock.cli.offsets import BadOffset
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption
from penstock.cli.printing import Output, note, plural, print_rows

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, change nothing.")]
OffsetsFile = Annotated[
    str,
    typer.Option(
        "--to-file", "--from-file", metavar="FILE", help="Lines of TOPIC PARTITION OFFSET.", show_default=False
    ),
]

# One place for all partitions, or an offset for each.
Destination = Target | Mapping[tuple[str, int], int]


def seek(
    group: Group,
    to: Annotated[
        str,
        typer.Option("--to", metavar="WHERE", help="start, end, an offset, +N, -N or a time.", show_default=False),
    ] = "",
    file: OffsetsFile = "",
    topics: Annotated[
        list[str],
        typer.Option("--topics", "-t", metavar="TOPIC", help="Only these: a,b or a:0,2-4; repeatable."),
    ] = NONE_GIVEN,
    dry_run: DryRun = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move a group that has no members: its consumers go on from there when they come back.

    penstock group seek billing --to -1h --topics orders
    """
    if bool(to) == bool(file):
        raise Misused("say where to: one of --to WHERE, --to-file FILE")
    move(group, offsets_of(file) if file else target_of(to), topics, dry_run, (brokers, extra), output)


def target_of(text: str) -> Target:
    try:
        return parse_target(text, time.time_ns() // 1_000_000)
    except BadOffset as error:
        raise Misused(str(error)) from error


def offsets_of(file: str) -> dict[tuple[str, int], int]:
    try:
        return parse_offsets(Path(file).read_text())
    except OSError as error:
        raise Failed(f"cannot read {file}: {error.strerror}") from error
    except (BadOffset, UnicodeDecodeError) as error:
        raise Misused(f"{file}: {error}") from error


def move(
    group: str,
    destination: Destination,
    topics: list[str],
    dry_run: bool,
    where: tuple[str, list[str]],
    output: Output,
) -> None:
    from penstock.cli.connection import connect

    chosen = parse_topics(topics)
    cluster = connect(*where)
    if not dry_run:
        _check_is_empty(cluster, group)
    moves = _planned(cluster, group, destination, chosen)
    _tell_adjusted(moves)
    problems = {} if dry_run else _commit(cluster, group, moves)
    rows = [each.row() | {"error": problems.get((each.state.topic, each.state.partition))} for each in moves]
    columns = ["topic", "partition", "old_offset", "new_offset", "end", "lag"]
    print_rows(rows, [*columns, "error"] if problems else columns, output)
    if dry_run:
        note(f"nothing was changed: this is what would become of '{group}'")
    if problems:
        raise typer.Exit(EXIT_FAILED)


def _check_is_empty(cluster: "Cluster", group: str) -> None:
    """Kafka refuses as well, but with words that nobody understands: unknown member id."""
    from penstock.cli.group_requests import describe_group

    described = describe_group(cluster, group)
    if described is not None and described.members:
        members = plural(len(described.members), "member")
        raise Failed(f"'{group}' has {members} ({described.state}): {_ONLY_EMPTY}")


_ONLY_EMPTY = "a group can be moved only while nobody is in it. Stop its consumers first."


def _planned(
    cluster: "Cluster", group: str, destination: Destination, chosen: Mapping[str, list[int] | None]
) -> list[Move]:
    from confluent_kafka import TopicPartition

    from penstock.cli.connection import end_offsets, first_offsets, offsets_at
    from penstock.cli.group_requests import committed_offsets

    committed = committed_offsets(cluster, group)
    keys = _partitions(cluster, group, destination, chosen, committed)
    targets = [TopicPartition(*key) for key in keys]
    starts, ends = first_offsets(cluster, targets), end_offsets(cluster, targets)
    states = [
        PartitionState(*key, committed.get(key), start, end) for key, start, end in zip(keys, starts, ends, strict=True)
    ]
    if not isinstance(destination, Target):
        return [moved_to(state, destination[state.topic, state.partition]) for state in states]
    found = {}
    if destination.where is Where.TIMESTAMP_MS:
        found = dict(zip(keys, offsets_at(cluster, targets, destination.amount), strict=True))
    try:
        return plan(states, destination, found)
    except BadOffset as error:
        raise Failed(str(error)) from error


def _partitions(
    cluster: "Cluster",
    group: str,
    destination: Destination,
    chosen: Mapping[str, list[int] | None],
    committed: Mapping[tuple[str, int], int],
) -> list[tuple[str, int]]:
    """Those that were named; of a file, those in it; else those that the group has been reading."""
    topics = cluster.topics()
    named = {
        (topic, number)
        for topic, numbers in chosen.items()
        for number in (cluster.partitions_of(topic) if numbers is None else numbers)
    }
    if not isinstance(destination, Target):
        wanted = named & destination.keys() if chosen else set(destination)
    elif chosen:
        wanted = named
    else:
        # Offsets outlive their topic.
        wanted = {(topic, number) for topic, number in committed if topic in topics}
    if not wanted:
        raise Failed(f"'{group}' has no offsets to move: name topics with --topics")
    for topic, number in sorted(wanted):
        if topic not in topics or number not in topics[topic].partitions:
            existing = cluster.partitions_of(topic)
            raise Failed(f"'{topic}' has no partition {number}; it has {len(existing)}")
    return sorted(wanted)


def _tell_adjusted(moves: list[Move]) -> None:
    adjusted = [each for each in moves if each.wanted != each.offset]
    if not adjusted:
        return
    first = adjusted[0]
    others = f" and {plural(len(adjusted) - 1, 'other')}" if len(adjusted) > 1 else ""
    # What was meant may have been a time in seconds, as rpk takes it.
    hint = f" (Write @{first.wanted} for a time.)" if 10**9 <= first.wanted < 10**10 else ""
    where = f"partition {first.state.partition} of '{first.state.topic}'"
    note(f"there is no offset {first.wanted} in {where}{others}: the nearest is taken.{hint}")


def _commit(cluster: "Cluster", group: str, moves: list[Move]) -> dict[tuple[str, int], str]:
    """Why partitions were refused."""
    from confluent_kafka import (
        ConsumerGroupTopicPartitions,
        KafkaError,
        KafkaException,
        TopicPartition,
    )

    partitions = [TopicPartition(each.state.topic, each.state.partition, each.offset) for each in moves]
    question = [ConsumerGroupTopicPartitions(group, partitions)]
    future = cluster.asked(lambda: cluster.admin().alter_consumer_group_offsets(question))[group]
    try:
        results = future.result().topic_partitions
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
            # Somebody came in after we looked.
            raise Failed(f"'{group}' has members: {_ONLY_EMPTY}") from exception
        raise cluster.failure(error) from exception
    return {(each.topic, each.partition): sentence_of(each.error) for each in results if each.error is not None}
