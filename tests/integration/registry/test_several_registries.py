"""Registries of one cluster: one writes, all answer, and what is registered outlives them."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, TopicPartition

from penstock.testing.ports import free_port
from tests.conftest import MakeBroker
from tests.e2e.node import Node, wait_until
from tests.integration.registry.conftest import MakeServer, Server


def register(http: httpx.Client, subject: str, schema: str) -> httpx.Response:
    return http.post(f"/subjects/{subject}/versions", json={"schema": schema})


def test_whoever_is_asked_the_leader_writes_and_all_know(make_server: MakeServer) -> None:
    leader = make_server().wait_for_leadership()
    follower = make_server()
    assert not follower.is_leader
    with leader.client() as to_leader, follower.client() as to_follower:
        assert register(to_follower, "a", '"string"').json()["id"] == 1
        assert register(to_leader, "a", '"bytes"').json()["version"] == 2
        wait_until(lambda: to_follower.get("/subjects/a/versions").json() == [1, 2], "the follower has read it")
        assert to_follower.put("/config/a", json={"compatibility": "NONE"}).json() == {"compatibility": "NONE"}
        refused = to_follower.put("/mode/a", json={"mode": "nonsense"})
        assert (refused.status_code, refused.json()["error_code"]) == (422, 42204)
        assert to_follower.delete("/subjects/a/versions/1").json() == 1
        assert to_follower.delete("/subjects/a?permanent=true").json()["error_code"] == 40405
        # A request that was sent on already is not sent on again.
        answer = to_follower.put("/config/a", json={"compatibility": "NONE"}, headers={"x-forward": "false"})
        assert (answer.status_code, answer.json()["error_code"]) == (500, 50004)


def test_another_one_leads_when_the_leader_goes(make_server: MakeServer) -> None:
    leader = make_server().wait_for_leadership()
    follower = make_server()
    with leader.client() as http:
        register(http, "a", '"string"')
    leader.stop()
    follower.wait_for_leadership()
    with follower.client() as http:
        assert http.get("/schemas/ids/1").json()["schema"] == '"string"'
        assert register(http, "b", '"int"').json()["id"] == 2


def test_another_one_leads_when_the_leader_is_killed(
    make_server: MakeServer, registry_node: Node, topic_name: str
) -> None:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "tests.integration.registry.conftest",
        registry_node.bootstrap,
        f"_schemas-{topic_name}",
    ]
    process = subprocess.Popen([*command, str(port)], cwd=Path(__file__).parents[3])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            wait_until(lambda: answers(http), "it serves")
            assert register(http, "a", '"string"').json()["id"] == 1
            follower = make_server()
    finally:
        process.kill()
        process.wait()
    with follower.client() as http:
        # Reads go on. Whoever writes waits until the group has noticed.
        assert http.get("/schemas/ids/1").json()["schema"] == '"string"'
        wait_until(lambda: bool(register(http, "b", '"int"').json().get("id") == 2), "the follower leads")
        assert follower.is_leader


def answers(http: httpx.Client) -> bool:
    try:
        return http.get("/").status_code == 200
    except httpx.TransportError:
        return False


def test_a_registry_goes_on_when_the_broker_comes_back(make_broker: MakeBroker, topic_name: str) -> None:
    node = make_broker("-X", "group.initial.rebalance.delay.ms=0")
    server = Server(node.bootstrap, "_schemas").start().wait_for_leadership()
    try:
        with server.client() as http:
            assert register(http, "a", '"string"').json()["id"] == 1
            node.stop()
            assert http.get("/schemas/ids/1").status_code == 200
            node.start()

            def registers() -> bool:
                return bool(register(http, "b", '"int"').json().get("id") == 2)

            wait_until(registers, "it registers again")
            assert http.get("/subjects").json() == ["a", "b"]
    finally:
        server.stop()


def test_a_registry_that_comes_back_knows_everything(make_server: MakeServer) -> None:
    port = free_port()
    first = make_server(port).wait_for_leadership()
    with first.client() as http:
        for number in range(20):
            assert register(http, f"s{number}", json.dumps({"type": "string", "n": number})).json()["id"] == number + 1
        http.put("/config", json={"compatibility": "FULL_TRANSITIVE"})
        http.put("/mode/s1", json={"mode": "READONLY"})
        http.delete("/subjects/s2")
        before = http.get("/schemas?deleted=true").json()
    first.stop()
    with make_server(port).client() as http:
        assert http.get("/schemas?deleted=true").json() == before
        assert http.get("/config").json() == {"compatibilityLevel": "FULL_TRANSITIVE"}
        assert http.get("/mode/s1").json() == {"mode": "READONLY"}
        assert "s2" not in http.get("/subjects").json()


def test_registrations_at_once_give_each_schema_one_id(make_server: MakeServer) -> None:
    servers = [make_server().wait_for_leadership(), make_server()]
    answers: list[tuple[int, Any]] = []

    def work(worker: int) -> None:
        with servers[worker % 2].client() as http:
            for number in range(15):
                answer = register(http, f"subject-{worker}", json.dumps({"type": "string", "n": number}))
                answers.append((number, answer.json().get("id", answer.text)))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 60
    assert {schema_id for _, schema_id in answers} == set(range(1, 16))
    assert len(set(answers)) == 15


def test_the_topic_is_compacted_and_holds_confluents_records(make_server: MakeServer, registry_node: Node) -> None:
    server = make_server().wait_for_leadership()
    with server.client() as http:
        register(http, "a", '"string"')
        http.put("/config/a", json={"compatibility": "NONE"})
        http.delete("/subjects/a")
    consumer = Consumer({"bootstrap.servers": registry_node.bootstrap, "group.id": "x", "log_level": 3})
    consumer.assign([TopicPartition(server.topic, 0, 0)])
    try:
        messages = consumer.consume(3, timeout=30)
        records = [(json.loads(item.key() or b""), json.loads(item.value() or b"")) for item in messages]
    finally:
        consumer.close()
    assert records[0][0] == {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}
    assert records[0][1] | {"md5": ""} == {
        "subject": "a",
        "version": 1,
        "id": 1,
        "md5": "",
        "schema": '"string"',
        "deleted": False,
    }
    assert records[1] == (
        {"keytype": "CONFIG", "subject": "a", "magic": 0},
        {"subject": "a", "compatibilityLevel": "NONE"},
    )
    assert records[2] == ({"keytype": "DELETE_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a", "version": 1})
