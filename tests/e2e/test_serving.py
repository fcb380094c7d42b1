"""What can be seen of a running node: who is woken when, in which order answers come, how it stops and starts."""

import contextlib
import re
import signal
import struct
import threading
import time
import uuid
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record
from tests.conformance.cases.group_requests import commit_of, fetch_offsets_of
from tests.conformance.wire import (
    API_VERSIONS,
    DELETE_TOPICS,
    FETCH,
    FETCH_BY_NAME,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    PRODUCE_BY_NAME,
    Wire,
    batch_of,
    correlation_id_of,
    create_topic,
    decode_answer,
    fetch,
    fetch_of,
    framed,
    list_offsets_of,
    ping,
    produce,
    produce_of,
    records_of,
    request_payload,
)
from tests.conftest import MakeBroker
from tests.e2e.node import Node, wait_until

# Far longer than any test takes: whoever is answered earlier was woken.
WAIT_MS = 60_000


def in_background(work: Any) -> "tuple[threading.Thread, list[Any]]":
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


def test_a_waiting_fetch_is_woken_by_the_append(shared_broker: Node, topic_name: str) -> None:
    with Wire(shared_broker.port, 90) as reader, Wire(shared_broker.port) as writer:
        create_topic(writer, topic_name)
        latencies = []
        for offset in range(20):
            thread, results = in_background(
                lambda offset=offset: fetch(reader, topic_name, offset, min_bytes=1, max_wait_ms=WAIT_MS)
            )
            # A round trip on a third connection, so that the fetch is surely waiting.
            with Wire(shared_broker.port) as other:
                ping(other)
            started_s = time.monotonic()
            produce(writer, topic_name, batch_of([b"%d" % offset]), acks=1)
            thread.join(30)
            latencies.append(time.monotonic() - started_s)
            assert [record.value for record in records_of(results[0].records)] == [b"%d" % offset]
    assert sorted(latencies)[len(latencies) // 2] < 0.1


def test_a_waiting_fetch_is_woken_only_when_there_are_enough_bytes(shared_broker: Node, topic_name: str) -> None:
    with Wire(shared_broker.port, 90) as reader, Wire(shared_broker.port) as writer:
        create_topic(writer, topic_name)
        thread, results = in_background(lambda: fetch(reader, topic_name, 0, min_bytes=1000, max_wait_ms=WAIT_MS))
        for _ in range(3):
            produce(writer, topic_name, batch_of([b"x" * 200]), acks=1)
        assert not results
        produce(writer, topic_name, batch_of([b"x" * 600]), acks=1)
        thread.join(30)
        assert len(list(records_of(results[0].records))) == 4


def test_a_waiting_fetch_is_answered_when_its_time_is_up(shared_broker: Node, topic_name: str) -> None:
    with Wire(shared_broker.port) as wire:
        create_topic(wire, topic_name)
        started_s = time.monotonic()
        answer = fetch(wire, topic_name, 0, min_bytes=1, max_wait_ms=300)
        waited_s = time.monotonic() - started_s
    assert answer.records in (None, b"")
    assert waited_s >= 0.29


def test_a_waiting_fetch_learns_that_its_topic_is_deleted(shared_broker: Node, topic_name: str) -> None:
    with Wire(shared_broker.port, 90) as reader, Wire(shared_broker.port) as writer:
        create_topic(writer, topic_name)
        thread, results = in_background(lambda: fetch(reader, topic_name, 0, min_bytes=1, max_wait_ms=WAIT_MS))
        ping(writer)
        writer.ask(DELETE_TOPICS, 6, Struct(topics=[Struct(name=topic_name)], timeout=10_000))
        thread.join(30)
    assert results[0].error_code.name == "unknown_topic_or_partition"


def test_pipelined_requests_are_answered_in_their_order(shared_broker: Node, topic_name: str) -> None:
    """Some wait for the disk, some for data, some for nothing; answers keep the order all the same."""
    with Wire(shared_broker.port) as wire:
        create_topic(wire, topic_name)
        asked = []
        for number in range(100):
            match number % 5:
                case 0:
                    body = produce_of(topic_name, [(0, batch_of([b"%d" % number]))], acks=-1)
                    asked.append(wire.send(PRODUCE, PRODUCE_BY_NAME, body))
                case 1:
                    asked.append(wire.send(API_VERSIONS, 0, Struct()))
                case 2:
                    body = produce_of(topic_name, [(0, batch_of([b"%d" % number]))], acks=1)
                    asked.append(wire.send(PRODUCE, PRODUCE_BY_NAME, body))
                case 3:
                    body = fetch_of(topic_name, [(0, number // 5 * 2 + 2)], min_bytes=1, max_wait_ms=5)
                    asked.append(wire.send(FETCH, FETCH_BY_NAME, body))
                case _:
                    asked.append(wire.send(LIST_OFFSETS, 7, list_offsets_of(topic_name, [(0, -1)])))
        assert [correlation_id_of(wire.receive()) for _ in asked] == asked
        values = [record.value for record in records_of(fetch(wire, topic_name, 0).records)]
    assert values == [b"%d" % number for number in range(100) if number % 5 in (0, 2)]


@pytest.mark.parametrize("acks", [1, -1])
def test_requests_that_come_together_are_each_answered_as_alone(
    shared_broker: Node, topic_name: str, acks: int
) -> None:
    """Most are alike, and served together; some have no good batch, none at all, or are for another partition."""
    expected: list[tuple[int, ErrorCode, int]] = []
    ends = [0, 0]
    with Wire(shared_broker.port) as wire:
        topic_id = create_topic(wire, topic_name, partitions=2)
        frames = b""
        for number in range(300):
            batch = batch_of([b"x" * (number % 150), b"%d" % number])
            index, error = int(number % 40 > 30), ErrorCode.none
            if number % 50 == 7:
                batch[-1] ^= 1
                error = ErrorCode.corrupt_message
            elif number % 50 == 19:
                batch, error = bytearray(), ErrorCode.invalid_record
            expected.append((index, error, -1 if error else ends[index]))
            ends[index] += 0 if error else 2
            body = produce_of(topic_name, [(index, batch)], topic_id=topic_id, acks=acks)
            frames += framed(request_payload(PRODUCE, 13, body, number))
        wire.send_bytes(frames)
        answered = []
        for number in range(300):
            payload = wire.receive()
            assert correlation_id_of(payload) == number
            (answer,) = decode_answer(PRODUCE, 13, payload).responses[0].partition_responses
            answered.append((answer.index, answer.error_code, answer.base_offset))
        assert answered == expected
        values = [record.value for record in records_of(fetch(wire, topic_name, 0, max_bytes=1 << 20).records)]
    good = [number for number, (index, error, _) in enumerate(expected) if index == 0 and not error]
    assert values[1::2] == [b"%d" % number for number in good]


def test_large_requests_that_come_together_are_stored_as_they_were_sent(shared_broker: Node, topic_name: str) -> None:
    """Of several clients, for several partitions each, and more than a connection's buffer holds, which is where they
    are until the end of the turn."""
    clients, rounds, partitions = 3, 40, 3
    with contextlib.ExitStack() as open_wires:
        wires = [open_wires.enter_context(Wire(shared_broker.port, 60)) for _ in range(clients)]
        topic_id = create_topic(wires[0], topic_name, partitions=partitions)

        def value(client: int, number: int, index: int) -> bytes:
            return b"%d %d %d " % (client, number, index) * (100 + 97 * number % 3000)

        def send(client: int) -> None:
            frames = b""
            for number in range(rounds):
                batches = [(index, batch_of([value(client, number, index)])) for index in range(partitions)]
                body = produce_of(topic_name, batches, topic_id=topic_id, acks=1 if number % 7 else -1)
                frames += framed(request_payload(PRODUCE, 13, body, number))
            wires[client].send_bytes(frames)

        senders = [threading.Thread(target=send, args=(client,), daemon=True) for client in range(clients)]
        for sender in senders:
            sender.start()
        offsets: dict[tuple[int, int], bytes] = {}
        for client, wire in enumerate(wires):
            for number in range(rounds):
                payload = wire.receive()
                assert correlation_id_of(payload) == number
                (topic,) = decode_answer(PRODUCE, 13, payload).responses
                for one in topic.partition_responses:
                    assert one.error_code == ErrorCode.none
                    offsets[one.index, one.base_offset] = value(client, number, one.index)
        stored: dict[tuple[int, int], bytes | None] = {}
        for index in range(partitions):
            while (offset := sum(key[0] == index for key in stored)) < clients * rounds:
                found = fetch(wires[0], topic_name, offset, partition=index, max_bytes=1 << 20)
                for record in records_of(found.records):
                    stored[index, record.offset] = record.value
    assert stored == offsets


def test_what_came_before_a_malformed_frame_is_answered(shared_broker: Node, topic_name: str) -> None:
    with Wire(shared_broker.port) as wire:
        topic_id = create_topic(wire, topic_name)
        frames = b""
        for number in range(3):
            body = produce_of(topic_name, [(0, batch_of([b"%d" % number]))], topic_id=topic_id, acks=1)
            frames += framed(request_payload(PRODUCE, 13, body, number))
        wire.send_bytes(frames + struct.pack(">i", -1))
        assert [correlation_id_of(wire.receive()) for _ in range(3)] == [0, 1, 2]
        assert wire.is_closed_by_peer()
    with Wire(shared_broker.port) as wire:
        assert fetch(wire, topic_name, 0).high_watermark == 3


def test_commits_that_come_together_are_each_answered_and_the_last_one_counts(
    shared_broker: Node, topic_name: str
) -> None:
    """Most are alike, and taken together; some carry metadata, are for another partition, or for one that is not
    there."""
    expected: list[tuple[int, ErrorCode]] = []
    with Wire(shared_broker.port) as wire:
        create_topic(wire, topic_name, partitions=2)
        wire.ask(FIND_COORDINATOR, 4, Struct(key_type=0, coordinator_keys=[topic_name]))
        wait_until(
            lambda: not wire.ask(OFFSET_FETCH, 9, fetch_offsets_of(topic_name)).groups[0].error_code,
            "the coordinator answers",
        )
        frames = b""
        for number in range(200):
            index = {31: 1, 32: 7}.get(number % 40, 0)
            metadata = "x" if number % 50 == 9 else ""
            body = commit_of(topic_name, topic_name, [(index, number)], metadata=metadata)
            frames += framed(request_payload(OFFSET_COMMIT, 9, body, number))
            expected.append((index, ErrorCode.unknown_topic_or_partition if index == 7 else ErrorCode.none))
        wire.send_bytes(frames)
        answered = []
        for number in range(200):
            payload = wire.receive()
            assert correlation_id_of(payload) == number
            (answer,) = decode_answer(OFFSET_COMMIT, 9, payload).topics[0].partitions
            answered.append((answer.partition_index, answer.error_code))
        (group,) = wire.ask(OFFSET_FETCH, 9, fetch_offsets_of(topic_name)).groups
    assert answered == expected
    kept = {one.partition_index: one.committed_offset for one in group.topics[0].partitions}
    assert kept == {0: 199, 1: 191}


def test_a_produce_without_acks_that_fails_closes_the_connection(shared_broker: Node, topic_name: str) -> None:
    with Wire(shared_broker.port) as wire:
        create_topic(wire, topic_name)
        wire.send(PRODUCE, PRODUCE_BY_NAME, produce_of(topic_name, [(0, batch_of([b"v"]))], acks=0))
        ping(wire)
        damaged = batch_of([b"v"])
        damaged[-1] ^= 1
        wire.send(PRODUCE, PRODUCE_BY_NAME, produce_of(topic_name, [(0, damaged)], acks=0))
        assert wire.is_closed_by_peer()
    with Wire(shared_broker.port) as wire:
        assert fetch(wire, topic_name, 0).high_watermark == 1


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_leaves_nothing_to_recover(make_broker: MakeBroker, signal_number: int) -> None:
    node = make_broker()
    with Wire(node.port) as wire:
        create_topic(wire, "calm", 3)
        for partition in range(3):
            produce(wire, "calm", batch_of([b"v"] * 10), partition=partition, acks=1)
        # One who waits does not hold it up.
        wire.send(FETCH, FETCH_BY_NAME, fetch_of("calm", [(0, 10)], min_bytes=1, max_wait_ms=WAIT_MS))
        node.stop(signal_number)
    before = len(node.log)
    node.start()
    with Wire(node.port) as wire:
        for partition in range(3):
            assert fetch(wire, "calm", 0, partition=partition).high_watermark == 10
    assert "WARNING" not in node.log[before:]
    assert "ERROR" not in node.log[before:]


def test_a_topic_created_anew_under_the_same_name_has_nothing_of_the_old_one(make_broker: MakeBroker) -> None:
    node = make_broker()
    old_ids: set[uuid.UUID] = set()
    with Wire(node.port) as wire:
        for _ in range(3):
            topic_id = create_topic(wire, "phoenix", 2)
            assert topic_id not in old_ids
            old_ids.add(topic_id)
            assert fetch(wire, "phoenix", 0).high_watermark == 0
            assert produce(wire, "phoenix", batch_of([b"old"] * 5)).base_offset == 0
            wire.ask(DELETE_TOPICS, 6, Struct(topics=[Struct(name="phoenix")], timeout=10_000))
        create_topic(wire, "phoenix")
        stale = fetch_of("", [(0, 0)], topic_id=topic_id)
        (answered,) = wire.ask(FETCH, 16, stale).responses[0].partitions
        assert answered.error_code.name == "unknown_topic_id"
    node.kill9()
    node.start()
    with Wire(node.port) as wire:
        assert fetch(wire, "phoenix", 0).high_watermark == 0
        assert produce(wire, "phoenix", batch_of([b"new"])).base_offset == 0


def test_message_max_bytes_of_the_node_is_the_limit_of_its_topics(make_broker: MakeBroker) -> None:
    node = make_broker("-X", "message.max.bytes=10000")
    with Wire(node.port) as wire:
        create_topic(wire, "limited")
        create_topic(wire, "larger", configs={"max.message.bytes": "30000"})
        batch = batch_of([bytes(20_000)])
        assert produce(wire, "limited", batch_of([bytes(9000)])).error_code == 0
        assert produce(wire, "limited", batch).error_code.name == "message_too_large"
        assert produce(wire, "larger", batch).error_code == 0


def test_automatic_creation_can_be_switched_off(make_broker: MakeBroker) -> None:
    node = make_broker("-X", "auto.create.topics.enable=false")
    with Wire(node.port) as wire:
        asked = Struct(topics=[Struct(name="absent")], allow_auto_topic_creation=True)
        (topic,) = wire.ask(METADATA, 12, asked).topics
        assert topic.error_code.name == "unknown_topic_or_partition"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_with_a_codec_of_its_own_recompresses_what_it_is_sent(
    shared_broker: Node, topic_name: str, codec: str
) -> None:
    number_of = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    with Wire(shared_broker.port) as wire:
        create_topic(wire, topic_name, configs={"compression.type": codec})
        values = [b"value " * 100, None, b""]
        for sent in range(5):
            assert produce(wire, topic_name, batch_of(values, codec=sent, key=b"k")).error_code == 0
        data: bytes = fetch(wire, topic_name, 0).records
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        (attributes,) = struct.unpack_from(">h", data, position + 21)
        assert attributes & 7 == number_of[codec]
        position += 12 + length
    records: list[Record] = list(records_of(data))
    assert [record.value for record in records] == values * 5
    assert {record.key for record in records} == {b"k"}


def test_each_malformed_frame_is_one_line_in_the_log(make_broker: MakeBroker) -> None:
    node = make_broker()
    for size in (-1, 2**31 - 1):
        with Wire(node.port) as wire:
            wire.send_bytes(struct.pack(">i", size))
            assert wire.is_closed_by_peer()
    with Wire(node.port) as wire:
        ping(wire)
    assert len(re.findall(r"closed 127\.0\.0\.1:\d+: ", node.log)) == 2
