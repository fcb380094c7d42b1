"""The same raw requests of consumer groups to Apache Kafka and to Penstock: the answers are the same, field by field.

What may differ is below, each with its reason.
"""

from collections.abc import Iterator

import pytest

from tests.conformance.accepted_differences import Accepted, unexpected_differences
from tests.conformance.apache_kafka import KafkaNode
from tests.conformance.cases import groups_consumer, groups_offsets
from tests.conformance.cases.group_requests import Groups
from tests.conformance.cases.groups import GROUP_CASES
from tests.conformance.cluster import Cluster
from tests.e2e.node import Node

# One worker runs them all, so that Kafka is started once.
pytestmark = [pytest.mark.java, pytest.mark.xdist_group("apache-kafka")]

assert all((groups_consumer, groups_offsets))

# Regular expressions of the whole name of the case, and of the end of the path to the field.
ACCEPTED = [
    Accepted(".*", r"\.heartbeat_interval", "while a group settles we ask its members to report each second"),
    Accepted(
        ".*", r"\.groups\[\d\]\.error_message", "we tell there why a member was last put out of a group that is well"
    ),
    Accepted(
        ".*_too_long_for_the_log|find_coordinator_in_every_version",
        r"\.v\d+",
        "Kafka closes the connection for a text of more than 32,767 bytes; we say what is wrong with it",
    ),
    Accepted(
        "find_coordinators_of_other_kinds", r"\.error_message", "we say why where Kafka says nothing: no share groups"
    ),
    Accepted(
        "a_group_that_cannot_be_taken_over",
        r"\[2\]\.v\d\.error_(code|message)",
        "members with metadata that is no subscription: Kafka fails with UNKNOWN_SERVER_ERROR",
    ),
    Accepted(
        "classic_requests_to_a_consumer_group",
        r"\[0\]\.v\d\.(error_code|member_id)",
        "metadata that is no subscription: Kafka gives out a member id first, or fails with UNKNOWN_SERVER_ERROR",
    ),
]


@pytest.fixture(scope="module")
def eager_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One that does not wait for more members at first, as the Kafka beside it."""
    settings = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")
    arguments = [word for setting in settings for word in ("-X", setting)]
    node = Node(tmp_path_factory.mktemp("eager") / "data", *arguments).start()
    yield node
    node.close()


@pytest.mark.parametrize("name", sorted(GROUP_CASES))
def test_penstock_answers_about_groups_as_apache_kafka_does(
    name: str, apache_kafka: KafkaNode, eager_broker: Node
) -> None:
    answers = []
    for port in (apache_kafka.port, eager_broker.port):
        groups = Groups(Cluster(port))
        try:
            groups.prepare()
            answers.append(GROUP_CASES[name](groups))
        finally:
            groups.cluster.close()
    kafka, penstock = answers
    unexpected = unexpected_differences(name, kafka, penstock, ACCEPTED)
    assert not unexpected, f"{len(unexpected)} differences\n" + "\n".join(unexpected[:60])
