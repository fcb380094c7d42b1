"""Ports of servers that are started again are nobody else's meanwhile."""

import socket
from pathlib import Path

import pytest

from penstock.testing import ports
from penstock.testing.ports import free_port, free_ports


def test_they_are_none_that_the_system_gives_to_whoever_connects() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(free_ports(50)) < lowest


def test_none_comes_twice_though_nobody_listens_there_yet() -> None:
    assert len(set(free_ports(100))) == 100


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        monkeypatch.setattr(ports, "_candidates", iter([taken.getsockname()[1], free]))
        assert free_port() == free
