"""REST proxy v2: what clients of Confluent's REST proxy do."""

from typing import Any

import httpx
import pytest

from tests.integration.http.conftest import MakeTopic

V2 = "application/vnd.kafka.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"


def produce(http: httpx.Client, topic: str, *values: Any) -> None:
    body = {"records": [{"key": None, "value": value} for value in values]}
    http.post(f"/topics/{topic}", json=body, headers={"content-type": JSON}).raise_for_status()


def create(http: httpx.Client, group: str, name: str, format: str = "json", **options: str) -> str:
    body = {"name": name, "format": format, "auto.offset.reset": "earliest", **options}
    answer = http.post(f"/consumers/{group}", json=body, headers={"content-type": V2})
    assert answer.status_code == 200, answer.text
    assert answer.json()["instance_id"] == name
    base: str = answer.json()["base_uri"]
    return base


def records(http: httpx.Client, base: str, count: int, accept: str = JSON) -> list[dict[str, Any]]:
    """The first reads of a new consumer may find nothing yet."""
    found: list[dict[str, Any]] = []
    for _ in range(20):
        answer = http.get(f"{base}/records?timeout=1000", headers={"accept": accept})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == accept
        found += answer.json()
        if len(found) >= count:
            break
    return found


def test_topics_and_brokers_are_described(http: httpx.Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2, retention_ms="5000")
    assert topic in http.get("/topics").json()
    described = http.get(f"/topics/{topic}").json()
    assert described["configs"]["retention.ms"] == "5000"
    replicas = [{"broker": 1, "leader": True, "in_sync": True}]
    assert described["partitions"] == [{"partition": n, "leader": 1, "replicas": replicas} for n in range(2)]
    assert http.get(f"/topics/{topic}/partitions").json() == described["partitions"]
    assert http.get(f"/topics/{topic}/partitions/1").json() == described["partitions"][1]
    assert http.get("/brokers").json() == {"brokers": [1]}
    produce(http, topic, 1, 2, 3)
    ends = [http.get(f"/topics/{topic}/partitions/{n}/offsets").json() for n in range(2)]
    assert sum(one["end_offset"] for one in ends) == 3
    for path, code in (("/topics/nope", 40401), (f"/topics/{topic}/partitions/7", 40402)):
        answer = http.get(path)
        assert (answer.status_code, answer.json()["error_code"]) == (404, code)


def test_records_go_in_as_binary_or_json(http: httpx.Client, topic: str, group: str) -> None:
    body = {"records": [{"key": "aw==", "value": "AAE="}, {"value": None, "partition": 0}]}
    answer = http.post(f"/topics/{topic}", json=body, headers={"content-type": BINARY})
    assert answer.headers["content-type"] == V2
    assert answer.json() == {
        "offsets": [{"partition": 0, "offset": n, "error_code": None, "error": None} for n in range(2)],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    body = {"records": [{"value": "Ag=="}]}
    http.post(f"/topics/{topic}/partitions/0", json=body, headers={"content-type": BINARY}).raise_for_status()
    base = create(http, group, "a", "binary")
    http.post(f"{base}/subscription", json={"topics": [topic]}).raise_for_status()
    found = records(http, base, 3, BINARY)
    assert [(one["offset"], one["key"], one["value"]) for one in found] == [
        (0, "aw==", "AAE="),
        (1, None, None),
        (2, None, "Ag=="),
    ]
    assert http.delete(base).status_code == 204
    assert http.get(f"{base}/records").json()["error_code"] == 40403


def test_a_consumer_commits_and_goes_on(http: httpx.Client, topic: str, group: str) -> None:
    produce(http, topic, *({"n": number} for number in range(5)))
    base = create(http, group, "a", **{"auto.commit.enable": "false"})
    assert http.post(f"{base}/subscription", json={"topics": [topic]}).status_code == 204
    assert http.get(f"{base}/subscription").json() == {"topics": [topic]}
    assert [one["value"] for one in records(http, base, 5)] == [{"n": number} for number in range(5)]
    # The proxy commits what was dealt with: the next is one further.
    body: dict[str, Any] = {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]}
    assert http.post(f"{base}/offsets", json=body).status_code == 200
    body = {"partitions": [{"topic": topic, "partition": 0}]}
    committed = http.request("GET", f"{base}/offsets", json=body).json()
    assert committed == {"offsets": [{"topic": topic, "partition": 0, "offset": 2, "metadata": ""}]}
    http.delete(base)
    base = create(http, group, "b")
    http.post(f"{base}/subscription", json={"topics": [topic]})
    assert [one["offset"] for one in records(http, base, 3)] == [2, 3, 4]
    http.delete(base)


def test_partitions_by_hand_and_positions(http: httpx.Client, topic: str, group: str) -> None:
    produce(http, topic, 0, 1, 2)
    base = create(http, group, "a")
    place = {"topic": topic, "partition": 0}
    assert http.post(f"{base}/assignments", json={"partitions": [place]}).status_code == 204
    assert http.get(f"{base}/assignments").json() == {"partitions": [place]}
    http.post(f"{base}/positions", json={"offsets": [{**place, "offset": 2}]}).raise_for_status()
    assert [one["value"] for one in records(http, base, 1)] == [2]
    http.post(f"{base}/positions/beginning", json={"partitions": [place]}).raise_for_status()
    assert [one["value"] for one in records(http, base, 3)] == [0, 1, 2]
    http.post(f"{base}/positions/end", json={"partitions": [place]}).raise_for_status()
    assert http.get(f"{base}/records?timeout=300", headers={"accept": JSON}).json() == []
    answer = http.post(f"{base}/subscription", json={"topics": [topic]})
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40903)
    http.delete(base)


def test_a_pattern_subscribes_to_what_matches(http: httpx.Client, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(http, topic, "x")
    base = create(http, group, "a")
    http.post(f"{base}/subscription", json={"topic_pattern": f"{topic[:-1]}."}).raise_for_status()
    assert records(http, base, 1)[0]["topic"] == topic
    http.delete(base)


@pytest.mark.parametrize(
    ("body", "code"),
    [({"format": "xml"}, 42204), ({"name": "a/b"}, 400), ({"auto.offset.reset": "sometimes"}, 42204)],
)
def test_consumers_that_cannot_be_made_are_refused(
    http: httpx.Client, group: str, body: dict[str, str], code: int
) -> None:
    assert http.post(f"/consumers/{group}", json=body).json()["error_code"] == code


def test_a_name_is_taken_once_and_a_format_is_kept(http: httpx.Client, topic: str, group: str) -> None:
    base = create(http, group, "a", "binary")
    answer = http.post(f"/consumers/{group}", json={"name": "a"})
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40902)
    answer = http.get(f"{base}/records", headers={"accept": JSON})
    assert (answer.status_code, answer.json()["error_code"]) == (406, 40601)
    answer = http.get(f"{base}/records", headers={"accept": BINARY})
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40903)
    http.delete(base)
