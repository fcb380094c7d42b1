"""`penstock txn` against a running node, with transactions left open."""

import json

import pytest
from confluent_kafka import KafkaException, Producer

from tests.integration.conftest import Penstock

SECONDS_MAX = 30


@pytest.fixture
def left_open(node: str, topic: str) -> Producer:
    """A producer in the middle of a transaction that has the name of the topic."""
    producer = Producer({"bootstrap.servers": node, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"not decided", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    return producer


def test_list_and_describe_show_what_is_open_and_for_how_long(
    penstock: Penstock, topic: str, left_open: Producer
) -> None:
    rows = json.loads(penstock("txn", "list", "--state", "ongoing", "-o", "json").stdout)
    (row,) = [row for row in rows if row["transaction"] == topic]
    assert row["state"] == "Ongoing"
    assert row["partitions"] == [f"{topic}-0"]
    assert 0 <= row["age_ms"] < SECONDS_MAX * 1000
    assert row["timeout_ms"] == 60_000
    described = penstock("txn", "describe", topic).stdout
    assert "Ongoing" in described
    assert f"{topic}-0" in described
    assert topic in penstock("txn", "list").stdout
    left_open.commit_transaction(SECONDS_MAX)
    (row,) = [row for row in json.loads(penstock("txn", "list", "-o", "json").stdout) if row["transaction"] == topic]
    assert row["state"] in ("PrepareCommit", "CompleteCommit")
    assert row["age_ms"] is None or row["state"] == "PrepareCommit"


def test_abort_by_id_fences_the_producer(penstock: Penstock, topic: str, left_open: Producer) -> None:
    penstock("txn", "abort", topic, "--yes")
    assert json.loads(penstock("txn", "describe", topic, "-o", "json").stdout)["partitions"] == []
    with pytest.raises(KafkaException):
        left_open.commit_transaction(SECONDS_MAX)


def test_abort_in_a_partition_lets_readers_of_committed_records_get_on(
    penstock: Penstock, topic: str, left_open: Producer
) -> None:
    penstock("produce", topic, "-p", "0", stdin="after\n")
    penstock("txn", "abort", "--topic", topic, "--partition", "0", "--yes")
    read = penstock("consume", topic, "-p", "0", "-n", "1", "-X", "isolation.level=read_committed")
    assert json.loads(read.stdout)["value"] == "after"
    assert penstock("txn", "abort", "--topic", topic, "--partition", "0", "--yes", exit_code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("abort",), 2),
        (("abort", "x", "--topic", "y"), 2),
        (("abort", "--topic", "y"), 2),
        (("list", "--state", "odd"), 2),
        (("describe", "nobody"), 1),
        (("abort", "nobody", "--yes"), 1),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    penstock: Penstock, left_open: Producer, arguments: tuple[str, ...], code: int
) -> None:
    refused = penstock("txn", *arguments, exit_code=code)
    assert refused.stderr.startswith("penstock: ")
    assert "Traceback" not in refused.stderr


def test_nothing_is_aborted_unless_somebody_agrees(penstock: Penstock, topic: str, left_open: Producer) -> None:
    assert "--yes" in penstock("txn", "abort", topic, exit_code=2).stderr
    left_open.commit_transaction(SECONDS_MAX)
