"""Requests that no honest client sends, byte for byte over a socket: nothing of them ends up where it must not."""

import socket

import pytest

from penstock.testing.in_process import BrokerInProcess

EVIL = "x%0d%0ax-evil:%201%0d%0a%0d%0ahurt"


def send(served: BrokerInProcess, request: bytes) -> bytes:
    """All that comes back until the server closes, which it does when we have nothing more to say."""
    host, _, port = served.http_url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(request)
        pieces = []
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize(
    "line",
    [
        f"GET /{EVIL}",
        f"GET /{EVIL}/",
        f"GET /console/{EVIL}",
        f"GET /console/topics/{EVIL}",
        f"GET /console/assets/{EVIL}/style.css",
        f"GET /topics/{EVIL}",
        f"GET /v3/clusters/{EVIL}",
        f"GET /api/groups/{EVIL}",
        f"GET /api/topics/{EVIL}/messages",
        f"GET /api/charts?group={EVIL}&topic={EVIL}",
        f"GET /api/charts?group=g&topic=t&partition={EVIL}",
        f"GET /metrics/brokers/{EVIL}",
        f"GET /subjects/{EVIL}/versions",
        f"GET /schemas/ids/{EVIL}",
        f"GET /contexts/{EVIL}/subjects",
        f"DELETE /consumers/{EVIL}",
        f"POST /api/transactions/{EVIL}/abort",
    ],
)
def test_line_breaks_in_names_make_no_headers(served: BrokerInProcess, line: str) -> None:
    request = f"{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    answer = send(served, request.encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    names = [one.partition(b":")[0].lower() for one in head.split(b"\r\n")[1:]]
    assert b"x-evil" not in names
    assert not body.startswith(b"hurt")
    assert b"Traceback" not in body


@pytest.mark.parametrize("name", [b"x%0d%0ax-evil: 1", b'"x\\015\\012x-evil: 1"', b"x%00", b"x\rx-evil: 1"])
def test_line_breaks_in_an_instance_name_are_refused(served: BrokerInProcess, name: bytes) -> None:
    body = b'{"topics": ["t"]}'
    request = (
        b"POST /consumers/g/subscribe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"cookie: penstock-instance=" + name
    )
    answer = send(served, request + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"x-evil:" not in answer.partition(b"\r\n\r\n")[0].lower()


@pytest.mark.parametrize(
    "request_bytes",
    [
        # Two lengths: a proxy in front may believe the other one, and take the rest for somebody else's request.
        b"POST /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\ncontent-length: 9\r\n\r\nGET /x H\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nbroken header\r\n\r\n",
        b"GET /health\x00 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["length and chunks", "two lengths", "no colon", "NUL", "TLS"],
)
def test_requests_that_can_be_read_in_two_ways_are_refused_and_the_connection_ends(
    served: BrokerInProcess, request_bytes: bytes
) -> None:
    answer = send(served, request_bytes)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
