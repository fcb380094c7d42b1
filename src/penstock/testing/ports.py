"""Ports for servers that are stopped and started again.

A port that the system chooses is one of those that it also gives to whoever connects. While its server is away, a
client may be given that very port, even the one that tries to reach the server, which is then connected to itself.
These are below that range, and each worker of a test run has its own.
"""

import itertools
import os
import random
import socket

_FIRST = 10_000
_PER_WORKER = 2_500
_WORKERS = 8
_TRIES_MAX = 200

# Of pytest-xdist: gw0, gw1, ... Who is none has the last share.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{_WORKERS - 1}").removeprefix("gw")) % _WORKERS
_first = _FIRST + _worker * _PER_WORKER
# In turn: a port whose server is away for a moment is not given to the next one.
_candidates = itertools.cycle(random.SystemRandom().sample(range(_first, _first + _PER_WORKER), _PER_WORKER))


def free_port() -> int:
    for port in itertools.islice(_candidates, _TRIES_MAX):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"none of {_TRIES_MAX} ports from {_first} on is free")


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
