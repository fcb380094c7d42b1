"""/api: what the console shows, from a real cluster."""

import json
import threading
import time
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaException, Producer

from penstock.testing.in_process import BrokerInProcess
from tests.e2e.node import wait_until
from tests.integration.http.conftest import MakeTopic

TEXT = {"content-type": "application/json; value=text"}
JSON = {"content-type": "application/json; value=json"}


def fill(http: httpx.Client, topic: str, values: list[Any], partitions: int = 1) -> None:
    messages = [{"value": value, "partition": n % partitions, "key": f"k{n}"} for n, value in enumerate(values)]
    http.post(
        f"/topics/{topic}/messages/batch", content=json.dumps({"messages": messages}), headers=JSON
    ).raise_for_status()


def look(http: httpx.Client, topic: str, **parameters: Any) -> dict[str, Any]:
    answer = http.get(f"/api/topics/{topic}/messages", params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def offsets(found: dict[str, Any]) -> list[int]:
    return [one["offset"] for one in found["messages"]]


def test_the_newest_messages_come_first(http: httpx.Client, topic: str) -> None:
    fill(http, topic, list(range(200)))
    first = look(http, topic, limit=10)
    assert offsets(first) == list(range(199, 189, -1))
    assert (first["total"], first["left"]) == (200, 190)
    second = look(http, topic, limit=10, cursor=first["cursor"])
    assert offsets(second) == list(range(189, 179, -1))


def test_pages_show_every_message_once(http: httpx.Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    fill(http, topic, list(range(100)), partitions=3)
    for place in ("newest", "start"):
        seen: list[tuple[int, int]] = []
        cursor = None
        while True:
            page = look(http, topic, limit=7, **{"from": place}, **({"cursor": cursor} if cursor else {}))
            assert len(page["messages"]) <= 7
            seen += [(one["partition"], one["offset"]) for one in page["messages"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) == 100


def test_a_filter_finds_what_matches_and_says_what_it_scanned(http: httpx.Client, topic: str) -> None:
    fill(http, topic, [{"n": number, "name": f"x{number}"} for number in range(1000)])
    found = look(http, topic, filter="value.n % 100 == 7")
    assert offsets(found) == [907, 807, 707, 607, 507, 407, 307, 207, 107, 7]
    assert (found["scanned"], found["total"], found["cursor"]) == (1000, 1000, None)
    found = look(http, topic, filter='key == "k5" || value.name.endsWith("999")', **{"from": "start"})
    assert offsets(found) == [5, 999]
    found = look(http, topic, filter="value.nope > 1")
    assert (found["messages"], found["filter_errors"]) == ([], 1000)
    assert found["filter_error"]


@pytest.mark.parametrize("filter", ["value.n >", "x" * 5000, "((((", '"unclosed'])
def test_a_filter_that_is_none_is_refused(http: httpx.Client, topic: str, filter: str) -> None:
    answer = http.get(f"/api/topics/{topic}/messages", params={"filter": filter})
    assert answer.status_code == 422


def test_places_in_a_topic(http: httpx.Client, topic: str) -> None:
    fill(http, topic, list(range(10)))
    timestamp = look(http, topic, limit=1)["messages"][0]["timestamp"]
    assert offsets(look(http, topic, **{"from": "4"})) == [4, 5, 6, 7, 8, 9]
    assert offsets(look(http, topic, **{"from": "-2"})) == [8, 9]
    assert offsets(look(http, topic, **{"from": "@1"})) == list(range(10))
    assert offsets(look(http, topic, **{"from": f"@{timestamp + 1}"})) == []
    assert offsets(look(http, topic, **{"from": "2001-01-01T00:00:00Z"})) == list(range(10))
    for wrong in ("yesterday", "2024-13-01", "--1"):
        assert http.get(f"/api/topics/{topic}/messages", params={"from": wrong}).status_code == 400


def test_values_are_shown_as_what_they_are(http: httpx.Client, topic: str) -> None:
    for value in (b'{"a": 1}', b"plain", b"\x00\x01", b"\xff", b""):
        headers = {"content-type": "application/octet-stream"}
        http.post(f"/topics/{topic}/messages", content=value, headers=headers).raise_for_status()
    http.post(f"/topics/{topic}/messages", json={"value": None}).raise_for_status()
    shown = [one["value"] for one in look(http, topic, **{"from": "start"})["messages"]]
    assert [one["encoding"] for one in shown] == ["json", "text", "base64", "base64", "text", "null"]
    assert shown[0]["value"] == {"a": 1}


def read_events(url: str, seconds: float) -> list[dict[str, Any]]:
    events = []
    deadline_s = time.monotonic() + seconds
    with httpx.stream("GET", url, timeout=30) as stream:
        assert stream.status_code == 200
        for line in stream.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
            if time.monotonic() > deadline_s:
                break
    return events


def test_a_tail_gives_every_message_and_goes_on_after_a_break(
    served: BrokerInProcess, http: httpx.Client, topic: str
) -> None:
    fill(http, topic, list(range(5)))
    url = f"{served.http_url}/topics/{topic}/tail?from=start&value=json"
    ids, values = [], []
    with httpx.stream("GET", url, timeout=30) as stream:
        for line in stream.iter_lines():
            if line.startswith("id: "):
                ids.append(line[4:])
            if line.startswith("data: "):
                values.append(json.loads(line[6:])["value"])
            if len(values) == 3:
                break
    assert values == [0, 1, 2]
    with httpx.stream("GET", url, headers={"last-event-id": ids[-1]}, timeout=30) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                values.append(json.loads(line[6:])["value"])
            if len(values) == 5:
                break
    assert values == [0, 1, 2, 3, 4]


def test_an_event_cannot_be_forged_by_a_message(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    forged = "x\n\nevent: messages\ndata: {}\n\n"
    http.post(f"/topics/{topic}/messages", content=json.dumps({"value": forged}), headers=TEXT).raise_for_status()
    with httpx.stream("GET", f"{served.http_url}/topics/{topic}/tail?from=start", timeout=30) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                assert json.loads(line[6:])["value"] == forged
                break
            assert not line.startswith("event: ")


def test_a_sampled_tail_survives_a_flood(served: BrokerInProcess, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    producer = Producer({"bootstrap.servers": served.bootstrap_servers, "linger.ms": 5, "log_level": 0, "acks": 1})
    is_over = threading.Event()
    sent = 0

    def flood() -> None:
        nonlocal sent
        while not is_over.is_set():
            try:
                producer.produce(topic, b'{"n": %d}' % sent)
                sent += 1
            except BufferError:
                producer.poll(0.01)
            if sent % 1000 == 0:
                producer.poll(0)

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        url = f"{served.http_url}/api/topics/{topic}/tail?per_second=40"
        events = read_events(url, 3)
    finally:
        is_over.set()
        flooding.join()
        producer.flush(20)
    assert max(len(one["messages"]) for one in events) <= 10
    last = events[-1]
    assert 0 < last["scanned"] < last["total"]
    assert last["total"] > 1000
    newest = [one["messages"][0]["offset"] for one in events if one["messages"]]
    assert len(newest) > 1


def test_groups_show_lag_and_are_moved_after_a_preview(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, list(range(10)))
    http.post(f"/consumers/{group}/offsets", json={"offsets": {topic: {"0": 4}}}).raise_for_status()
    (listed,) = [one for one in http.get("/api/groups").json()["groups"] if one["group"] == group]
    assert (listed["lag"], listed["topics"], listed["state"]) == (6, [topic], "EMPTY")
    detail = http.get(f"/api/groups/{group}").json()
    assert [(one["committed"], one["end"], one["lag"]) for one in detail["partitions"]] == [(4, 10, 6)]

    def reset(**body: Any) -> httpx.Response:
        return http.post(f"/api/groups/{group}/reset", json=body)

    for to, target in (("start", 0), ("end", 10), ("7", 7), ("+2", 6), ("-99", 0), ("+99", 10), ("@1", 0)):
        assert [one["target"] for one in reset(to=to).json()["plan"]] == [target]
    assert http.get(f"/api/groups/{group}").json()["lag"] == 6
    applied = reset(offsets={topic: {"0": 9}}, apply=True).json()
    assert applied["applied"]
    assert http.get(f"/api/groups/{group}").json()["lag"] == 1
    assert reset().status_code == 422
    assert reset(to="start", topics=["nope-nope"]).status_code == 404
    assert reset(offsets={topic: {"7": 1}}).status_code == 422
    assert http.delete(f"/api/groups/{group}").status_code == 204
    assert http.get(f"/api/groups/{group}").status_code == 404


def test_a_group_with_members_is_not_moved(http: httpx.Client, topic: str, group: str) -> None:
    fill(http, topic, [1])
    http.post(f"/consumers/{group}/subscribe", json={"topics": [topic]})
    assert http.get(f"/consumers/{group}/poll?timeout_ms=5000").json()["messages"]
    answer = http.post(f"/api/groups/{group}/reset", json={"to": "start", "topics": [topic], "apply": True})
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40903)
    http.delete(f"/consumers/{group}")


def test_the_overview_adds_up(http: httpx.Client, topic: str) -> None:
    before = http.get("/api/overview").json()
    fill(http, topic, list(range(50)))
    after = http.get("/api/overview").json()
    assert after["messages_in_total"] - before["messages_in_total"] >= 50
    assert after["problems"] == []
    (broker,) = after["brokers"]
    assert broker["is_controller"]
    assert broker["leaders"] == after["partitions"]
    (listed,) = http.get("/api/topics", params={"search": topic}).json()["topics"]
    assert (listed["partitions"], listed["messages_in_total"]) == (1, 50)
    detail = http.get(f"/api/topics/{topic}").json()
    assert detail["messages"] == 50
    assert all(one["doc"] for one in detail["configs"])
    assert http.get("/api/brokers").json()["brokers"][0]["id"] == 1


def test_settings_come_with_their_docs_and_values(http: httpx.Client) -> None:
    answer = http.get("/api/settings").json()
    by_name = {one["name"]: one for one in answer["brokers"]}
    assert by_name["group.initial.rebalance.delay.ms"]["values"]["1"] == {"value": "0", "source": "start-up"}
    assert all(one["doc"] for kind in ("brokers", "topics", "groups") for one in answer[kind])


def test_too_many_streams_are_refused(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    streams = []
    try:
        for _ in range(64):
            stream = http.stream("GET", f"/topics/{topic}/tail")
            opened = stream.__enter__()
            streams.append(stream)
            assert opened.status_code == 200
        assert http.get(f"/topics/{topic}/tail").status_code == 429
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)

    def is_free() -> bool:
        with http.stream("GET", f"/topics/{topic}/tail") as opened:
            return opened.status_code == 200

    wait_until(is_free, "the closed streams are forgotten")


def test_transactions_are_listed_where_brokers_tell(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    answer = http.get("/api/transactions").json()
    if not answer["is_served"]:
        assert answer["transactions"] == []
        return
    producer = Producer({"bootstrap.servers": served.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(20)
    (listed,) = [
        one for one in http.get("/api/transactions").json()["transactions"] if one["transactional_id"] == topic
    ]
    assert listed["state"] == "Ongoing"
    assert listed["partitions"] == [[topic, 0]]
    producer.abort_transaction(20)


def test_an_open_transaction_is_aborted_and_its_producer_fenced(
    served: BrokerInProcess, http: httpx.Client, topic: str
) -> None:
    name = f"pay/{topic}"
    producer = Producer({"bootstrap.servers": served.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"unfinished")
    producer.flush(20)
    (found,) = [one for one in _transactions(http) if one["transactional_id"] == name]
    path = f"/api/transactions/{name}/abort"
    meant = {key: found[key] for key in ("producer_id", "producer_epoch")}
    other = meant | {"producer_epoch": meant["producer_epoch"] + 1}
    assert http.post(path, json=other).status_code == 409
    assert http.post(path, json=meant).json() == {"transactional_id": name, "aborted": True}
    (found,) = [one for one in _transactions(http) if one["transactional_id"] == name]
    assert found["state"] in ("CompleteAbort", "Empty")
    with pytest.raises(KafkaException, match=r"(?i)fenced"):
        producer.commit_transaction(20)
    meant = {key: found[key] for key in ("producer_id", "producer_epoch")}
    assert http.post(path, json=meant).json()["message"] == f"'{name}' has no open transaction"
    assert http.post("/api/transactions/nobody/abort", json=meant).status_code == 404
    assert http.post(path, json={}).status_code == 422


def _transactions(http: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/api/transactions").json()["transactions"]
    return found


def test_a_compacted_topic_tells_how_dirty_it_is(http: httpx.Client, make_topic: MakeTopic) -> None:
    compacted = make_topic(cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="1.0")
    fill(http, compacted, ["x" * 400] * 6000)
    (found,) = http.get(f"/api/topics/{compacted}").json()["partitions"]
    assert (found["dirty_ratio"], found["compaction_progress"]) == (1.0, None)
    plain = make_topic()
    fill(http, plain, ["x"])
    (found,) = http.get(f"/api/topics/{plain}").json()["partitions"]
    assert found["dirty_ratio"] is None
