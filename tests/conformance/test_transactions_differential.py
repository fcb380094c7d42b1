"""The same raw requests of transactions to Apache Kafka and to Penstock: the answers are the same, field by field.

What may differ is below, each with its reason.
"""

from collections.abc import Iterator

import pytest

from tests.conformance.accepted_differences import Accepted, unexpected_differences
from tests.conformance.apache_kafka import KafkaNode
from tests.conformance.cases.transactions import TRANSACTION_CASES, Transactions
from tests.conformance.cluster import Cluster
from tests.e2e.node import Node

# One worker runs them all, so that Kafka is started once.
pytestmark = [pytest.mark.java, pytest.mark.xdist_group("apache-kafka")]

# Regular expressions of the whole name of the case, and of the end of the path to the field.
ACCEPTED: list[Accepted] = []


@pytest.fixture(scope="module")
def small_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One with as few partitions for coordinators as the Kafka beside it."""
    settings = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
    arguments = [word for setting in settings for word in ("-X", setting)]
    node = Node(tmp_path_factory.mktemp("transactions") / "data", *arguments).start()
    yield node
    node.close()


@pytest.mark.parametrize("name", sorted(TRANSACTION_CASES))
def test_penstock_answers_about_transactions_as_apache_kafka_does(
    name: str, apache_kafka: KafkaNode, small_broker: Node
) -> None:
    answers = []
    for port in (apache_kafka.port, small_broker.port):
        transactions = Transactions(Cluster(port), name)
        try:
            transactions.prepare()
            answers.append(TRANSACTION_CASES[name](transactions))
        finally:
            transactions.cluster.close()
    kafka, penstock = answers
    unexpected = unexpected_differences(name, kafka, penstock, ACCEPTED)
    assert not unexpected, f"{len(unexpected)} differences\n" + "\n".join(unexpected[:60])
