"""A process that `penstock up` started ends with it, however that ends."""

import os
import signal
import socket
import time

import pytest

from penstock.cli import node


@pytest.mark.parametrize("has_unread", [False, True])
def test_a_child_ends_with_its_parent_also_if_that_never_read_what_it_was_told(
    has_unread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, child = socket.socketpair()
    ends: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: ends.append(number))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(os, "_exit", ends.append)
    if has_unread:
        child.sendall(b"ready\n")
    parent.close()
    node.end_with_parent(child)
    child.close()
    assert ends == [signal.SIGTERM, 1]
