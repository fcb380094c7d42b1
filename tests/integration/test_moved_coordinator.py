"""Who asks for a group's offsets when its coordinator has just moved hears them all the same, from the new one."""

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock import sql
from penstock.base.errors import ErrorCode
from penstock.broker.handlers import api_09_offset_fetch
from penstock.broker.handlers.group_calls import ask_each
from penstock.cli import group_requests
from penstock.cli.connection import connect
from penstock.client.cluster import ClientConfig
from penstock.client.errors import ClientError
from penstock.client.groups import offsets_of_groups
from penstock.http.administration import Administration
from penstock.http.errors import ApiError
from penstock.protocol.messages import Struct
from penstock.testing.in_process import BrokerInProcess

TOPIC = "moved"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerInProcess]:
    with BrokerInProcess() as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(10)
        yield made


@pytest.fixture
def group(broker: BrokerInProcess) -> str:
    name = f"g-{uuid.uuid4().hex[:12]}"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": name})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
    consumer.close()
    return name


def told_by_http(broker: BrokerInProcess, group: str) -> Any:
    answer = httpx.get(f"{broker.http_url}/api/groups/{group}", timeout=30).raise_for_status().json()
    (partition,) = answer["partitions"]
    return partition["committed"]


def told_by_sql(broker: BrokerInProcess, group: str) -> Any:
    statement = f"SELECT offset FROM PartitionAssignment WHERE group_id = '{group}'"
    (row,) = sql.query(statement, broker.bootstrap_servers)
    return row["offset"]


def told_by_the_command_line(broker: BrokerInProcess, group: str) -> Any:
    return group_requests.committed_offsets(connect(broker.bootstrap_servers, []), group)[TOPIC, 0]


@pytest.mark.parametrize("code", [ErrorCode.not_coordinator, ErrorCode.coordinator_not_available])
@pytest.mark.parametrize("told", [told_by_http, told_by_sql, told_by_the_command_line])
def test_the_offsets_of_a_group_whose_coordinator_moves(
    broker: BrokerInProcess,
    group: str,
    told: Callable[[BrokerInProcess, str], Any],
    code: ErrorCode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka's AdminClient ended the process here."""
    refusals = iter(range(3))

    async def moved(broker: Any, context: Any, group_ids: Any, *rest: Any, **how: Any) -> list[Struct]:
        if group in group_ids and next(refusals, None) is not None:
            return [how["refuse"](position, code) for position in range(len(group_ids))]
        return await ask_each(broker, context, group_ids, *rest, **how)

    monkeypatch.setattr(api_09_offset_fetch, "ask_each", moved)
    assert told(broker, group) == 7
    assert next(refusals, None) is None


def test_of_many_groups_those_that_cannot_be_told_now_are_left_out(
    broker: BrokerInProcess, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def moved(broker: Any, context: Any, group_ids: Any, *rest: Any, **how: Any) -> list[Struct]:
        if "elsewhere" in group_ids:
            return [how["refuse"](position, ErrorCode.not_coordinator) for position in range(len(group_ids))]
        return await ask_each(broker, context, group_ids, *rest, **how)

    monkeypatch.setattr(api_09_offset_fetch, "ask_each", moved)
    found = offsets_of_groups(ClientConfig(broker.bootstrap_servers), ["elsewhere", group])
    assert found == {group: {(TOPIC, 0): 7}}


def test_a_cluster_that_keeps_silent_is_not_waited_for_once_for_each_group() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        assert offsets_of_groups(ClientConfig(f"{host}:{port}", request_timeout_ms=100), map(str, range(20))) == {}
        silent.setblocking(False)
        asked = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                asked += 1
    assert 1 <= asked <= 2


async def test_what_our_client_cannot_do_is_an_answer_and_no_defect() -> None:
    def refuse() -> None:
        raise ClientError("the coordinator cannot be reached")

    with pytest.raises(ApiError, match="the coordinator cannot be reached"):
        await Administration("127.0.0.1:1", {}).in_thread(refuse)
