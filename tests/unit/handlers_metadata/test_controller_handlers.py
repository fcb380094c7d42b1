"""What brokers and administrators ask the controller for, through the codecs of every version."""

import uuid
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.handlers import (
    api_18_api_versions,
    api_43_elect_leaders,
    api_45_alter_partition_reassignments,
    api_46_list_partition_reassignments,
    api_56_alter_partition,
    api_57_update_features,
    api_62_broker_registration,
    api_63_broker_heartbeat,
    api_64_unregister_broker,
    api_67_allocate_producer_ids,
    api_70_controller_registration,
)
from penstock.cluster.metadata.features import SUPPORTED_FEATURES
from penstock.cluster.metadata.topics import NewTopic
from penstock.protocol.messages import Struct

ORDERS = "orders"
FEATURES = [
    Struct(name=name, min_supported_version=low, max_supported_version=high)
    for name, (low, high) in SUPPORTED_FEATURES.items()
]


@pytest.fixture
def three(broker: Any) -> Any:
    """Brokers 1, 2 and 3 with one topic on all of them."""
    for broker_id in (2, 3):
        broker.add_broker(broker_id, f"host-{broker_id}")
    broker._apply(broker.controller.create_topics([NewTopic(ORDERS, assignments=[(0, (1, 2, 3))])]))
    return broker


def partition(broker: Any) -> Any:
    return broker.image.topics[ORDERS].partitions[0]


def register(broker: Any, version: int, **fields: Any) -> Any:
    asked = {
        "broker_id": 9,
        "cluster_id": broker.cluster_id,
        "incarnation_id": uuid.UUID(int=1 << 70),
        "listeners": [Struct(name="PLAINTEXT", host="nine", port=9092, security_protocol=0)],
        "features": FEATURES,
        "rack": "r",
        "log_dirs": [uuid.UUID(int=1 << 80)],
        **fields,
    }
    return broker.ask(api_62_broker_registration.API, version, **asked)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_broker_registers_and_is_unfenced_by_its_heartbeat(broker: Any, version: int) -> None:
    registered = register(broker, version)
    assert registered.error_code is ErrorCode.none
    assert broker.image.brokers[9].fenced
    heartbeat = {
        "broker_id": 9,
        "broker_epoch": registered.broker_epoch,
        "current_metadata_offset": broker.image.end_offset,
        "want_fence": False,
        "want_shut_down": False,
    }
    for heartbeat_version in (0, 1, 2):
        answer = broker.ask(api_63_broker_heartbeat.API, heartbeat_version, **heartbeat)
        assert (answer.error_code, answer.is_caught_up, answer.is_fenced) == (ErrorCode.none, True, False)
    stale = broker.ask(api_63_broker_heartbeat.API, 1, **{**heartbeat, "broker_epoch": 0})
    assert (stale.error_code, stale.is_fenced) == (ErrorCode.stale_broker_epoch, True)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.inconsistent_cluster_id),
        ({"log_dirs": []}, ErrorCode.invalid_registration),
        ({"incarnation_id": None}, ErrorCode.invalid_registration),
        ({"features": []}, ErrorCode.unsupported_version),
        ({"broker_id": 1}, ErrorCode.duplicate_broker_registration),
        ({"is_migrating_zk_broker": True}, ErrorCode.broker_id_not_registered),
    ],
)
def test_a_broker_that_does_not_belong_here_is_refused(broker: Any, fields: dict[str, Any], error: ErrorCode) -> None:
    answer = register(broker, 4, **fields)
    assert (answer.error_code, answer.broker_epoch) == (error, -1)


def test_a_broker_that_is_unregistered_is_forgotten(three: Any) -> None:
    assert three.ask(api_64_unregister_broker.API, 0, broker_id=3).error_code is ErrorCode.none
    again = three.ask(api_64_unregister_broker.API, 0, broker_id=3)
    assert again.error_code is ErrorCode.broker_id_not_registered
    assert "not currently registered" in again.error_message


@pytest.mark.parametrize("version", [2, 3])
def test_the_leader_changes_the_isr(three: Any, version: int) -> None:
    state = partition(three)
    epochs = {one: three.image.brokers[one].epoch for one in (1, 2)}
    with_epochs = [Struct(broker_id=one, broker_epoch=epoch) for one, epoch in epochs.items()]
    members = {"new_isr": [1, 2]} if version == 2 else {"new_isr_with_epochs": with_epochs}
    proposal = Struct(partition_index=0, leader_epoch=0, leader_recovery_state=0, partition_epoch=0, **members)
    topics = [Struct(topic_id=state.topic_id, partitions=[proposal]), Struct(topic_id=None, partitions=[proposal])]
    epoch = three.image.brokers[1].epoch
    answer = three.ask(api_56_alter_partition.API, version, broker_id=1, broker_epoch=epoch, topics=topics)
    (altered,), (unknown,) = (topic.partitions for topic in answer.topics)
    assert (altered.error_code, altered.isr, altered.partition_epoch) == (ErrorCode.none, (1, 2), 1)
    assert unknown.error_code is ErrorCode.unknown_topic_id
    stale = three.ask(api_56_alter_partition.API, version, broker_id=1, broker_epoch=epoch - 1, topics=topics)
    assert (stale.error_code, stale.topics) == (ErrorCode.stale_broker_epoch, ())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leaders_are_elected_on_demand(three: Any, version: int) -> None:
    asked = [Struct(topic=ORDERS, partitions=[0, 1])]
    answer = three.ask(api_43_elect_leaders.API, version, election_type=0, topic_partitions=asked, timeout_ms=1)
    (result,) = answer.replica_election_results
    assert [one.error_code for one in result.partition_result] == [
        ErrorCode.election_not_needed,
        ErrorCode.unknown_topic_or_partition,
    ]
    everything = three.ask(api_43_elect_leaders.API, version, election_type=0, topic_partitions=None, timeout_ms=1)
    assert [(one.topic, one.partition_result) for one in everything.replica_election_results] == [(ORDERS, ())]


