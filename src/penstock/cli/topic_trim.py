"""penstock topic trim: delete records from the start of a topic's partitions."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import Failed, Misused
from penstock.cli.offsets import BadOffset, parse_time_ms
from penstock.cli.options import (
    DEFAULT_BROKERS,
    NONE_GIVEN,
    Brokers,
    ClientProperties,
    OutputOption,
    Yes,
    parse_partitions,
)
from penstock.cli.printing import Output, is_terminal, note, plural, print_rows

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster


def trim(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic.", show_default=False)],
    offset: Annotated[
        int, typer.Option("--offset", help="Delete what is before this offset.", show_default=False)
    ] = -1,
    before: Annotated[
        str, typer.Option("--before", metavar="TIME", help="Delete what is older: a date, -24h.", show_default=False)
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Delete every record.")] = False,
    partitions: Annotated[
        str, typer.Option("-p", "--partitions", help="Only these: 0,2,4-6.", show_default=False)
    ] = "",
    yes: Yes = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete records from the start of partitions, for good.

    penstock topic trim orders --before -24h
    """
    if (offset >= 0) + bool(before) + everything != 1:
        raise Misused("say how far to trim: one of --offset N, --before TIME, --all")
    from penstock.cli.connection import connect

    before_ms = None
    if before:
        try:
            before_ms = parse_time_ms(before, time.time_ns() // 1_000_000)
        except BadOffset as error:
            raise Misused(str(error)) from error
    cluster = connect(brokers, extra)
    chosen = parse_partitions(partitions) if partitions else None
    rows = _plan(cluster, name, chosen, offset if offset >= 0 else None, before_ms)
    count = sum(row["deleted"] for row in rows)
    if count and not yes:
        _ask(name, count)
    if count:
        _delete(cluster, name, rows)
    else:
        note(f"{name}: nothing to trim")
    print_rows(rows, ["partition", "old_start", "new_start", "end", "deleted"], output)


def _plan(
    cluster: "Cluster", name: str, chosen: list[int] | None, offset: int | None, before_ms: int | None
) -> list[dict[str, Any]]:
    """Where each partition will start: never before its start, never after its end."""
    from confluent_kafka import TopicPartition

    from penstock.cli.connection import end_offsets, first_offsets, offsets_at

    existing = cluster.partitions_of(name)
    missing = sorted(set(chosen or ()) - set(existing))
    if missing:
        raise Failed(f"'{name}' has no partition {missing[0]}; it has {len(existing)}")
    targets = [TopicPartition(name, partition) for partition in chosen or existing]
    starts = first_offsets(cluster, targets)
    ends = end_offsets(cluster, targets)
    wanted = list(ends) if offset is None else [offset] * len(targets)
    if before_ms is not None:
        found = offsets_at(cluster, targets, before_ms)
        wanted = [end if at < 0 else at for at, end in zip(found, ends, strict=True)]
    rows = []
    for target, start, end, want in zip(targets, starts, ends, wanted, strict=True):
        new_start = max(start, min(want, end))
        row = {"partition": target.partition, "old_start": start, "new_start": new_start, "end": end}
        rows.append(row | {"deleted": new_start - start})
    return rows


def _ask(name: str, count: int) -> None:
    question = f"Delete up to {plural(count, 'record')} of '{name}' for good?"
    if not is_terminal(sys.stdin):
        raise Misused(f"{question} Nobody is here to answer: say --yes")
    typer.confirm(question, abort=True, err=True)


def _delete(cluster: "Cluster", name: str, rows: list[dict[str, Any]]) -> None:
    from confluent_kafka import TopicPartition

    targets = [TopicPartition(name, row["partition"], row["new_start"]) for row in rows if row["deleted"]]
    futures = cluster.admin().delete_records(targets)
    new_starts = {target.partition: cluster.answer(future).low_watermark for target, future in futures.items()}
    for row in rows:
        row["new_start"] = new_starts.get(row["partition"], row["new_start"])
