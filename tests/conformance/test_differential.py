"""The same raw requests to Apache Kafka and to Penstock: the answers are the same, field by field.

What may differ is in tests/conformance/accepted_differences.py, each with its reason.
"""

import pytest

from tests.conformance.accepted_differences import ACCEPTED, unexpected_differences
from tests.conformance.apache_kafka import KafkaNode
from tests.conformance.cases import administration, frames, leaders, produce, reading
from tests.conformance.cases.registry import CASES
from tests.conformance.cluster import Cluster
from tests.e2e.node import Node

# One worker runs them all, so that Kafka is started once.
pytestmark = [pytest.mark.java, pytest.mark.xdist_group("apache-kafka")]

assert all((administration, frames, leaders, produce, reading))


@pytest.mark.parametrize("name", sorted(CASES))
def test_penstock_answers_as_apache_kafka_does(name: str, apache_kafka: KafkaNode, shared_broker: Node) -> None:
    case = CASES[name]
    kafka, ours = Cluster(apache_kafka.port), Cluster(shared_broker.port)
    try:
        expected = case(kafka)
        actual = case(ours)
    finally:
        kafka.close()
        ours.close()
    unexpected = unexpected_differences(name, expected, actual, ACCEPTED)
    assert not unexpected, f"{len(unexpected)} differences\n" + "\n".join(unexpected[:40])
