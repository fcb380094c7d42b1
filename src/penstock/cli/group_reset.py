"""penstock group reset: `group seek` with the options of Kafka's own tool."""

from typing import Annotated

import typer

from penstock.cli.failures import Misused
from penstock.cli.group_plan import Target, Where
from penstock.cli.group_seek import Destination, DryRun, Group, move, offsets_of, target_of
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption
from penstock.cli.printing import Output


def reset(
    group: Group,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Past the last record.")] = False,
    to_datetime: Annotated[
        str, typer.Option("--to-datetime", metavar="TIME", help="To the first record since.", show_default=False)
    ] = "",
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="On by N; back if below 0.", show_default=False)
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="To an offset.", show_default=False)
    ] = None,
    file: Annotated[
        str,
        typer.Option("--from-file", metavar="FILE", help="Lines of TOPIC,PARTITION,OFFSET.", show_default=False),
    ] = "",
    topics: Annotated[
        list[str],
        typer.Option("--topic", "--topics", metavar="TOPIC", help="Only these: a or a:0,2; repeatable."),
    ] = NONE_GIVEN,
    dry_run: DryRun = False,
    # Kafka's tool does nothing without these two; here they are what happens anyway.
    all_topics: Annotated[bool, typer.Option("--all-topics", hidden=True)] = False,
    execute: Annotated[bool, typer.Option("--execute", hidden=True)] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """`group seek` as kafka-consumer-groups --reset-offsets writes it; but it acts unless told --dry-run.

    penstock group reset billing --to-datetime 2024-05-01T00:00:00 --topic orders --dry-run
    """
    if dry_run and execute:
        raise Misused("--dry-run and --execute exclude each other")
    if topics and all_topics:
        raise Misused("--topic and --all-topics exclude each other")
    destinations: list[Destination] = []
    if to_earliest:
        destinations.append(Target(Where.START))
    if to_latest:
        destinations.append(Target(Where.END))
    if to_datetime:
        destinations.append(target_of(f"@{to_datetime.removeprefix('@')}"))
    if shift_by is not None:
        destinations.append(Target(Where.SHIFT, shift_by))
    if to_offset is not None:
        destinations.append(Target(Where.OFFSET, to_offset))
    if file:
        destinations.append(offsets_of(file))
    if len(destinations) != 1:
        raise Misused(
            "say where to: one of --to-earliest, --to-latest, --to-datetime, --shift-by, --to-offset, --from-file"
        )
    move(group, destinations[0], topics, dry_run, (brokers, extra), output)
