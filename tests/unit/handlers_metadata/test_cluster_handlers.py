from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.handlers.api_22_init_producer_id import API as INIT
from penstock.broker.handlers.api_60_describe_cluster import API as DESCRIBE
from penstock.cluster.metadata.records import FenceBrokerRecord


@pytest.mark.parametrize("version", range(INIT.version_min, INIT.version_max + 1))
def test_every_idempotent_producer_gets_an_id_of_its_own(broker: Any, version: int) -> None:
    answers = [broker.ask(INIT, version, transactional_id=None, transaction_timeout=60000) for _ in range(3)]
    assert all(answer.error_code is ErrorCode.none and answer.producer_epoch == 0 for answer in answers)
    assert len({answer.producer_id for answer in answers}) == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.invalid_request),
        ({"transactional_id": None, "producer_id": 5, "producer_epoch": -1}, ErrorCode.invalid_request),
        ({"transactional_id": None, "producer_id": -1, "producer_epoch": 3}, ErrorCode.invalid_request),
    ],
)
def test_what_cannot_have_an_id_is_refused(broker: Any, fields: dict[str, Any], code: ErrorCode) -> None:
    answer = broker.ask(INIT, 4, transaction_timeout=60000, **fields)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_no_id_is_given_that_could_not_be_recorded(broker: Any) -> None:
    broker.disk_is_full = True
    answer = broker.ask(INIT, 4, transactional_id=None, transaction_timeout=60000)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.kafka_storage_error, -1)


@pytest.mark.parametrize("version", range(DESCRIBE.version_min, DESCRIBE.version_max + 1))
def test_the_cluster_is_described_in_every_version(broker: Any, version: int) -> None:
    answer = broker.ask(DESCRIBE, version, include_cluster_authorized_operations=True, endpoint_type=1)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (ErrorCode.none, "a-cluster", 1)
    assert [(node.broker_id, node.host, node.port) for node in answer.brokers] == [(1, "here", 9092)]
    assert answer.cluster_authorized_operations == 8096


def test_fenced_brokers_are_told_only_to_those_who_ask(broker: Any) -> None:
    """KIP-1073."""
    broker.add_broker(2, "there")
    broker.image.replay(FenceBrokerRecord(id=2, epoch=broker.image.brokers[2].epoch))
    silent = broker.ask(DESCRIBE, 2, endpoint_type=1)
    verbose = broker.ask(DESCRIBE, 2, endpoint_type=1, include_fenced_brokers=True)
    assert [node.broker_id for node in silent.brokers] == [1]
    assert [(node.broker_id, node.is_fenced) for node in verbose.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)]
)
def test_this_is_an_endpoint_of_a_broker(broker: Any, endpoint_type: int, code: ErrorCode) -> None:
    assert broker.ask(DESCRIBE, 1, endpoint_type=endpoint_type).error_code is code
