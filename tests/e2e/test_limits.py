"""Many partitions cost little while they are idle, and a client that does not read costs nobody else anything."""

import select
import time
from pathlib import Path

import pytest

from penstock.protocol.messages import Struct
from tests.conformance.wire import (
    CREATE_TOPICS,
    FETCH,
    FETCH_BY_NAME,
    LIST_OFFSETS,
    METADATA,
    Wire,
    batch_of,
    create_topic,
    create_topic_of,
    decode_answer,
    fetch,
    fetch_of,
    list_offsets_of,
    ping,
    produce,
    produce_of,
    records_of,
)
from tests.conftest import MakeBroker
from tests.e2e.node import Node, wait_until

MEGABYTE = 1 << 20


def segment_files(node: Node) -> list[str]:
    """Those that the node holds open."""
    inside = str(node.directory)
    return [path for path in node.open_files() if path.startswith(inside) and Path(path).suffix != ".lock"]


@pytest.mark.slow
def test_a_restart_opens_none_of_thousands_of_partitions_and_opening_them_holds_nobody_up(
    make_broker: MakeBroker,
) -> None:
    topics, partitions = 300, 10
    node = make_broker()
    with Wire(node.port, 120) as wire:
        for first in range(0, topics, 50):
            new = [create_topic_of(f"t{number}", partitions).topics[0] for number in range(first, first + 50)]
            body = Struct(topics=new, timeout=60_000, validate_only=False)
            answer = wire.ask(CREATE_TOPICS, 7, body)
            assert {topic.error_code for topic in answer.topics} == {0}
        for number in range(topics):
            batches = [(index, batch_of([b"v"])) for index in range(partitions)]
            answer = wire.ask(0, 12, produce_of(f"t{number}", batches, acks=1))
            assert {one.error_code for one in answer.responses[0].partition_responses} == {0}
    node.stop()
    started_s = time.monotonic()
    node.start()
    started_in_s = time.monotonic() - started_s
    assert len(segment_files(node)) < 20
    with Wire(node.port, 120) as wire:
        assert len(wire.ask(METADATA, 12, Struct(topics=None)).topics) == topics
        for number in (0, topics - 1):
            assert fetch(wire, f"t{number}", 0, partition=partitions - 1).high_watermark == 1
    assert len(segment_files(node)) < 30
    assert node.resident_bytes < 300 * MEGABYTE
    assert started_in_s < 20
    _check_that_others_are_served_while_all_are_asked_for(node, topics, partitions)


def _check_that_others_are_served_while_all_are_asked_for(node: Node, topics: int, partitions: int) -> None:
    """Each partition is opened for its answer, which takes a while."""
    earliest = [(index, -2) for index in range(partitions)]
    asked = Struct(
        replica_id=-1,
        isolation_level=0,
        topics=[list_offsets_of(f"t{number}", earliest).topics[0] for number in range(topics)],
        timeout=60_000,
    )
    with Wire(node.port, 120) as curious, Wire(node.port, 120) as other:
        curious.send(LIST_OFFSETS, 8, asked)
        ping(other)
        assert not select.select([curious.socket], [], [], 0)[0], "the second request waited for the first"
        answer = decode_answer(LIST_OFFSETS, 8, curious.receive())
    assert {one.offset for topic in answer.topics for one in topic.partitions} == {0}


def fill(wire: Wire, topic: str, megabytes: int) -> None:
    create_topic(wire, topic)
    for _ in range(megabytes):
        assert produce(wire, topic, batch_of([bytes(MEGABYTE - 200)]), acks=1).error_code == 0


def test_a_client_that_asks_and_never_reads_costs_neither_memory_nor_others_time(make_broker: MakeBroker) -> None:
    node = make_broker()
    with Wire(node.port) as wire:
        fill(wire, "large", 20)
    before = node.resident_bytes
    with Wire(node.port) as greedy, Wire(node.port) as modest:
        body = fetch_of("large", [(0, 0)], partition_max_bytes=20 * MEGABYTE)
        greedy.socket.settimeout(1)
        try:
            # 40 GB in all, if the broker were to take it on.
            for _ in range(2000):
                greedy.send(FETCH, FETCH_BY_NAME, body)
        except TimeoutError:
            # Nothing more is taken from a client that does not read.
            pass
        slowest_s = 0.0
        for _ in range(50):
            started_s = time.monotonic()
            ping(modest)
            assert produce(modest, "large", batch_of([b"v"]), acks=1).error_code == 0
            slowest_s = max(slowest_s, time.monotonic() - started_s)
        assert node.resident_bytes - before < 60 * MEGABYTE
        assert slowest_s < 2


def test_a_slow_reader_gets_every_byte_in_the_end(make_broker: MakeBroker) -> None:
    node = make_broker()
    with Wire(node.port) as wire:
        fill(wire, "large", 8)
        body = fetch_of("large", [(0, 0)], partition_max_bytes=20 * MEGABYTE)
        count = 10
        for _ in range(count):
            wire.send(FETCH, FETCH_BY_NAME, body)
        with Wire(node.port) as other:
            ping(other)
        for _ in range(count):
            (topic,) = decode_answer(FETCH, FETCH_BY_NAME, wire.receive()).responses
            assert len(list(records_of(topic.partitions[0].records))) == 8


def test_large_requests_that_come_byte_by_byte_cost_only_what_came(make_broker: MakeBroker) -> None:
    """A frame announces up to 100 MiB; what is not sent is not set aside."""
    node = make_broker()
    with Wire(node.port) as wire:
        ping(wire)
    before = node.resident_bytes
    connections = [Wire(node.port) for _ in range(50)]
    for wire in connections:
        wire.send_bytes((100 * MEGABYTE).to_bytes(4) + bytes(10))
    with Wire(node.port) as other:
        for _ in range(10):
            ping(other)
    assert node.resident_bytes - before < 60 * MEGABYTE
    for wire in connections:
        wire.socket.close()


def test_connections_that_end_are_forgotten(make_broker: MakeBroker) -> None:
    node = make_broker()
    with Wire(node.port) as wire:
        create_topic(wire, "waited")
    held = len(node.open_files())
    for _ in range(5):
        waiting = [Wire(node.port) for _ in range(40)]
        for wire in waiting:
            wire.send(FETCH, FETCH_BY_NAME, fetch_of("waited", [(0, 0)], min_bytes=1, max_wait_ms=60_000))
        for wire in waiting:
            wire.socket.close()
    wait_until(lambda: len(node.open_files()) <= held + 2, "closed connections are gone")
