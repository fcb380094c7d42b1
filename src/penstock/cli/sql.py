"""penstock sql: the cluster's metadata asked in SQL."""

import csv
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import Misused
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, Brokers, ClientProperties
from penstock.cli.printing import bold, print_json, say, shown, table_lines

if TYPE_CHECKING:
    from penstock.sql.view import Answer


class SqlOutput(StrEnum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def sql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="A SELECT.", show_default=False)],
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: Annotated[
        SqlOutput, typer.Option("-o", "--output", help="text for people, json or csv for programs.")
    ] = SqlOutput.TEXT,
) -> None:
    """Ask about topics and groups in SQL. The tables are a live, read-only view of the cluster.

    Topic (id, name, partition_count, replication_factor, retention_ms)

    ConsumerGroup (id, group_id, protocol)

    PartitionAssignment (group_id, topic, partition, consumer_id, offset)

    penstock sql "SELECT protocol, count(*) FROM ConsumerGroup GROUP BY protocol"
    """
    from penstock.cli.connection import connect
    from penstock.sql.source import Asked
    from penstock.sql.view import BadStatement, run

    cluster = connect(brokers, extra)
    try:
        answer = cluster.asked(lambda: run(statement, Asked(cluster.admin(), cluster.properties)))
    except BadStatement as error:
        raise Misused(str(error)) from error
    _print(answer, output)


def _print(answer: "Answer", output: SqlOutput) -> None:
    if output is SqlOutput.JSON:
        twice = [name for name in answer.columns if answer.columns.count(name) > 1]
        if twice:
            raise Misused(f"two columns are called '{twice[0]}': rename one with AS, or take -o csv")
        print_json([dict(zip(answer.columns, row, strict=True)) for row in answer.rows])
    elif output is SqlOutput.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    else:
        lines = table_lines([[shown(value) for value in row] for row in answer.rows], answer.columns)
        say("\n".join([bold(lines[0]), *lines[1:]]))
