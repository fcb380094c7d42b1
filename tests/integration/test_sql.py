"""Metadata in SQL: from the command line and from Python, live and read-only."""

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock import sql
from penstock.sql import view
from penstock.testing.ports import free_port
from tests.integration.conftest import Penstock


@pytest.fixture
def group(node: str, topic: str) -> str:
    """A group that has committed offset 7 of the topic's partition 1, and has no members."""
    consumer = Consumer({"bootstrap.servers": node, "group.id": f"group-of-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 1, 7)], asynchronous=False)
    consumer.close()
    return f"group-of-{topic}"


def test_topics_are_rows(penstock: Penstock, node: str, topic: str) -> None:
    penstock_topic = json.loads(penstock("topic", "describe", topic, "-o", "json").stdout)[0]
    penstock("topic", "alter", topic, "--set", "retention.ms=1234")
    rows = json.loads(penstock("sql", f"SELECT * FROM Topic WHERE name = '{topic}'", "-o", "json").stdout)
    expected = {"name": topic, "partition_count": 3, "replication_factor": 1, "retention_ms": 1234}
    assert rows == [{"id": penstock_topic["id"]} | expected]


def test_groups_and_offsets_are_rows_that_join(penstock: Penstock, node: str, topic: str, group: str) -> None:
    statement = f"""
        SELECT protocol, topic, partition, consumer_id, offset, partition_count
        FROM PartitionAssignment JOIN ConsumerGroup USING (group_id) JOIN Topic ON name = topic
        WHERE group_id = '{group}'
    """
    (row,) = json.loads(penstock("sql", statement, "-o", "json").stdout)
    assert row == {
        "protocol": "classic",
        "topic": topic,
        "partition": 1,
        "consumer_id": None,
        "offset": 7,
        "partition_count": 3,
    }


def test_who_reads_a_partition_is_in_its_row(node: str, topic: str) -> None:
    group_id = f"live-{topic}"
    consumer = Consumer({"bootstrap.servers": node, "group.id": group_id, "group.protocol": "consumer"})
    consumer.subscribe([topic])
    try:
        while len(consumer.assignment()) < 3:
            consumer.poll(0.1)
        rows = sql.query(f"SELECT * FROM PartitionAssignment WHERE group_id = '{group_id}'", node)
        (protocol,) = sql.query(f"SELECT protocol FROM ConsumerGroup WHERE group_id = '{group_id}'", node)
        member_id = consumer.memberid()
    finally:
        consumer.close()
    common = {"group_id": group_id, "topic": topic, "consumer_id": member_id, "offset": None}
    assert rows == [common | {"partition": number} for number in range(3)]
    assert protocol == {"protocol": "consumer"}


def test_a_group_has_the_same_id_each_time(node: str, group: str) -> None:
    statement = f"SELECT id FROM ConsumerGroup WHERE group_id = '{group}'"
    (first,) = sql.query(statement, node)
    assert len(first["id"]) == 22
    assert sql.query(statement, node) == [first]


def test_the_view_is_live(penstock: Penstock, node: str, topic: str) -> None:
    statement = f"SELECT partition_count FROM topic WHERE name = '{topic}'"
    assert sql.query(statement, node) == [{"partition_count": 3}]
    penstock("topic", "alter", topic, "--partitions", "5")
    assert sql.query(statement, node) == [{"partition_count": 5}]


def test_text_is_for_people_and_csv_for_programs(penstock: Penstock, topic: str, group: str) -> None:
    statement = f"SELECT topic, consumer_id, offset FROM PartitionAssignment WHERE group_id = '{group}'"
    heading, line = penstock("sql", statement).stdout.splitlines()
    assert (heading.split(), line.split()) == (["TOPIC", "CONSUMER", "ID", "OFFSET"], [topic, "-", "7"])
    rows = list(csv.reader(io.StringIO(penstock("sql", statement, "-o", "csv").stdout)))
    assert rows == [["topic", "consumer_id", "offset"], [topic, "", "7"]]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM Topic",
        "INSERT INTO ConsumerGroup VALUES ('a', 'b', 'c')",
        "UPDATE PartitionAssignment SET offset = 0",
        "DROP TABLE Topic",
        "CREATE TABLE mine (x)",
        "PRAGMA query_only = 0",
        "BEGIN",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'other.db'",
    ],
)
def test_what_would_write_is_refused_in_a_sentence(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = penstock("sql", statement, exit_code=2)
    assert refused.stderr == ("penstock: the tables are a read-only view of the cluster: only SELECT is served\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("SELECT * FROM Topics", "no such table: Topics"),
        ("SELECT colour FROM Topic", "no such column: colour"),
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("", "incomplete input"),
    ],
)
def test_wrong_sql_is_answered_in_a_sentence(penstock: Penstock, statement: str, complaint: str) -> None:
    assert complaint in penstock("sql", statement, exit_code=2).stderr


def test_columns_of_one_name_need_another_in_json(penstock: Penstock, topic: str) -> None:
    statement = f"SELECT a.id, b.id FROM Topic a JOIN Topic b USING (name) WHERE name = '{topic}'"
    assert "two columns are called 'id'" in penstock("sql", statement, "-o", "json", exit_code=2).stderr
    assert penstock("sql", statement, "-o", "csv").stdout.startswith("id,id\n")


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SELECT 1", []),
        ('select * from "topic"', ["Topic"]),
        ("SELECT protocol FROM ConsumerGroup", ["ConsumerGroup"]),
        (
            "SELECT * FROM partitionassignment JOIN CONSUMERGROUP USING (group_id)",
            ["ConsumerGroup", "PartitionAssignment"],
        ),
    ],
)
def test_only_what_a_statement_mentions_is_asked_for(statement: str, names: list[str]) -> None:
    assert view.mentioned(statement) == names


def test_tables_are_one_moment_in_a_connection_that_can_only_be_read(node: str, topic: str, group: str) -> None:
    with closing(sql.tables(node)) as connection:
        (row,) = connection.execute("SELECT * FROM Topic WHERE name = ?", [topic]).fetchall()
        assert (row["name"], row["partition_count"], tuple(row)[1]) == (topic, 3, topic)
        assert connection.execute("SELECT * FROM ConsumerGroup WHERE group_id = ?", [group]).fetchone()["protocol"]
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            connection.execute("DELETE FROM Topic")


def test_a_statement_that_is_wrong_asks_nobody() -> None:
    with pytest.raises(sql.BadStatement, match="only SELECT is served"):
        sql.query("DELETE FROM Topic", f"127.0.0.1:{free_port()}")


def test_the_three_tables_have_the_columns_that_were_asked_for() -> None:
    columns = {name: [each.split()[0] for each in text.split(",")] for name, text in sql.SCHEMA.items()}
    assert columns == {
        "Topic": ["id", "name", "partition_count", "replication_factor", "retention_ms"],
        "ConsumerGroup": ["id", "group_id", "protocol"],
        "PartitionAssignment": ["group_id", "topic", "partition", "consumer_id", "offset"],
    }
