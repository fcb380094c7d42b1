"""Tables in memory, filled for one statement or for one moment, and a guard that lets nothing but reading through."""

import sqlite3
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from penstock.sql import source

DEFAULT_BROKERS = "127.0.0.1:9092"

SCHEMA = {
    "Topic": "id TEXT, name TEXT, partition_count INTEGER, replication_factor INTEGER, retention_ms INTEGER",
    "ConsumerGroup": "id TEXT, group_id TEXT, protocol TEXT",
    "PartitionAssignment": "group_id TEXT, topic TEXT, partition INTEGER, consumer_id TEXT, offset INTEGER",
}
"""The columns of each table, as SQL declares them."""

_ROWS: Mapping[str, Callable[[AdminClient], list[source.Row]]] = {
    "Topic": source.topics,
    "ConsumerGroup": source.groups,
    "PartitionAssignment": source.assignments,
}
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
# How often, in sqlite's steps, a long statement lets Python look for Ctrl-C.
_STEPS_BETWEEN_LOOKS = 100_000


class BadStatement(ValueError):
    """Not one SQL statement that only reads; the message says why."""


class Answer(NamedTuple):
    columns: list[str]
    rows: list[tuple[Any, ...]]


def query(
    statement: str, brokers: str = DEFAULT_BROKERS, properties: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The rows that a SELECT gives, as dictionaries, over tables asked of the cluster for this one statement.

    `properties` are librdkafka's, for clusters that want more than an address. Raises BadStatement for SQL that is
    wrong or would change something, KafkaException when the cluster does not answer.
    """
    answer = run(statement, _admin(brokers, properties))
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def tables(brokers: str = DEFAULT_BROKERS, properties: Mapping[str, Any] | None = None) -> sqlite3.Connection:
    """Topic, ConsumerGroup and PartitionAssignment as they are now, in a connection that can only be read.

        with contextlib.closing(penstock.sql.tables("127.0.0.1:9092")) as connection:
            for row in connection.execute("SELECT name, retention_ms FROM Topic"):
                print(row["name"], row["retention_ms"])

    Rows answer by position and by name (sqlite3.Row). The tables stay as they were; a new call takes new ones. Raises
    KafkaException when the cluster does not answer.
    """
    connection = _filled(SCHEMA, _admin(brokers, properties))
    connection.row_factory = sqlite3.Row
    _guard(connection, set())
    return connection


def run(statement: str, admin: AdminClient) -> Answer:
    """What `query` does, with a client that is there already."""
    connection = _filled(_mentioned(statement), admin)
    _guard(connection, set())
    connection.set_progress_handler(lambda: 0, _STEPS_BETWEEN_LOOKS)
    try:
        cursor = connection.execute(statement)
        return Answer([column[0] for column in cursor.description], cursor.fetchall())
    except (sqlite3.Error, sqlite3.Warning) as error:
        if str(error) == "interrupted":
            raise KeyboardInterrupt from error
        raise BadStatement(str(error)) from error
    finally:
        connection.close()


def _admin(brokers: str, properties: Mapping[str, Any] | None) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers, **(properties or {})})


def _filled(names: Collection[str], admin: AdminClient) -> sqlite3.Connection:
    connection = _with_tables()
    for name in names:
        marks = ", ".join("?" * (SCHEMA[name].count(",") + 1))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", _ROWS[name](admin))
    connection.commit()
    return connection


def _with_tables() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for name, columns in SCHEMA.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")
    return connection


def _mentioned(statement: str) -> set[str]:
    """The tables that sqlite would read: it is asked to explain the statement, not to run it. Raises BadStatement."""
    connection = _with_tables()
    names: set[str] = set()
    refused = _guard(connection, names)
    try:
        connection.execute(f"EXPLAIN {statement}")
    except (sqlite3.Error, sqlite3.Warning) as error:
        if refused:
            raise BadStatement("the tables are a read-only view of the cluster: only SELECT is served") from error
        raise BadStatement(str(error)) from error
    finally:
        connection.close()
    return names & SCHEMA.keys()


def _guard(connection: sqlite3.Connection, read: set[str]) -> list[int]:
    """Lets through only what reads, and notes the tables it reads in `read`. What it refused comes into the list."""
    refused: list[int] = []

    def allow(action: int, table: str | None, column: str | None, database: str | None, trigger: str | None) -> int:
        if action not in _READING:
            refused.append(action)
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ and table:
            read.add(table)
        return sqlite3.SQLITE_OK

    connection.set_authorizer(allow)
    return refused
