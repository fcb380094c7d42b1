"""penstock up and penstock http: HTTP beside the nodes, from start to end."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from penstock.testing.ports import free_port
from tests.e2e.node import wait_until
from tests.integration.conftest import PENSTOCK, Up, wait_until_ready


def start_with_http(data: Path, http_port: int) -> Up:
    port = free_port()
    command = [PENSTOCK, "up", "--data", str(data), "--port", str(port), "--http-port", str(http_port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    up = Up(process, data, f"127.0.0.1:{port}")

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                up.lines.append(line)
                if line.startswith("ready "):
                    up.is_ready.set()

    threading.Thread(target=read, daemon=True).start()
    return wait_until_ready(up)


def is_serving(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_up_serves_http_and_ends_it_with_the_nodes(tmp_path: Path, signal_number: int) -> None:
    port = free_port()
    up = start_with_http(tmp_path / "data", port)
    wait_until(lambda: is_serving(port), "HTTP serves")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        assert client.post("/topics/t/messages", json={"value": "aGk="}).json()["offset"] == 0
        client.post("/consumers/g/subscribe", json={"topics": ["t"]})
        assert len(client.get("/consumers/g/poll?timeout_ms=5000").json()["messages"]) == 1
    http_pid = int((tmp_path / "data" / "http.pid").read_text())
    assert up.stop(signal_number) == 0, "".join(up.lines)
    assert not is_serving(port)
    assert not Path(f"/proc/{http_pid}").exists()
    log = (tmp_path / "data" / "http.log").read_text()
    assert "Traceback" not in log, log
    wait_until(lambda: any(f"http://127.0.0.1:{port}" in line for line in up.lines), "it said where HTTP is", 5)


def test_a_port_in_use_leaves_the_cluster_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = start_with_http(tmp_path / "data", port)
        wait_until(lambda: any("http did not start" in line for line in up.lines), "it said so")
    assert f"cannot listen on 127.0.0.1:{port}" in "".join(up.lines)
    assert "--http-port" in "".join(up.lines)
    assert Path(f"/proc/{up.node_pid()}").exists()
    assert up.stop() == 0


def test_http_goes_when_up_is_killed(tmp_path: Path) -> None:
    port = free_port()
    up = start_with_http(tmp_path / "data", port)
    wait_until(lambda: is_serving(port), "HTTP serves")
    up.process.kill()
    up.process.wait()
    wait_until(lambda: not is_serving(port), "HTTP has ended too")


def test_http_serves_alone_and_logs_json(tmp_path: Path) -> None:
    """Also while there is no cluster: it says so, quickly, and goes on."""
    port = free_port()
    command = [PENSTOCK, "http", "--bootstrap", f"127.0.0.1:{free_port()}", "--http-port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--log-format", "json"], stderr=log, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("ready http://127.0.0.1:")
        started_s = time.monotonic()
        answer = httpx.post(f"http://127.0.0.1:{port}/topics/t/messages", json={"value": ""}, timeout=30)
        assert (answer.status_code, answer.json()["error_code"]) == (503, 50301)
        assert time.monotonic() - started_s < 15
    finally:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert any(line["logger"] == "penstock.http.slow" for line in lines)
