"""A cluster of `penstock node` processes: three that control, and one that only holds data."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.testing.ports import free_port
from tests.e2e.node import DEFECTS, START_SECONDS_MAX, STOP_SECONDS_MAX, wait_until

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]


class Host:
    """One `penstock node`."""

    def __init__(self, node_id: int, directory: Path, port: int, voters: dict[int, int]) -> None:
        self.node_id = node_id
        self.port = port
        self._log = directory / f"{node_id}.log"
        roles = '["broker", "controller"]' if node_id in voters else '["broker"]'
        listed = ", ".join(f'"{voter}@127.0.0.1:{voter_port}"' for voter, voter_port in voters.items())
        self._file = directory / f"{node_id}.toml"
        self._file.write_text(
            f'node_id = {node_id}\nroles = {roles}\nlisten = "127.0.0.1:{port}"\nvoters = [{listed}]\n'
            f'rack = "r{node_id % 2}"\ndata = "{directory / str(node_id)}"\n'
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        return f"ready 127.0.0.1:{self.port}\n" in self.log

    def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*COMMAND, "node", "--config", str(self._file)], stdout=log, stderr=log)

    def signal(self, number: int) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(STOP_SECONDS_MAX)
        self._process = None
        return code

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def penstock(*arguments: str) -> tuple[int, Any]:
    result = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)
    print(result.stderr)
    return result.returncode, (json.loads(result.stdout) if result.stdout.startswith(("{", "[")) else result.stderr)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[int, Host]]:
    ports = {node_id: free_port() for node_id in range(1, 5)}
    voters = {node_id: ports[node_id] for node_id in (1, 2, 3)}
    made = {node_id: Host(node_id, tmp_path, port, voters) for node_id, port in ports.items()}
    try:
        for host in made.values():
            host.start()
        wait_until(lambda: all(host.is_ready for host in made.values()), "all nodes are ready", START_SECONDS_MAX)
        yield made
    finally:
        for host in made.values():
            host.close()


def test_nodes_of_files_make_a_cluster_that_can_be_looked_after(hosts: dict[int, Host]) -> None:
    brokers = ",".join(f"127.0.0.1:{host.port}" for host in hosts.values())
    code, health = penstock("cluster", "health", "--brokers", brokers, "-o", "json")
    assert (code, health["healthy"]) == (0, True), health
    assert penstock("topic", "create", "orders", "-p", "4", "-r", "3", "--brokers", brokers)[0] == 0
    producer = Producer({"bootstrap.servers": brokers, "acks": "all"})
    for number in range(100):
        producer.produce("orders", str(number))
    assert producer.flush(60) == 0

    code, drained = penstock("cluster", "drain", "4", "--yes", "--brokers", brokers, "-o", "json")
    assert code == 0, drained
    code, described = penstock("cluster", "describe", "--brokers", brokers, "-o", "json")
    assert next(node for node in described["nodes"] if node["id"] == 4)["replicas"] == 0, described
    # Nobody misses it now: it ends cleanly, and the others go on.
    assert hosts[4].signal(signal.SIGTERM) == 0
    assert hosts[3].signal(signal.SIGKILL) == -signal.SIGKILL

    def is_noticed() -> bool:
        code, health = penstock("cluster", "health", "--brokers", brokers, "-o", "json")
        return code == 1 and health["under_replicated"] == 4 and not health["healthy"]

    wait_until(is_noticed, "health tells of the dead node")
    hosts[3].start()
    wait_until(lambda: hosts[3].is_ready, "node 3 is back", START_SECONDS_MAX)
    wait_until(
        lambda: penstock("cluster", "health", "--brokers", brokers, "-o", "json")[1]["under_replicated"] == 0,
        "replicas have caught up",
    )
    for node_id in (1, 2, 3):
        assert hosts[node_id].signal(signal.SIGTERM) == 0
    for host in hosts.values():
        assert not [word for word in DEFECTS if word in host.log], host.log


def test_a_damaged_snapshot_of_the_metadata_stops_the_start_with_words(tmp_path: Path) -> None:
    port = free_port()
    host = Host(1, tmp_path, port, {1: port})
    settings = '[settings]\n"metadata.log.max.record.bytes.between.snapshots" = 500\n'
    (tmp_path / "1.toml").write_text((tmp_path / "1.toml").read_text() + settings)
    metadata = tmp_path / "1" / "__cluster_metadata-0"
    try:
        host.start()
        wait_until(lambda: host.is_ready, "the node is ready", START_SECONDS_MAX)
        topics = [f"topic-{number}" for number in range(8)]
        assert penstock("topic", "create", *topics, "--brokers", f"127.0.0.1:{port}")[0] == 0
        wait_until(lambda: bool(list(metadata.glob("*.checkpoint"))), "there is a snapshot")
        assert host.signal(signal.SIGTERM) == 0
        snapshot = sorted(metadata.glob("*.checkpoint"))[-1]
        whole = snapshot.read_bytes()
        snapshot.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
        code, words = penstock("node", "--config", str(tmp_path / "1.toml"))
        assert code == 1
        assert "is damaged. Restore it" in words
        snapshot.write_bytes(whole)
        host.start()
        wait_until(lambda: host.is_ready, "the node is ready again", START_SECONDS_MAX)
        listed = penstock("topic", "list", "--brokers", f"127.0.0.1:{port}", "-o", "json")[1]
        assert [topic["name"] for topic in listed] == topics
        assert host.signal(signal.SIGTERM) == 0
    finally:
        host.close()
