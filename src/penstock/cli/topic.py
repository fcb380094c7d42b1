"""penstock topic: create, list, describe, alter, delete, trim."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from penstock.cli.failures import EXIT_FAILED, Misused, error_of, sentence_of
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties, OutputOption, parse_pairs
from penstock.cli.printing import Output, plural, print_rows
from penstock.cli.topic_describe import describe
from penstock.cli.topic_trim import trim

app = typer.Typer(help="Create, look at, change and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Topic names.", show_default=False)]
SetPairs = Annotated[list[str], typer.Option("-s", "--set", metavar="NAME=VALUE", help="Set a setting; repeatable.")]
DeleteNames = Annotated[
    list[str], typer.Option("-d", "--delete", metavar="NAME", help="A setting back to its default; repeatable.")
]


def create(
    names: Names,
    partitions: Annotated[int, typer.Option("-p", "--partitions", help="-1 is the broker's default.")] = -1,
    replicas: Annotated[int, typer.Option("-r", "--replicas", help="-1 is the broker's default.")] = -1,
    settings: Annotated[
        list[str],
        typer.Option("-c", "--topic-config", metavar="NAME=VALUE", help="A setting of the topic; repeatable."),
    ] = NONE_GIVEN,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no error.")] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create topics.

    penstock topic create orders -p 6 -c retention.ms=3600000
    """
    from confluent_kafka import KafkaError
    from confluent_kafka.cimpl import NewTopic

    from penstock.cli.connection import connect

    pairs = parse_pairs(settings, "-c")
    cluster = connect(brokers, extra)
    wanted = [NewTopic(name, partitions, replicas, config=pairs) for name in dict.fromkeys(names)]
    futures = cluster.asked(lambda: cluster.admin().create_topics(wanted))
    tolerated = {KafkaError.TOPIC_ALREADY_EXISTS: "exists already"} if if_not_exists else {}
    _finish(_outcomes(futures, "created", tolerated), output)


def list_topics(
    pattern: Annotated[str, typer.Argument(metavar="REGEX", help="Only names that match.", show_default=False)] = "",
    internal: Annotated[bool, typer.Option("--internal", "-i", help="Internal topics too.")] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """List topics."""
    from penstock.cli.connection import connect

    try:
        matches = re.compile(pattern).search
    except re.error as error:
        raise Misused(f"'{pattern}' is not a regular expression: {error}") from error
    rows = []
    for name, topic in sorted(connect(brokers, extra).topics().items()):
        if matches(name) and (internal or not name.startswith("__")):
            replicas = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
            rows.append({"name": name, "partitions": len(topic.partitions), "replicas": replicas})
    print_rows(rows, ["name", "partitions", "replicas"], output)


def delete(
    names: Names,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete topics with everything in them."""
    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    futures = cluster.asked(lambda: cluster.admin().delete_topics(list(dict.fromkeys(names))))
    _finish(_outcomes(futures, "deleted"), output)


def alter(
    names: Names,
    set_: SetPairs = NONE_GIVEN,
    delete: DeleteNames = NONE_GIVEN,
    partitions: Annotated[
        int, typer.Option("-p", "--partitions", help="Grow to this many partitions.", show_default=False)
    ] = 0,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Change settings of topics, or give them more partitions.

    penstock topic alter orders --set retention.ms=3600000 --delete cleanup.policy --partitions 12
    """
    if not (set_ or delete or partitions):
        raise Misused("nothing to change: give --set NAME=VALUE, --delete NAME or --partitions N")
    from confluent_kafka.cimpl import NewPartitions

    from penstock.cli.connection import connect
    from penstock.cli.settings_requests import Change, topic_resource
    from penstock.cli.settings_requests import alter as alter_settings

    changes = [Change(name, value) for name, value in parse_pairs(set_, "--set").items()]
    changes += [Change(name, None) for name in delete]
    cluster = connect(brokers, extra)
    outcomes = []
    if changes:
        outcomes += [(name, "changed", alter_settings(cluster, topic_resource(name), changes)) for name in names]
    if partitions:
        futures = cluster.admin().create_partitions([NewPartitions(name, partitions) for name in names])
        outcomes += _outcomes(futures, f"grown to {plural(partitions, 'partition')}")
    _finish(outcomes, output)


def alter_config(
    names: Names,
    set_: SetPairs = NONE_GIVEN,
    delete: DeleteNames = NONE_GIVEN,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """rpk's name for `topic alter --set/--delete`."""
    alter(names, set_, delete, 0, brokers, extra, output)


def add_partitions(
    names: Names,
    number: Annotated[int, typer.Option("-n", "--num", min=1, help="How many to add to each topic.")],
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """rpk's way to grow a topic: by how many, where `topic alter --partitions` says to how many."""
    from confluent_kafka.cimpl import NewPartitions

    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    totals = [NewPartitions(name, len(cluster.partitions_of(name)) + number) for name in names]
    _finish(_outcomes(cluster.admin().create_partitions(totals), "grown"), output)


# (topic, what was done, why it failed or None)
Outcome = tuple[str, str, str | None]


def _outcomes(futures: Mapping[str, Any], done: str, tolerated: Mapping[int, str] | None = None) -> list[Outcome]:
    from confluent_kafka import KafkaException

    outcomes: list[Outcome] = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as exception:
            error = error_of(exception)
            if tolerated and error.code() in tolerated:
                outcomes.append((name, tolerated[error.code()], None))
            else:
                outcomes.append((name, "failed", sentence_of(error)))
        else:
            outcomes.append((name, done, None))
    return outcomes


def _finish(outcomes: list[Outcome], output: Output) -> None:
    """Prints what became of each topic; fails if any of them failed."""
    failed = any(problem for _, _, problem in outcomes)
    rows = [
        {"topic": name, "status": "failed" if problem else done, "error": problem} for name, done, problem in outcomes
    ]
    print_rows(rows, ["topic", "status", "error"] if failed else ["topic", "status"], output)
    if failed:
        raise typer.Exit(EXIT_FAILED)


app.command()(create)
app.command("list")(list_topics)
app.command()(describe)
app.command()(alter)
app.command()(delete)
app.command()(trim)
# rpk's names.
app.command(hidden=True)(alter_config)
app.command(hidden=True)(add_partitions)
app.command("trim-prefix", hidden=True)(trim)
