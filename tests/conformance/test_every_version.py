"""Every version of every API that we serve, with the least a request can hold: the answer has that version's form."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from tests.conformance.cluster import APIS_BY_KEY, versions_of
from tests.conformance.wire import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ADD_RAFT_VOTER,
    ALLOCATE_PRODUCER_IDS,
    ALTER_CONFIGS,
    ALTER_PARTITION,
    ALTER_PARTITION_REASSIGNMENTS,
    API_VERSIONS,
    ASSIGN_REPLICAS_TO_DIRS,
    BEGIN_QUORUM_EPOCH,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CONTROLLER_REGISTRATION,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    ELECT_LEADERS,
    END_QUORUM_EPOCH,
    END_TXN,
    ENVELOPE,
    FETCH,
    FETCH_SNAPSHOT,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_CONFIG_RESOURCES,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    REMOVE_RAFT_VOTER,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
    UPDATE_RAFT_VOTER,
    VOTE,
    WRITE_TXN_MARKERS,
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
    # Transactional ids too.
    ADD_PARTITIONS_TO_TXN: lambda name, _: Struct(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[Struct(name=name, partitions=[0])],
        transactions=[
            Struct(transactional_id=name, producer_id=1, producer_epoch=0, topics=[Struct(name=name, partitions=[0])])
        ],
    ),
    ADD_OFFSETS_TO_TXN: lambda name, _: Struct(transactional_id=name, producer_id=1, producer_epoch=0, group_id=name),
    END_TXN: lambda name, _: Struct(transactional_id=name, producer_id=1, producer_epoch=0, committed=True),
    WRITE_TXN_MARKERS: lambda name, _: Struct(
        markers=[
            Struct(
                producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0,
                topics=[Struct(name=name, partition_indexes=[0])],
            )
        ]
    ),
    TXN_OFFSET_COMMIT: lambda name, _: Struct(
        transactional_id=name, group_id=name, producer_id=1, producer_epoch=0,
        topics=[Struct(name=name, partitions=[Struct(partition_index=0, committed_offset=1)])],
    ),
    DESCRIBE_PRODUCERS: lambda name, _: Struct(topics=[Struct(name=name, partition_indexes=[0])]),
    DESCRIBE_TRANSACTIONS: lambda name, _: Struct(transactional_ids=[name]),
    LIST_TRANSACTIONS: lambda *_: Struct(state_filters=[], producer_id_filters=[], duration_filter=-1),
    # There is no broker 99.
    ELECT_LEADERS: lambda name, _: Struct(
        election_type=0, topic_partitions=[Struct(topic=name, partitions=[0])], timeout=10_000
    ),
    ALTER_PARTITION_REASSIGNMENTS: lambda name, _: Struct(
        topics=[Struct(name=name, partitions=[Struct(partition_index=0, replicas=None)])], timeout=10_000
    ),
    LIST_PARTITION_REASSIGNMENTS: lambda name, _: Struct(
        topics=[Struct(name=name, partition_indexes=[0])], timeout=10_000
    ),
    UPDATE_FEATURES: lambda *_: Struct(feature_updates=[], timeout=10_000),
    ALTER_PARTITION: lambda *_: Struct(broker_id=99, broker_epoch=0, topics=[]),
    BROKER_REGISTRATION: lambda *_: Struct(
        broker_id=99, cluster_id="", incarnation_id=None, listeners=[], features=[], rack=None, log_dirs=[]
    ),
    BROKER_HEARTBEAT: lambda *_: Struct(
        broker_id=99, broker_epoch=0, current_metadata_offset=0, want_fence=False, want_shut_down=False
    ),
    UNREGISTER_BROKER: lambda *_: Struct(broker_id=99),
    ALLOCATE_PRODUCER_IDS: lambda *_: Struct(broker_id=99, broker_epoch=0),
    ASSIGN_REPLICAS_TO_DIRS: lambda *_: Struct(broker_id=99, broker_epoch=0, directories=[]),
    CONTROLLER_REGISTRATION: lambda *_: Struct(
        controller_id=99, incarnation_id=None, zk_migration_ready=False, listeners=[], features=[]
    ),
    VOTE: lambda *_: Struct(topics=[]),
    BEGIN_QUORUM_EPOCH: lambda *_: Struct(topics=[]),
    END_QUORUM_EPOCH: lambda *_: Struct(topics=[]),
    DESCRIBE_QUORUM: lambda *_: Struct(
        topics=[Struct(topic_name="__cluster_metadata", partitions=[Struct(partition_index=0)])]
    ),
    ENVELOPE: lambda *_: Struct(request_data=b"", request_principal=None, client_host_address=b""),
    FETCH_SNAPSHOT: lambda *_: Struct(replica_id=99, max_bytes=1, topics=[]),
    ADD_RAFT_VOTER: lambda *_: Struct(cluster_id="another", timeout=1000, voter_id=99, listeners=[]),
    REMOVE_RAFT_VOTER: lambda *_: Struct(cluster_id="another", voter_id=99),
    UPDATE_RAFT_VOTER: lambda *_: Struct(
        cluster_id="another",
        voter_id=99,
        listeners=[],
        k_raft_version_feature=Struct(min_supported_version=0, max_supported_version=1),
    ),
}  # fmt: skip

# Where the least request is refused: nobody is a member, there is no such group, no such broker, nothing to do.
REFUSALS = {
    JOIN_GROUP: ErrorCode.invalid_session_timeout,
    HEARTBEAT: ErrorCode.unknown_member_id,
    LEAVE_GROUP: ErrorCode.unknown_member_id,
    SYNC_GROUP: ErrorCode.unknown_member_id,
    DESCRIBE_GROUPS: ErrorCode.group_id_not_found,
    DELETE_GROUPS: ErrorCode.group_id_not_found,
    OFFSET_DELETE: ErrorCode.group_id_not_found,
    CONSUMER_GROUP_DESCRIBE: ErrorCode.group_id_not_found,
    ADD_PARTITIONS_TO_TXN: ErrorCode.invalid_producer_id_mapping,
    ADD_OFFSETS_TO_TXN: ErrorCode.invalid_producer_id_mapping,
    END_TXN: ErrorCode.invalid_producer_id_mapping,
    TXN_OFFSET_COMMIT: ErrorCode.invalid_producer_id_mapping,
    DESCRIBE_TRANSACTIONS: ErrorCode.transactional_id_not_found,
    ELECT_LEADERS: ErrorCode.election_not_needed,
    ALTER_PARTITION_REASSIGNMENTS: ErrorCode.no_reassignment_in_progress,
    ALTER_PARTITION: ErrorCode.stale_broker_epoch,
    BROKER_REGISTRATION: ErrorCode.invalid_registration,
    BROKER_HEARTBEAT: ErrorCode.stale_broker_epoch,
    UNREGISTER_BROKER: ErrorCode.broker_id_not_registered,
    ALLOCATE_PRODUCER_IDS: ErrorCode.stale_broker_epoch,
    ASSIGN_REPLICAS_TO_DIRS: ErrorCode.stale_broker_epoch,
    CONTROLLER_REGISTRATION: ErrorCode.invalid_registration,
    VOTE: ErrorCode.invalid_request,
    BEGIN_QUORUM_EPOCH: ErrorCode.invalid_request,
    END_QUORUM_EPOCH: ErrorCode.invalid_request,
    ENVELOPE: ErrorCode.invalid_request,
    ADD_RAFT_VOTER: ErrorCode.inconsistent_cluster_id,
    REMOVE_RAFT_VOTER: ErrorCode.inconsistent_cluster_id,
    UPDATE_RAFT_VOTER: ErrorCode.inconsistent_cluster_id,
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
        # As clients do; it makes the topics that groups and transactions are kept in.
        for key_type in (0, 1):
            assert wire.ask(FIND_COORDINATOR, 3, Struct(key=topic_name, key_type=key_type)).error_code == 0
        answer = wire.ask(api_key, version, REQUESTS[api_key](topic_name, topic_id))
    assert set(error_codes(answer)) <= {ErrorCode.none, REFUSALS.get(api_key, ErrorCode.none)}
