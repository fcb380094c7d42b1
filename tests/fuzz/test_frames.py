"""Frames of every wrong kind: each gets an answer or a closed connection, and nobody else notices."""

import socket
import ssl
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.messages import Struct
from tests.conformance.cluster import APIS_BY_KEY, versions_of
from tests.conformance.test_every_version import REQUESTS
from tests.conformance.wire import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    FETCH_BY_NAME,
    METADATA,
    PRODUCE,
    PRODUCE_BY_NAME,
    Wire,
    batch_of,
    correlation_id_of,
    create_topic_of,
    fetch_of,
    framed,
    ping,
    produce_of,
    request_payload,
)
from tests.fuzz.fuzzing import MEGABYTE, Target, steady

PING = framed(request_payload(API_VERSIONS, 0, Struct(), correlation_id=777))

# What lengths, counts and indexes like to be when they are wrong.
EXTREMES = [
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe", b"\x00\x00\x00\x00",
    b"\xff\xff", b"\x7f\xff", b"\x80\x00", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x00", b"\x01", b"\xff",
]  # fmt: skip

api_versions = st.sampled_from([(key, version) for key in APIS_BY_KEY for version in versions_of(key)])


@st.composite
def mutations(draw: st.DrawFn, payload: bytes, start: int = 0) -> bytes:
    """Some bytes overwritten, inserted, removed, or the end cut off."""
    data = bytearray(payload)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(start, max(start, len(data) - 1)))
        match draw(st.sampled_from(["overwrite", "insert", "remove", "flip", "cut", "repeat"])):
            case "overwrite":
                extreme = draw(st.sampled_from(EXTREMES))
                data[position : position + len(extreme)] = extreme
            case "insert":
                data[position:position] = draw(st.sampled_from(EXTREMES) | st.binary(max_size=8))
            case "remove":
                del data[position : position + draw(st.integers(1, 8))]
            case "flip" if position < len(data):
                data[position] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[position:]
            case "repeat":
                data += data[position : position + 20]
    return bytes(data)


def valid_payload(api_key: int, version: int) -> bytes:
    """A request about a topic that is there, where that makes a difference and no harm."""
    body = REQUESTS[api_key]("not-there" if api_key == DELETE_TOPICS else "plain", None)
    return request_payload(api_key, version, body)


@steady(150)
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_random_bytes(target: Target, pieces: list[bytes]) -> None:
    target.fire(*pieces)
    target.check_log()


@steady(150)
@given(st.lists(st.binary(max_size=100).map(framed), min_size=1, max_size=4))
def test_random_bytes_in_proper_frames(target: Target, frames: list[bytes]) -> None:
    target.fire(*frames, PING)
    target.check_log()


@steady(200)
@given(
    st.integers(-2, 80), st.integers(-2, 25), st.binary(max_size=60), st.sampled_from([b"", b"\x00", b"\x01\x05\x01x"])
)
def test_any_api_key_and_version_with_any_body(
    target: Target, api_key: int, version: int, body: bytes, tags: bytes
) -> None:
    header = api_key.to_bytes(2, signed=True) + version.to_bytes(2, signed=True) + b"\x00\x00\x00\x05\x00\x01x"
    target.fire(framed(header + tags + body), PING)
    target.check_log()


@steady(800)
@given(st.data())
def test_requests_with_some_bytes_changed(target: Target, data: st.DataObject) -> None:
    api_key, version = data.draw(api_versions)
    payload = data.draw(mutations(valid_payload(api_key, version), start=8))
    target.fire(framed(payload), PING)
    target.check_log()


@steady(60)
@given(st.data())
def test_whole_requests_that_come_in_any_pieces_are_answered(target: Target, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(api_versions, min_size=1, max_size=4))
    stream = b"".join(framed(valid_payload(api_key, version)) for api_key, version in chosen) + PING
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    with Wire(target.node.port) as wire:
        for piece in pieces:
            wire.send_bytes(piece)
        answers = [correlation_id_of(wire.receive()) for _ in range(len(chosen) + 1)]
    assert answers == [1] * len(chosen) + [777]


@steady(60)
@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50))
def test_any_announced_size(target: Target, size: int, rest: bytes) -> None:
    target.fire(size.to_bytes(4, signed=True) + rest)
    target.check_log()


