"""POST /topics/{topic}/messages: what goes in is what a Kafka consumer reads."""

import base64
import gzip
import json
import zlib
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.testing.in_process import BrokerInProcess
from tests.integration.http.conftest import MakeTopic


def read(served: BrokerInProcess, topic: str, count: int, partition: int = 0) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": served.bootstrap_servers, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Any] = consumer.consume(count, timeout=10)
    consumer.close()
    return found


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def test_a_message_arrives_with_key_value_and_headers(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    body = {"key": "k", "value": encoded(b"\x00\xff"), "headers": {"a": "1", "b": ["2", None]}, "partition": 0}
    answer = http.post(f"/topics/{topic}/messages", json=body)
    assert answer.status_code == 200
    placed = answer.json()
    assert (placed["topic"], placed["partition"], placed["offset"]) == (topic, 0, 0)
    (message,) = read(served, topic, 1)
    assert (message.key(), message.value()) == (b"k", b"\x00\xff")
    assert message.headers() == [("a", b"1"), ("b", b"2"), ("b", None)]
    assert message.timestamp()[1] == placed["timestamp"]


def test_a_batch_keeps_its_order_and_tells_each_place(
    served: BrokerInProcess, http: httpx.Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    messages = [{"value": encoded(b"%d" % number), "partition": number % 2} for number in range(100)]
    answer = http.post(f"/topics/{topic}/messages/batch", json={"messages": messages})
    assert answer.status_code == 200
    places = [(one["partition"], one["offset"]) for one in answer.json()["offsets"]]
    assert places == [(number % 2, number // 2) for number in range(100)]
    assert [one.value() for one in read(served, topic, 50, partition=1)] == [b"%d" % n for n in range(1, 100, 2)]


def test_equal_keys_go_to_one_partition(http: httpx.Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=5)
    messages = [{"key": f"k{number % 7}", "value": ""} for number in range(70)]
    offsets = http.post(f"/topics/{topic}/messages/batch", json={"messages": messages}).json()["offsets"]
    partitions: dict[int, set[int]] = {}
    for number, place in enumerate(offsets):
        partitions.setdefault(number % 7, set()).add(place["partition"])
    assert all(len(found) == 1 for found in partitions.values())


@pytest.mark.parametrize(
    ("content_type", "value", "stored"),
    [
        ("application/json; value=json", {"a": [1, None]}, b'{"a":[1,null]}'),
        ("application/vnd.penstock.json+json", "x", b'"x"'),
        ("application/vnd.kafka.json.v2+json", 1.5, b"1.5"),
        ("application/json; value=text", "grüß", "grüß".encode()),
        ("application/json; value=json", None, None),
        ("application/json; value=text", None, None),
        ("application/json", None, None),
        ("application/json", "", b""),
    ],
)
def test_values_are_what_the_content_type_says(
    served: BrokerInProcess, http: httpx.Client, topic: str, content_type: str, value: object, stored: bytes | None
) -> None:
    body = json.dumps({"key": "k", "value": value}, separators=(",", ":"))
    answer = http.post(f"/topics/{topic}/messages", content=body, headers={"content-type": content_type})
    assert answer.status_code == 200, answer.text
    assert read(served, topic, 1)[0].value() == stored


def test_a_plain_body_is_the_value(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    for content_type in ("text/plain; charset=utf-8", "application/octet-stream"):
        headers = {"content-type": content_type}
        answer = http.post(f"/topics/{topic}/messages?key=k&partition=0", content=b"a\r\nb", headers=headers)
        assert answer.status_code == 200, answer.text
    assert [(one.key(), one.value()) for one in read(served, topic, 2)] == [(b"k", b"a\r\nb")] * 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 422),
        (b'{"value": "not base64!"}', 422),
        (b'{"value": 7}', 422),
        (b"{}", 422),
        (b'{"vale": "aGk="}', 422),
        (b'{"value": "aGk=", "partition": -1}', 422),
        (b'{"value": "aGk=", "partition": 99}', 404),
        (b'{"value": "aGk=", "partition": 99999999999999999999}', 422),
        (b'{"value": "aGk=", "timestamp": -5}', 422),
        (b'{"value": "aGk=", "headers": {"": "x"}}', 422),
        (b'{"value": "", "key": "\xff"}', 400),
        (b'{"value": ' + b"[" * 100_000, 422),
    ],
)
def test_nonsense_is_refused_with_what_to_do(http: httpx.Client, topic: str, body: bytes, status: int) -> None:
    answer = http.post(f"/topics/{topic}/messages", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert set(error) == {"error_code", "message", "what_to_do"}
    assert str(error["error_code"]).startswith(str(status))
    assert "Traceback" not in answer.text


def test_deep_json_is_refused(http: httpx.Client, topic: str) -> None:
    body = b'{"value": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    headers = {"content-type": "application/json; value=json"}
    answer = http.post(f"/topics/{topic}/messages", content=body, headers=headers)
    assert answer.status_code == 400
    assert "nested too deeply" in answer.json()["message"]


@pytest.mark.parametrize(
    "name", ["..", ".", "a%20b", "a%2Fb", "%2e%2e", "%2e%2e%2fetc%2fpasswd", "x" * 250, "a%0d%0ab", "%c3%bc", "%ff"]
)
def test_names_that_no_topic_can_have_are_refused(served: BrokerInProcess, name: str) -> None:
    """By a client that sends the path as it is."""
    connection = HTTPConnection(served.http_url.removeprefix("http://"), timeout=30)
    connection.request("POST", f"/topics/{name}/messages", b'{"value": ""}', {"content-type": "application/json"})
    answer = connection.getresponse()
    error = json.loads(answer.read())
    connection.close()
    assert answer.status in (404, 422)
    assert error["what_to_do"]


def test_a_body_over_the_limit_is_refused_however_it_comes(http: httpx.Client, topic: str) -> None:
    large = b'{"value": "' + b"A" * (11 * 1024 * 1024) + b'"}'
    headers = {"content-type": "application/json"}
    assert http.post(f"/topics/{topic}/messages", content=large, headers=headers).status_code == 413
    # Without a length, in chunks.
    chunks = (large[start : start + 65536] for start in range(0, len(large), 65536))
    assert http.post(f"/topics/{topic}/messages", content=chunks, headers=headers).status_code == 413


def test_gzip_is_unpacked_and_bombs_are_not(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    def post(data: bytes, encoding: str = "gzip") -> httpx.Response:
        headers = {"content-type": "application/json", "content-encoding": encoding}
        return http.post(f"/topics/{topic}/messages", content=data, headers=headers)

    body = b'{"value": "aGk="}'
    assert post(gzip.compress(body)).status_code == 200
    assert post(zlib.compress(body), "deflate").status_code == 200
    bomb = gzip.compress(b'{"value": "' + b"A" * 200_000_000)
    assert len(bomb) < 300_000
    assert post(bomb).status_code == 413
    assert post(body).status_code == 400
    assert post(gzip.compress(body)[:-4]).status_code == 400
    assert post(gzip.compress(body) * 2).status_code == 400
    assert post(body, "br").status_code == 415
    assert len(read(served, topic, 2)) == 2


def test_a_topic_that_cannot_be_made_is_not_found(http: httpx.Client) -> None:
    answer = http.post("/topics/__consumer_offsets_/messages", json={"value": ""})
    # Topics are made on demand, as Kafka does by default.
    assert answer.status_code == 200


def test_a_record_that_the_topic_refuses_is_told_apart_in_its_batch(http: httpx.Client, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="2000")
    large = encoded(b"x" * 3000)
    answer = http.post(f"/topics/{topic}/messages", json={"value": large})
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)


def test_requests_of_other_sites_and_names_are_refused(http: httpx.Client, topic: str) -> None:
    path, body = f"/topics/{topic}/messages", {"value": ""}
    assert http.post(path, json=body, headers={"origin": "http://evil.example"}).status_code == 403
    assert http.post(path, json=body, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert http.post(path, json=body, headers={"host": "evil.example"}).status_code == 421
    own = str(http.base_url).rstrip("/")
    assert http.post(path, json=body, headers={"origin": own}).status_code == 200


def test_unknown_paths_and_methods_say_so_in_json(http: httpx.Client, topic: str) -> None:
    assert http.get("/nope").json()["error_code"] == 404
    answer = http.put(f"/topics/{topic}/messages")
    assert (answer.status_code, answer.json()["what_to_do"]) == (405, "It takes POST.")
    answer = http.post(f"/topics/{topic}/messages", content=b"<a/>", headers={"content-type": "text/xml"})
    assert answer.status_code == 415