def test_an_unknown_type_of_election_is_refused_for_each_partition(three: Any) -> None:
    asked = [Struct(topic=ORDERS, partitions=[0])]
    answer = three.ask(api_43_elect_leaders.API, 2, election_type=5, topic_partitions=asked, timeout_ms=1)
    assert answer.error_code is ErrorCode.invalid_request
    assert answer.replica_election_results[0].partition_result[0].error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", [0, 1])
def test_replicas_are_moved_listed_and_moved_back(three: Any, version: int) -> None:
    three.add_broker(4, "host-4")
    reassign, listing = api_45_alter_partition_reassignments.API, api_46_list_partition_reassignments.API

    def ask(*moves: tuple[int, list[int] | None]) -> list[ErrorCode]:
        partitions = [Struct(partition_index=index, replicas=replicas) for index, replicas in moves]
        answer = three.ask(reassign, version, timeout_ms=1, topics=[Struct(name=ORDERS, partitions=partitions)])
        assert answer.error_code is ErrorCode.none
        return [one.error_code for one in answer.responses[0].partitions]

    assert ask((0, [2, 3, 4]), (1, [1])) == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    for topics in (None, [Struct(name=ORDERS, partition_indexes=[0, 1])]):
        (topic,) = three.ask(listing, 0, timeout_ms=1, topics=topics).topics
        (one,) = topic.partitions
        assert (topic.name, one.replicas, one.adding_replicas, one.removing_replicas) == (
            ORDERS,
            (2, 3, 4, 1),
            (4,),
            (1,),
        )
    assert ask((0, None)) == [ErrorCode.none]
    assert three.ask(listing, 0, timeout_ms=1, topics=None).topics == ()


def test_the_number_of_replicas_can_be_protected(three: Any) -> None:
    topics = [Struct(name=ORDERS, partitions=[Struct(partition_index=0, replicas=[1])])]
    answer = three.ask(
        api_45_alter_partition_reassignments.API, 1, timeout_ms=1, topics=topics, allow_replication_factor_change=False
    )
    assert answer.allow_replication_factor_change is False
    assert answer.responses[0].partitions[0].error_code is ErrorCode.invalid_replication_factor


def test_producer_ids_come_in_blocks(broker: Any) -> None:
    epoch = broker.image.brokers[1].epoch
    first, second = (broker.ask(api_67_allocate_producer_ids.API, 0, broker_id=1, broker_epoch=epoch) for _ in range(2))
    assert (first.producer_id_start, first.producer_id_len, second.producer_id_start) == (0, 1000, 1000)
    stale = broker.ask(api_67_allocate_producer_ids.API, 0, broker_id=1, broker_epoch=epoch + 1)
    assert stale.error_code is ErrorCode.stale_broker_epoch


@pytest.mark.parametrize("version", [0, 1, 2])
def test_feature_levels_are_changed_all_or_none(broker: Any, version: int) -> None:
    def ask(*updates: tuple[str, int]) -> Any:
        asked = [
            Struct(feature=name, max_version_level=level, upgrade_type=2, allow_downgrade=True)
            for name, level in updates
        ]
        return broker.ask(api_57_update_features.API, version, timeout_ms=1, feature_updates=asked)

    elr = "eligible.leader.replicas.version"
    refused = ask((elr, 0), ("nonsense", 1))
    assert refused.error_code is ErrorCode.invalid_update_version
    assert "does not support the given feature" in refused.error_message
    assert elr in broker.image.features
    assert ask((elr, 0)).error_code is ErrorCode.none
    assert elr not in broker.image.features


def test_a_controller_says_where_it_is(broker: Any) -> None:
    listeners = [Struct(name="CONTROLLER", host="c", port=9093, security_protocol=0)]
    fields = {"controller_id": 7, "zk_migration_ready": False, "listeners": listeners, "features": FEATURES}
    refused = broker.ask(api_70_controller_registration.API, 0, incarnation_id=None, **fields)
    assert refused.error_code is ErrorCode.invalid_registration
    kept = broker.ask(api_70_controller_registration.API, 0, incarnation_id=uuid.UUID(int=3), **fields)
    assert (kept.error_code, broker.image.controllers[7].end_points[0].port) == (ErrorCode.none, 9093)


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        (api_43_elect_leaders.API, {"election_type": 0, "topic_partitions": None, "timeout_ms": 1}),
        (api_45_alter_partition_reassignments.API, {"timeout_ms": 1, "topics": []}),
        (api_46_list_partition_reassignments.API, {"timeout_ms": 1, "topics": None}),
        (api_56_alter_partition.API, {"broker_id": 1, "broker_epoch": 0, "topics": []}),
        (api_57_update_features.API, {"timeout_ms": 1, "feature_updates": []}),
        (api_64_unregister_broker.API, {"broker_id": 1}),
        (api_67_allocate_producer_ids.API, {"broker_id": 1, "broker_epoch": 0}),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_what_cannot_be_kept_is_said_so(broker: Any, api: Any, fields: dict[str, Any]) -> None:
    broker.disk_is_full = True
    assert broker.ask(api, api.version_max, **fields).error_code is ErrorCode.kafka_storage_error


def test_what_brokers_tell_each_other_is_not_listed_to_clients(broker: Any) -> None:
    broker.served_apis = [api_56_alter_partition.API, api_43_elect_leaders.API]
    broker.metadata_offset = 0
    answer = broker.ask(api_18_api_versions.API, 3, client_software_name="a", client_software_version="1")
    assert [one.api_key for one in answer.api_keys] == [43]
