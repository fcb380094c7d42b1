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

_ROWS: Mapping[str, Callable[[source.Asked], list[source.Row]]] = {
    "Topic": source.topics,
    "ConsumerGroup": source.groups,
    "PartitionAssignment": source.assignments,
}
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_ONLY_READING = "the tables are a read-only view of the cluster: only SELECT is served"
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

    `properties` are librdkafka's, for clusters that want more than an address; PartitionAssignment knows of SASL only
    PLAIN and SCRAM. Raises BadStatement for SQL that is
    wrong or would change something, KafkaException when the cluster does not answer.
    """
    answer = run(statement, _asked(brokers, properties))
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def tables(brokers: str = DEFAULT_BROKERS, properties: Mapping[str, Any] | None = None) -> sqlite3.Connection:
    """Topic, ConsumerGroup and PartitionAssignment as they are now, in a connection that can only be read.

        with contextlib.closing(penstock.sql.tables("127.0.0.1:9092")) as connection:
            for row in connection.execute("SELECT name, retention_ms FROM Topic"):
                print(row["name"], row["retention_ms"])

    Rows answer by position and by name (sqlite3.Row). The tables stay as they were; a new call takes new ones. Raises
    KafkaException when the cluster does not answer.
    """
    connection = _filled(SCHEMA, _asked(brokers, properties))
    connection.row_factory = sqlite3.Row
    _guard(connection)
    return connection


def run(statement: str, asked: source.Asked) -> Answer:
    """What `query` does, with a client that is there already."""
    _check(statement)
    connection = _filled(mentioned(statement), asked)
    refused = _guard(connection)
    connection.set_progress_handler(lambda: 0, _STEPS_BETWEEN_LOOKS)
    try:
        cursor = connection.execute(statement)
        return Answer([column[0] for column in cursor.description], cursor.fetchall())
    except (sqlite3.Error, sqlite3.Warning) as error:
        if str(error) == "interrupted":
            raise KeyboardInterrupt from error
        raise BadStatement(_ONLY_READING if refused else str(error)) from error
    finally:
        connection.close()


def mentioned(statement: str) -> list[str]:
    """The tables that the statement may read: none is read whose name is not there. sqlite's authorizer would be more
    exact but for columns of a USING clause, which it is not told of."""
    return [name for name in SCHEMA if name.lower() in statement.lower()]


def _asked(brokers: str, properties: Mapping[str, Any] | None) -> source.Asked:
    whole = {"bootstrap.servers": brokers, **(properties or {})}
    return source.Asked(AdminClient(whole), whole)


def _filled(names: Collection[str], asked: source.Asked) -> sqlite3.Connection:
    connection = _with_tables()
    for name in names:
        marks = ", ".join("?" * (SCHEMA[name].count(",") + 1))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", _ROWS[name](asked))
    connection.commit()
    return connection


def _with_tables() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for name, columns in SCHEMA.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")
    return connection


def _check(statement: str) -> None:
    """Before the cluster is asked for anything: sqlite explains the statement and does not run it. Raises
    BadStatement."""
    connection = _with_tables()
    refused = _guard(connection)
    try:
        connection.execute(f"EXPLAIN {statement}")
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise BadStatement(_ONLY_READING if refused else str(error)) from error
    finally:
        connection.close()


def _guard(connection: sqlite3.Connection) -> list[int]:
    """Lets through only what reads. The actions that it refused come into the list."""
    refused: list[int] = []

    def allow(action: int, *_: str | None) -> int:
        if action in _READING:
            return sqlite3.SQLITE_OK
        refused.append(action)
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(allow)
    return refused
