"""Every version of every API that we serve, with the least a request can hold: the answer has that version's form."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from tests.conformance.cluster import APIS_BY_KEY, versions_of
from tests.conformance.wire import (
    ALTER_CONFIGS,
    API_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_CONFIG_RESOURCES,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SYNC_GROUP,
    Wire,
    batch_of,
    create_topic,
    create_topic_of,
    fetch_of,
    list_offsets_of,
    produce,
    produce_of,
)
from tests.e2e.node import Node

TOPIC = 2


def topic_resource(name: str, **fields: Any) -> Struct:
    return Struct(resources=[Struct(resource_type=TOPIC, resource_name=name, **fields)], validate_only=False)


# By API key: the request about a topic with a given name and id. Each creates or deletes only what is its own.
REQUESTS: dict[int, Callable[[str, Any], Struct]] = {
    PRODUCE: lambda name, topic_id: produce_of(name, [(0, batch_of([b"v"]))], topic_id=topic_id),
    FETCH: lambda name, topic_id: fetch_of(name, [(0, 0)], topic_id=topic_id),
    LIST_OFFSETS: lambda name, _: list_offsets_of(name, [(0, -1)]),
    METADATA: lambda name, _: Struct(topics=[Struct(name=name)], allow_auto_topic_creation=False),
    API_VERSIONS: lambda *_: Struct(client_software_name="test", client_software_version="1"),
    CREATE_TOPICS: lambda name, _: create_topic_of(f"{name}-new"),
    DELETE_TOPICS: lambda name, _: Struct(topic_names=[name], topics=[Struct(name=name)], timeout=10_000),
    DELETE_RECORDS: lambda name, _: Struct(
        topics=[Struct(name=name, partitions=[Struct(partition_index=0, offset=1)])], timeout=10_000
    ),
    INIT_PRODUCER_ID: lambda *_: Struct(transactional_id=None, transaction_timeout=1000),
    OFFSET_FOR_LEADER_EPOCH: lambda name, _: Struct(
        replica_id=-1, topics=[Struct(topic=name, partitions=[Struct(partition=0, leader_epoch=0)])]
    ),
    DESCRIBE_CONFIGS: lambda name, _: topic_resource(name, configuration_keys=None),
    ALTER_CONFIGS: lambda name, _: topic_resource(name, configs=[Struct(name="retention.ms", value="1")]),
    DESCRIBE_LOG_DIRS: lambda name, _: Struct(topics=[Struct(topic=name, partitions=[0])]),
    CREATE_PARTITIONS: lambda name, _: Struct(topics=[Struct(name=name, count=2, assignments=None)], timeout=10_000),
    INCREMENTAL_ALTER_CONFIGS: lambda name, _: topic_resource(
        name, configs=[Struct(name="retention.ms", config_operation=0, value="1")]
    ),
    DESCRIBE_CLUSTER: lambda *_: Struct(),
    LIST_CONFIG_RESOURCES: lambda *_: Struct(resource_types=[]),
    DESCRIBE_TOPIC_PARTITIONS: lambda name, _: Struct(topics=[Struct(name=name)]),
    # Groups have the name of the topic.
    OFFSET_COMMIT: lambda name, topic_id: Struct(
        group_id=name,
        generation_id_or_member_epoch=-1,
        topics=[Struct(name=name, topic_id=topic_id, partitions=[Struct(partition_index=0, committed_offset=1)])],
    ),
    OFFSET_FETCH: lambda name, topic_id: Struct(
        group_id=name,
        topics=[Struct(name=name, partition_indexes=[0])],
        groups=[Struct(group_id=name, topics=[Struct(name=name, topic_id=topic_id, partition_indexes=[0])])],
    ),
    FIND_COORDINATOR: lambda name, _: Struct(key=name, coordinator_keys=[name]),
    JOIN_GROUP: lambda name, _: Struct(
        group_id=name, session_timeout=1, protocol_type="consumer", protocols=[Struct(name="range", metadata=b"")]
    ),
    HEARTBEAT: lambda name, _: Struct(group_id=name, generation_id=1, member_id="nobody"),
    LEAVE_GROUP: lambda name, _: Struct(group_id=name, member_id="nobody", members=[Struct(member_id="nobody")]),
    SYNC_GROUP: lambda name, _: Struct(
        group_id=name, generation_id=1, member_id="nobody", protocol_type="consumer", protocol_name="range"
    ),
    DESCRIBE_GROUPS: lambda name, _: Struct(groups=[name]),
    LIST_GROUPS: lambda *_: Struct(),
    DELETE_GROUPS: lambda name, _: Struct(groups_names=[name]),
    OFFSET_DELETE: lambda name, _: Struct(
        group_id=name, topics=[Struct(name=name, partitions=[Struct(partition_index=0)])]
    ),
    CONSUMER_GROUP_HEARTBEAT: lambda name, _: Struct(
        group_id=name, member_id="m", member_epoch=0, rebalance_timeout=5000, subscribed_topic_names=[name],
        topic_partitions=[],
    ),
    CONSUMER_GROUP_DESCRIBE: lambda name, _: Struct(group_ids=[name]),
}  # fmt: skip

# Where the least request is refused: nobody is a member, and there is no such group.
REFUSALS = {
    JOIN_GROUP: ErrorCode.invalid_session_timeout,
    HEARTBEAT: ErrorCode.unknown_member_id,
    LEAVE_GROUP: ErrorCode.unknown_member_id,
    SYNC_GROUP: ErrorCode.unknown_member_id,
    DESCRIBE_GROUPS: ErrorCode.group_id_not_found,
    DELETE_GROUPS: ErrorCode.group_id_not_found,
    OFFSET_DELETE: ErrorCode.group_id_not_found,
    CONSUMER_GROUP_DESCRIBE: ErrorCode.group_id_not_found,
}

EVERY_VERSION = [(key, version) for key in APIS_BY_KEY for version in versions_of(key)]


def error_codes(message: Any) -> Iterator[ErrorCode]:
    """All of them, however deep."""
    if isinstance(message, tuple):
        for item in message:
            yield from error_codes(item)
    elif hasattr(message, "__dataclass_fields__"):
        for name in message.__dataclass_fields__:
            value = getattr(message, name)
            if name == "error_code":
                yield value
            else:
                yield from error_codes(value)


def test_there_is_a_request_for_every_api_that_is_served() -> None:
    assert set(REQUESTS) == set(APIS_BY_KEY)


@pytest.mark.parametrize(
    ("api_key", "version"), EVERY_VERSION, ids=[f"{APIS_BY_KEY[key].name}-{version}" for key, version in EVERY_VERSION]
)
def test_an_answer_has_the_form_of_the_version_and_no_error_but_the_expected(
    shared_broker: Node, topic_name: str, api_key: int, version: int
) -> None:
    with Wire(shared_broker.port) as wire:
        topic_id = create_topic(wire, topic_name)
        assert produce(wire, topic_name, batch_of([b"first"])).error_code == 0
        # As clients do; it makes the topic that groups are kept in.
        assert wire.ask(FIND_COORDINATOR, 3, Struct(key=topic_name)).error_code == 0
        answer = wire.ask(api_key, version, REQUESTS[api_key](topic_name, topic_id))
    assert set(error_codes(answer)) <= {ErrorCode.none, REFUSALS.get(api_key, ErrorCode.none)}
