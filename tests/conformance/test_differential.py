"""The same raw requests to Apache Kafka and to Penstock: the answers are the same, field by field.

What may differ is in tests/conformance/accepted_differences.py, each with its reason.
"""

import re
from collections.abc import Iterable

import pytest

from tests.conformance.accepted_differences import is_accepted
from tests.conformance.apache_kafka import KafkaNode
from tests.conformance.cases import administration, frames, leaders, produce, reading
from tests.conformance.cases.registry import CASES
from tests.conformance.cluster import Cluster
from tests.conformance.normalise import Difference, differences
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
    unexpected = _gathered(
        found for found in differences(expected, actual) if not is_accepted(name, found[0], found[1], found[2])
    )
    assert not unexpected, f"{len(unexpected)} differences\n" + "\n".join(unexpected[:40])


def _gathered(found: Iterable[Difference]) -> list[str]:
    """One line per difference, however many versions show it."""
    versions: dict[tuple[str, str], list[str]] = {}
    for path, kafka, penstock in found:
        version = re.search(r"\bv\d+\b", path)
        general = re.sub(r"\bv\d+\b", "v*", path, count=1)
        key = general, f"\n    Kafka:    {kafka!r}\n    Penstock: {penstock!r}"
        versions.setdefault(key, []).append(version[0] if version else "")
    return [f"{path} {' '.join(which)}{what}" for (path, what), which in versions.items()]
