"""penstock up: how it starts, what it says when it cannot, how it ends."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.testing.ports import free_port
from tests.integration.conftest import PENSTOCK, Up, start_up, wait_until_ready


def run_up(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([PENSTOCK, "up", *arguments], capture_output=True, text=True, timeout=60, check=False)


def is_running(pid: int) -> bool:
    """A zombie that nobody reaps has ended all the same."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not is_running(pid)


def produce_one(up: Up) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": up.address, "log_level": 0})
    producer.produce("kept", b"value", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert not failures


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_up_serves_until_a_signal_and_ends_cleanly(tmp_path: Path, signal_number: int) -> None:
    up = wait_until_ready(start_up(tmp_path / "data"))
    produce_one(up)
    pid = up.node_pid()
    assert is_running(pid)
    assert up.stop(signal_number) == 0, "".join(up.lines)
    wait_until_gone(pid)
    assert not (tmp_path / "data" / "node-1.pid").exists()


def test_up_says_what_to_try_next(tmp_path: Path) -> None:
    up = wait_until_ready(start_up(tmp_path / "data"))
    up.stop()
    text = "".join(up.lines)
    assert f"penstock topic create greetings -p 3 --brokers {up.address}" in text
    assert "Traceback" not in text


def test_no_node_outlives_an_up_that_was_killed(tmp_path: Path) -> None:
    up = wait_until_ready(start_up(tmp_path / "data"))
    pid = up.node_pid()
    up.stop(signal.SIGKILL)
    wait_until_gone(pid)


def test_up_reports_a_node_that_dies_and_fails(tmp_path: Path) -> None:
    up = wait_until_ready(start_up(tmp_path / "data"))
    os.kill(up.node_pid(), signal.SIGKILL)
    assert up.process.wait(20) == 1
    assert "node 1 was killed by signal 9" in "".join(up.lines)


def test_a_port_in_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_up("--data", str(tmp_path / "data"), "--port", str(port))
    assert result.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "--port" in result.stderr


def test_a_directory_in_use_is_refused_and_its_owner_is_not_disturbed(tmp_path: Path) -> None:
    up = wait_until_ready(start_up(tmp_path / "data"))
    pid = up.node_pid()
    result = run_up("--data", str(tmp_path / "data"), "--port", str(free_port()))
    assert result.returncode == 1
    assert "in use by another node" in result.stderr
    assert up.node_pid() == pid
    produce_one(up)
    assert up.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "exit_code", "complaint"),
    [
        (["-X", "num.partition=3"], 1, "Did you mean num.partitions?"),
        (["-X", "num.partitions=many"], 1, "num.partitions cannot be 'many'"),
        (["-X", "nonsense"], 2, "-X takes NAME=VALUE, not 'nonsense'"),
        (["--data", "/proc/nowhere"], 1, "cannot keep data in /proc/nowhere"),
    ],
)
def test_up_refuses_nonsense_in_a_sentence(
    tmp_path: Path, arguments: list[str], exit_code: int, complaint: str
) -> None:
    result = run_up("--data", str(tmp_path / "data"), "--port", str(free_port()), *arguments)
    assert result.returncode == exit_code
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_settings_given_to_up_are_in_force(tmp_path: Path) -> None:
    up = wait_until_ready(start_up(tmp_path / "data", "-X", "num.partitions=4"))
    command = [PENSTOCK, "config", "get", "num.partitions", "--brokers", up.address, "-o", "json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    up.stop()
    assert '"value": "4"' in result.stdout
    assert '"source": "start-up option"' in result.stdout
