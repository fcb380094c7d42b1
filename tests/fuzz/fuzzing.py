"""A node that is sent nonsense, and a well-behaved client that watches over it."""

import re
import socket
import threading
import time
from struct import Struct as Packer

import pytest
from hypothesis import HealthCheck, settings

from tests.conformance.wire import Wire, ping
from tests.e2e.node import DEFECTS, Node

MEGABYTE = 1 << 20
# However long a busy machine may hold up one ping.
PING_SECONDS_MAX = 10.0
# Nearly all of them: how long the event loop may work on something else meanwhile. One is held up now and then; why is
# not known.
LOOP_SECONDS_MOSTLY_MAX = 0.2
GROWTH_BYTES_MAX = 150 * MEGABYTE
CLOSE_SECONDS_MAX = 20

_SIZE = Packer(">i")


def steady(max_examples: int) -> settings:
    """The same examples in every run."""
    return settings(
        max_examples=max_examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


class Watcher(threading.Thread):
    """Another client on a connection of its own, asking all the time. It must never notice anything."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        # Of the node's event loop while it was waited for, which a busy machine does not make more.
        self.loop_seconds: list[float] = []
        self.problem: Exception | None = None
        self._node = node
        self._wire = Wire(node.port)
        self._stopped = threading.Event()

    def run(self) -> None:
        try:
            while True:
                started_s, loop_started_s = time.monotonic(), self._node.loop_seconds
                ping(self._wire)
                self.seconds.append(time.monotonic() - started_s)
                self.loop_seconds.append(self._node.loop_seconds - loop_started_s)
                if self._stopped.wait(0.01):
                    return
        except Exception as problem:  # kept for the test's own thread, which fails with it
            self.problem = problem

    def finish(self) -> None:
        self._stopped.set()
        self.join(30)
        self._wire.socket.close()
        assert self.problem is None, self.problem
        held_up = [seconds for seconds in self.loop_seconds if seconds > LOOP_SECONDS_MOSTLY_MAX]
        assert len(held_up) <= 1 + len(self.loop_seconds) // 20, f"{held_up} s, of {len(self.loop_seconds)} pings"
        assert max(self.seconds) < PING_SECONDS_MAX


class Target:
    """The node under fire."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._checked_bytes = len(node.log)

    def fire(self, *pieces: bytes) -> list[bytes]:
        """Sends pieces one by one, then nothing more. The whole answers that came until the broker closed."""
        with socket.create_connection(("127.0.0.1", self.node.port), CLOSE_SECONDS_MAX) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            received = bytearray()
            try:
                for piece in pieces:
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    received += part
            except TimeoutError:
                pytest.fail("the broker has neither answered nor closed")
            except OSError:
                # It closed while there was more to send, or before we were done.
                pass
        return self._frames(received)

    def _frames(self, received: bytearray) -> list[bytes]:
        """An answer that the broker's closing cut short does not count; anything that is no answer fails."""
        frames = []
        position = 0
        while position + 4 <= len(received):
            (size,) = _SIZE.unpack_from(received, position)
            assert size >= 4, "the broker sent a frame that cannot be one"
            end = position + 4 + size
            if end > len(received):
                break
            frames.append(bytes(received[position + 4 : end]))
            position = end
        return frames

    def check_log(self) -> None:
        text = self.node.log
        new, self._checked_bytes = text[self._checked_bytes :], len(text)
        for defect in DEFECTS:
            assert defect not in new, new
        assert not re.search(r"unknown_server_error", new, re.I)
