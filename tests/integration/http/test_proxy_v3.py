"""REST proxy v3: administration and records under /v3/clusters."""

import base64
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.testing.in_process import BrokerInProcess
from tests.e2e.node import wait_until
from tests.integration.http.conftest import MakeTopic


@pytest.fixture
def base(http: httpx.Client) -> str:
    (cluster,) = http.get("/v3/clusters").json()["data"]
    assert cluster["kind"] == "KafkaCluster"
    url: str = cluster["metadata"]["self"]
    assert url.endswith(f"/v3/clusters/{cluster['cluster_id']}")
    return url


def test_every_link_of_a_cluster_leads_somewhere(http: httpx.Client, base: str) -> None:
    cluster = http.get(base).json()
    for name in ("controller", "brokers", "broker_configs", "consumer_groups", "topics"):
        answer = http.get(cluster[name]["related"])
        assert answer.status_code == 200, answer.text
    (broker,) = http.get(f"{base}/brokers").json()["data"]
    assert (broker["broker_id"], broker["host"]) == (1, "127.0.0.1")
    assert http.get(broker["configs"]["related"]).json()["kind"] == "KafkaBrokerConfigList"
    assert http.get(broker["partition_replicas"]["related"]).status_code == 200


def test_a_topic_lives_from_creation_to_deletion(http: httpx.Client, base: str, topic_name: str) -> None:
    body: dict[str, Any] = {
        "topic_name": topic_name,
        "partitions_count": 2,
        "replication_factor": 1,
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    answer = http.post(f"{base}/topics", json=body)
    assert answer.status_code == 201, answer.text
    url = answer.headers["location"]
    assert http.post(f"{base}/topics", json=body).status_code == 409
    topic = http.get(url).json()
    assert (topic["topic_name"], topic["partitions_count"], topic["replication_factor"]) == (topic_name, 2, 1)
    partitions = http.get(topic["partitions"]["related"]).json()["data"]
    assert [one["partition_id"] for one in partitions] == [0, 1]
    replica = http.get(partitions[0]["leader"]["related"]).json()
    assert (replica["broker_id"], replica["is_leader"], replica["is_in_sync"]) == (1, True, True)
    assert http.get(partitions[0]["replicas"]["related"]).json()["data"] == [replica]
    assert http.patch(url, json={"partitions_count": 3}).json()["partitions_count"] == 3
    assert http.patch(url, json={"partitions_count": 1}).status_code == 400
    assert http.delete(url).status_code == 204
    assert http.get(url).json()["error_code"] == 40401


def test_configs_are_read_set_and_reset(http: httpx.Client, base: str, topic: str) -> None:
    url = f"{base}/topics/{topic}/configs"
    names = {one["name"]: one for one in http.get(url).json()["data"]}
    assert names["retention.ms"]["is_default"]
    assert http.put(f"{url}/retention.ms", json={"value": "1000"}).status_code == 204
    changed = http.get(f"{url}/retention.ms").json()
    assert (changed["value"], changed["is_default"], changed["source"]) == ("1000", False, "DYNAMIC_TOPIC_CONFIG")
    changes = {"data": [{"name": "retention.ms", "operation": "DELETE"}, {"name": "segment.bytes", "value": "1048576"}]}
    assert http.post(f"{url}:alter", json=changes).status_code == 204
    assert http.get(f"{url}/retention.ms").json()["is_default"]
    assert http.get(f"{url}/segment.bytes").json()["value"] == "1048576"
    assert http.delete(f"{url}/segment.bytes").status_code == 204
    assert http.put(f"{url}/retention.ms", json={"value": "soon"}).status_code == 400
    assert http.get(f"{url}/no.such").json()["error_code"] == 40406


def test_groups_show_members_and_lag(served: BrokerInProcess, http: httpx.Client, base: str, group: str) -> None:
    topic = http.post(f"{base}/topics", json={"topic_name": f"t-{group}", "partitions_count": 1}).json()["topic_name"]
    messages = {"messages": [{"value": ""} for _ in range(10)]}
    http.post(f"/topics/{topic}/messages/batch", json=messages).raise_for_status()
    consumer = Consumer(
        {"bootstrap.servers": served.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        assert len(consumer.consume(4, timeout=20)) == 4
        consumer.commit(asynchronous=False)
        url = f"{base}/consumer-groups/{group}"
        wait_until(lambda: http.get(url).json()["state"] == "STABLE", "the group is stable")
        assert group in {one["consumer_group_id"] for one in http.get(f"{base}/consumer-groups").json()["data"]}
        (member,) = http.get(f"{url}/consumers").json()["data"]
        (assignment,) = http.get(member["assignments"]["related"]).json()["data"]
        assert (assignment["topic_name"], assignment["partition_id"]) == (topic, 0)
        (lag,) = http.get(f"{url}/lags").json()["data"]
        assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (4, 10, 6)
        assert lag["consumer_id"] == member["consumer_id"]
        summary = http.get(f"{url}/lag-summary").json()
        assert (summary["max_lag"], summary["total_lag"], summary["max_lag_topic_name"]) == (6, 6, topic)
        assert http.get(f"{url}/lags/{topic}/partitions/0").json() == lag
        assert http.delete(url).json()["error_code"] == 40903
    finally:
        consumer.close()
    assert http.get(f"{base}/consumer-groups/nope").json()["error_code"] == 40404


def test_records_of_every_plain_type(http: httpx.Client, base: str, topic: str, group: str) -> None:
    def post(body: Any) -> httpx.Response:
        return http.post(f"{base}/topics/{topic}/records", json=body)

    binary = base64.b64encode(b"\x00").decode()
    header = {"name": "h", "value": binary}
    answer = post({"key": {"type": "STRING", "data": "k"}, "value": {"type": "BINARY", "data": binary}})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["error_code"], answer.json()["offset"], answer.json()["value"]) == (200, 0, {"size": 1})
    assert post({"value": {"type": "JSON", "data": {"a": 1}}, "headers": [header]}).json()["offset"] == 1
    many = b'{"value": {"type": "JSON", "data": 1}} {"value": {"type": "JSON", "data": 2}}'
    lines = http.post(f"{base}/topics/{topic}/records", content=many).text.splitlines()
    assert len(lines) == 2
    for wrong in ({"value": {"type": "BINARY", "data": "%"}}, {"value": {"type": "XML", "data": ""}}, {"value": 1}):
        assert post(wrong).status_code == 422
    assert post({"partition_id": 9, "value": {"type": "JSON", "data": 1}}).status_code == 404


def test_another_cluster_is_not_here(http: httpx.Client) -> None:
    assert http.get("/v3/clusters/nope/topics").status_code == 404


def test_a_new_topic_is_validated_without_being_made(http: httpx.Client, base: str, make_topic: MakeTopic) -> None:
    body = {"topic_name": "only-asked", "partitions_count": 2, "validate_only": True}
    assert http.post(f"{base}/topics", json=body).status_code == 200
    assert http.get(f"{base}/topics/only-asked").status_code == 404
    assert http.post(f"{base}/topics", json={**body, "partitions_count": -5}).status_code in (400, 422)
