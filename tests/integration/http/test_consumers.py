"""/consumers/{group}: HTTP consumers are members of a group like any other."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.testing.in_process import BrokerInProcess
from penstock.testing.ports import free_port
from tests.e2e.node import wait_until
from tests.integration.conftest import PENSTOCK
from tests.integration.http.conftest import MakeTopic

INSTANCE = "x-consumer-instance"


def fill(http: httpx.Client, topic: str, count: int, partitions: int = 1) -> None:
    messages = [{"value": f"v{number}", "partition": number % partitions} for number in range(count)]
    headers = {"content-type": "application/json; value=text"}
    answer = http.post(f"/topics/{topic}/messages/batch", content=json.dumps({"messages": messages}), headers=headers)
    assert answer.status_code == 200, answer.text


def subscribe(http: httpx.Client, group: str, *topics: str, instance: str | None = None, **options: str) -> str:
    headers = {} if instance is None else {INSTANCE: instance}
    answer = http.post(f"/consumers/{group}/subscribe", json={"topics": topics, **options}, headers=headers)
    assert answer.status_code == 200, answer.text
    name: str = answer.json()["instance"]
    return name


def poll(http: httpx.Client, group: str, instance: str | None = None, **parameters: int) -> list[dict[str, Any]]:
    headers = {"accept": "application/json; value=text"} | ({} if instance is None else {INSTANCE: instance})
    answer = http.get(f"/consumers/{group}/poll", params={"timeout_ms": 5000, **parameters}, headers=headers)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


@pytest.fixture(autouse=True)
def leave(http: httpx.Client, group: str) -> Iterator[None]:
    yield
    http.delete(f"/consumers/{group}")


def test_a_new_group_reads_from_the_start_in_order(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 1200)
    subscribe(http, group, topic)
    values: list[str] = []
    while len(values) < 1200:
        messages = poll(http, group)
        assert 0 < len(messages) <= 500
        values += [one["value"] for one in messages]
    assert values == [f"v{number}" for number in range(1200)]
    assert poll(http, group, timeout_ms=0) == []


def test_the_shape_of_a_message(http: httpx.Client, topic: str, group: str) -> None:
    body = {"key": "k", "value": "aGk=", "headers": {"h": "1"}}
    placed = http.post(f"/topics/{topic}/messages", json=body).json()
    subscribe(http, group, topic)
    messages = http.get(f"/consumers/{group}/poll?timeout_ms=5000").json()["messages"]
    assert messages == [
        {
            "topic": topic,
            "partition": 0,
            "offset": 0,
            "key": "k",
            "value": "aGk=",
            "timestamp": placed["timestamp"],
            "headers": {"h": "1"},
        }
    ]


def test_bytes_that_are_not_text_come_as_base64_beside_it(http: httpx.Client, topic: str, group: str) -> None:
    http.post(f"/topics/{topic}/messages", json={"key_base64": "/w==", "value": "/w=="})
    http.post(f"/topics/{topic}/messages", json={"value": "eyJhIjogMX0="})
    subscribe(http, group, topic)
    headers = {"accept": "application/vnd.penstock.json+json"}
    first, second = http.get(f"/consumers/{group}/poll?timeout_ms=5000", headers=headers).json()["messages"]
    assert (first["key"], first["key_base64"], first["value"], first["value_base64"]) == (None, "/w==", None, "/w==")
    assert first["problem"].startswith("the value is not JSON")
    assert second["value"] == {"a": 1}


def test_what_is_committed_is_where_the_next_consumer_begins(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 10)
    subscribe(http, group, topic)
    assert len(poll(http, group)) == 10
    answer = http.post(f"/consumers/{group}/offsets", json={"offsets": {topic: {"0": 4}}})
    assert answer.json() == {"offsets": {topic: {"0": 4}}}
    assert http.delete(f"/consumers/{group}").status_code == 204
    subscribe(http, group, topic)
    assert [one["offset"] for one in poll(http, group)] == [4, 5, 6, 7, 8, 9]


def test_a_commit_without_offsets_takes_what_was_polled(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 10)
    subscribe(http, group, topic)
    assert len(poll(http, group, max_records=7)) == 7
    assert http.post(f"/consumers/{group}/offsets").json() == {"offsets": {topic: {"0": 7}}}


def test_nothing_is_committed_unasked(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 3)
    for _ in range(2):
        subscribe(http, group, topic)
        assert len(poll(http, group)) == 3
        http.delete(f"/consumers/{group}")


def test_offsets_of_a_group_that_nobody_reads_for_can_be_set(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 5)
    http.post(f"/consumers/{group}/offsets", json={"offsets": {topic: {"0": 3}}}).raise_for_status()
    subscribe(http, group, topic)
    assert [one["offset"] for one in poll(http, group)] == [3, 4]


def test_seek_goes_back_and_forth(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 10)
    subscribe(http, group, topic)

    def seek(offset: int | str) -> None:
        body = {"topic": topic, "partition": 0, "offset": offset}
        http.post(f"/consumers/{group}/seek", json=body).raise_for_status()

    seek(6)  # before there is an assignment
    assert [one["offset"] for one in poll(http, group)] == [6, 7, 8, 9]
    seek(2)
    assert [one["offset"] for one in poll(http, group, max_records=3)] == [2, 3, 4]
    seek("start")
    assert poll(http, group)[0]["offset"] == 0
    seek("end")
    assert poll(http, group, timeout_ms=500) == []


def test_two_instances_share_the_partitions(http: httpx.Client, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic(partitions=4)
    names = [subscribe(http, group, topic, instance=name) for name in ("a", "new")]
    assert names[0] == "a"
    assert names[1] not in ("a", "new")
    seen: dict[str, set[int]] = {name: set() for name in names}

    def is_split() -> bool:
        for found in seen.values():
            found.clear()
        fill(http, topic, 40, partitions=4)
        for name in names:
            seen[name] |= {one["partition"] for one in poll(http, group, name, timeout_ms=1000)}
        return all(len(found) == 2 for found in seen.values())

    wait_until(is_split, "each has two partitions")
    assert set.union(*seen.values()) == {0, 1, 2, 3}


def test_a_cookie_names_the_instance_too(served: BrokerInProcess, topic: str, group: str) -> None:
    with httpx.Client(base_url=served.http_url, timeout=30) as client:
        fill(client, topic, 2)
        name = subscribe(client, group, topic, instance="new")
        assert client.cookies["penstock-instance"] == name
        # The header is gone; the cookie says who it is.
        assert len(poll(client, group)) == 2
        assert client.delete(f"/consumers/{group}").status_code == 204
        assert client.get(f"/consumers/{group}/poll").status_code == 404


def test_latest_begins_at_the_end(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, 5)
    subscribe(http, group, topic, auto_offset_reset="latest")
    assert poll(http, group, timeout_ms=1500) == []
    fill(http, topic, 1)
    assert [one["offset"] for one in poll(http, group)] == [5]


def test_a_poll_keeps_to_its_bytes(http: httpx.Client, topic: str, group: str) -> None:
    for _ in range(20):
        http.post(f"/topics/{topic}/messages", content=b"x" * 50_000, headers={"content-type": "text/plain"})
    subscribe(http, group, topic)
    counts: list[int] = []
    while sum(counts) < 20:
        counts.append(len(poll(http, group, max_bytes=200_000)))
        assert 1 <= counts[-1] <= 5


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "poll", None, 404),
        ("POST", "seek", {"topic": "t", "partition": 0, "offset": 1}, 404),
        ("POST", "offsets", {}, 404),
        ("POST", "offsets", {"offsets": {"t": {"x": 1}}}, 422),
        ("POST", "offsets", {"offsets": {"t": {"0": -1}}}, 422),
        ("POST", "subscribe", {"topics": []}, 422),
        ("POST", "subscribe", {"topics": ["../x"]}, 422),
        ("POST", "subscribe", {"topics": ["t"], "auto_offset_reset": "never"}, 422),
        ("GET", "poll?max_records=0", None, 400),
        ("GET", "poll?timeout_ms=abc", None, 400),
        ("GET", "poll?timeout_ms=99999999", None, 400),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    http: httpx.Client, group: str, method: str, path: str, body: Any, status: int
) -> None:
    answer = http.request(method, f"/consumers/{group}/{path}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["what_to_do"]


@pytest.mark.parametrize("name", ["a b", "a\tb", "../x", "x" * 129])
def test_instances_have_plain_names(http: httpx.Client, group: str, name: str) -> None:
    answer = http.post(f"/consumers/{group}/subscribe", json={"topics": ["t"]}, headers={INSTANCE: name})
    assert answer.status_code == 400


def test_an_answer_cannot_be_split_by_a_group_name(http: httpx.Client) -> None:
    answer = http.post("/consumers/a%0d%0aset-cookie:x/subscribe", json={"topics": ["t"]})
    assert answer.status_code == 400
    assert "x" not in answer.cookies


def test_a_consumer_that_nobody_polls_leaves_its_group(
    served: BrokerInProcess, http: httpx.Client, topic: str, group: str
) -> None:
    """So that its partitions go to others."""
    port = free_port()
    command = [PENSTOCK, "http", "--bootstrap", served.bootstrap_servers, "--http-port", str(port)]
    with subprocess.Popen([*command, "--consumer-idle-ms", "1000"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
            fill(http, topic, 1)
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                subscribe(client, group, topic)
                assert len(poll(client, group)) == 1
                assert http.get(f"/api/groups/{group}").json()["state"] == "STABLE"
                wait_until(lambda: http.get(f"/api/groups/{group}").json()["state"] == "EMPTY", "it has left")
                assert client.get(f"/consumers/{group}/poll").json()["error_code"] == 40403
        finally:
            process.terminate()
            assert process.wait(30) == 0