def test_a_frame_that_drips_in_byte_by_byte_is_answered(target: Target) -> None:
    with Wire(target.node.port) as wire:
        for byte in framed(valid_payload(METADATA, 12)):
            wire.send_bytes(bytes([byte]))
        assert correlation_id_of(wire.receive()) == 1


@pytest.mark.parametrize(
    "speech",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /topics/x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00" * 1000,
        b"\xff" * 1000,
    ],
)
def test_other_protocols_are_closed_on(target: Target, speech: bytes) -> None:
    assert target.fire(speech) == []


def test_tls_on_the_plain_port_is_closed_on(target: Target) -> None:
    context = ssl.create_default_context()
    with (
        socket.create_connection(("127.0.0.1", target.node.port), 20) as connection,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        context.wrap_socket(connection, server_hostname="localhost")


@pytest.mark.parametrize("count", [1, 1000])
def test_connections_that_say_nothing(target: Target, count: int) -> None:
    connections = [socket.create_connection(("127.0.0.1", target.node.port), 20) for _ in range(count)]
    with Wire(target.node.port) as wire:
        ping(wire)
    for connection in connections:
        connection.close()


def test_a_good_request_before_a_bad_one_is_answered(target: Target) -> None:
    answers = target.fire(PING + PING + b"\x7f\xff\xff\xff")
    assert [correlation_id_of(answer) for answer in answers] == [777, 777]


names = st.one_of(
    st.sampled_from(["", ".", "..", "/", "../../etc/passwd", "a/b", "x" * 249, "x" * 250, "a.b", "a_b", "plain"]),
    st.text(max_size=20),
    st.sampled_from(["\x00", "é" * 125, "𝕏" * 60, "%s%n", "a\r\nb", "__consumer_offsets", "__cluster_metadata"]),
)  # fmt: skip
numbers = st.sampled_from([0, -1, 1, 2, 10**9, 2**31 - 1, -(2**31)])


@steady(150)
@given(names, numbers, st.sampled_from([1, -1, 0, 2, 32767, -32768]), st.sampled_from([2, 4, 5, 7]))
def test_topics_of_any_name_and_number(target: Target, name: str, partitions: int, replicas: int, version: int) -> None:
    body = create_topic_of(name, partitions, replication_factor=replicas)
    body.validate_only = True
    assert len(target.fire(framed(request_payload(CREATE_TOPICS, version, body)), PING)) == 2
    target.check_log()


@steady(150)
@given(names, st.lists(numbers, max_size=5), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-1, 0, 1, 2]))
def test_reads_and_writes_of_any_topic_and_partition(
    target: Target, name: str, indexes: list[int], offset: int, acks: int
) -> None:
    fetching = fetch_of(name, [(index, offset) for index in indexes])
    producing: Any = produce_of(name, [(index, batch_of([b"v"])) for index in indexes], acks=acks)
    answers = target.fire(
        framed(request_payload(FETCH, FETCH_BY_NAME, fetching)),
        framed(request_payload(PRODUCE, PRODUCE_BY_NAME, producing)),
        PING,
    )
    # Without acks a failure closes the connection, and perhaps on what was not read yet.
    assert len(answers) == 3 or acks == 0
    target.check_log()


@steady(100)
@given(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([-1, 0, 1, 5, 2**31 - 1]),
    st.sampled_from([7, 11, 12]),
)
def test_guessed_fetch_sessions_and_spoofed_replicas(
    target: Target, session_id: int, session_epoch: int, replica_id: int, version: int
) -> None:
    body = fetch_of("plain", [(0, 0)], session=(session_id, session_epoch))
    body.replica_id = replica_id
    assert len(target.fire(framed(request_payload(FETCH, version, body)), PING)) == 2
    target.check_log()


def test_many_large_frames_at_once_are_bounded(target: Target) -> None:
    """Ten clients announce a great deal and send a fair part of it; they share the memory of none of the others."""
    for _ in range(3):
        connections = [socket.create_connection(("127.0.0.1", target.node.port), 20) for _ in range(10)]
        for connection in connections:
            connection.sendall((50 * MEGABYTE).to_bytes(4) + bytes(MEGABYTE))
        for connection in connections:
            connection.close()
