"""Retention and compaction on real nodes: killed in the middle of both, read in the middle of both.

What counts is what a client can tell: an acknowledged record is there until a later one of its key is, or until the
log begins after it; offsets never move; nothing comes back.
"""

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record
from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.confluent import create, make_producer, send_all
from tests.conformance.java_tools import JavaTools
from tests.conformance.wire import (
    DELETE_TOPICS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Wire,
    batch_of,
    fetch,
    list_offsets_of,
    produce,
    records_of,
)
from tests.conftest import MakeBroker
from tests.e2e.node import Node, wait_until

KEYS = 40
ROUNDS = 5
BRISK = ("-X", "log.cleaner.backoff.ms=20", "-X", "log.retention.check.interval.ms=50")
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "200",
    "file.delete.delay.ms": "100",
}


def start_offset(wire: Wire, topic: str) -> int:
    answer = wire.ask(LIST_OFFSETS, 9, list_offsets_of(topic, [(0, -2)]))
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def read_log(node: Node, topic: str) -> tuple[int, list[Record]]:
    """(log start offset, every record from there on). The start may move on while it is read."""
    with Wire(node.port) as wire:
        while True:
            start = offset = start_offset(wire, topic)
            found: list[Record] = []
            while True:
                answer = fetch(wire, topic, offset, partition_max_bytes=1 << 20)
                if answer.error_code == ErrorCode.offset_out_of_range:
                    break
                assert answer.error_code == 0
                if offset >= answer.high_watermark:
                    return start, found
                records = [record for record in records_of(answer.records) if record.offset >= offset]
                found += records
                # Batches that were emptied hold no records: go on after what was asked for.
                offset = records[-1].offset + 1 if records else offset + 1


class KeyedLoad(threading.Thread):
    """Writes numbers under few keys, and now and then a tombstone; knows what was acknowledged, by key."""

    def __init__(self, node: Node, topic: str) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        # By key: number and offset of the last acknowledged record, and whether it is a tombstone.
        self.last: dict[bytes, tuple[int, int, bool]] = {}
        self.count = 0
        self.failures: list[str] = []
        self._stopped = threading.Event()
        self._chance = random.Random(topic)
        self._producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "log_level": 0,
                "linger.ms": 2,
                "batch.size": 4000,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            for _ in range(50):
                self._send(number)
                number += 1
            self._producer.poll(0)
            self._stopped.wait(0.02)
        assert self._producer.flush(120) == 0

    def _send(self, number: int) -> None:
        key = b"k%d" % self._chance.randrange(KEYS)
        is_tombstone = self._chance.random() < 0.1
        value = None if is_tombstone else b"%d" % number + bytes(100)

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
                return
            self.count += 1
            known = self.last.get(key)
            if known is None or known[1] < message.offset():
                self.last[key] = number, message.offset(), is_tombstone

        self._producer.produce(self.topic, value, key, partition=0, on_delivery=delivered)

    def finish(self) -> None:
        self._stopped.set()
        self.join(150)
        assert not self.is_alive()
        assert not self.failures


def number_of(record: Record) -> int:
    assert record.value is not None
    return int(record.value.rstrip(b"\0"))


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_kill_9_during_compaction_loses_no_last_value_and_brings_nothing_back(make_broker: MakeBroker) -> None:
    chance = random.Random("compaction")
    node = make_broker(*BRISK)
    create(node, "compacted", 1, COMPACTED)
    load = KeyedLoad(node, "compacted")
    load.start()
    before: dict[int, tuple[bytes | None, bytes | None]] = {}
    for _ in range(ROUNDS):
        enough = load.count + chance.randint(200, 1500)
        wait_until(lambda enough=enough: load.count >= enough, "records are acknowledged")  # type: ignore[misc]
        node.kill9()
        known = dict(load.last)
        assert not load.failures
        node.start()
        _, records = read_log(node, "compacted")
        found = {record.offset: (record.key, record.value) for record in records}
        for key, (_, offset, is_tombstone) in known.items():
            of_key = [record for record in records if record.key == key]
            if not is_tombstone or of_key:
                # It, or a later one, is there; a tombstone may be gone, with all that it deleted.
                assert of_key
                assert of_key[-1].offset >= offset, f"{key!r} went back"
        for offset, pair in found.items():
            assert before.get(offset, pair) == pair, "an offset has another record than before"
        before |= found
    load.finish()
    checkpoint = node.directory / "cleaner-offset-checkpoint"
    wait_until(checkpoint.exists, "there was a pass of compaction")
    # All that is left of it: a few records of each key in every segment, and the active one.
    wait_until(lambda: len(read_log(node, "compacted")[1]) < load.count / 4, "the log is compacted")
    _, records = read_log(node, "compacted")
    for key, (number, offset, is_tombstone) in load.last.items():
        of_key = [record for record in records if record.key == key]
        if not is_tombstone:
            assert (of_key[-1].offset, number_of(of_key[-1])) == (offset, number)
    node.stop()
    assert not [
        path.name for path in (node.directory / "compacted-0").iterdir() if path.suffix in (".cleaned", ".swap")
    ]
    if kafka_jars() is not None:
        tools = JavaTools()
        tools.check_segments(node.directory / "compacted-0")
        tools.close()


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_kill_9_during_deletion_leaves_the_end_of_the_log_whole(make_broker: MakeBroker) -> None:
    chance = random.Random("deletion")
    node = make_broker(*BRISK)
    settings = {"retention.bytes": "60000", "internal.segment.bytes": "20000", "file.delete.delay.ms": "30"}
    create(node, "short", 1, settings)
    load = KeyedLoad(node, "short")
    load.start()
    earlier_start = 0
    for _ in range(ROUNDS):
        enough = load.count + chance.randint(200, 1500)
        wait_until(lambda enough=enough: load.count >= enough, "records are acknowledged")  # type: ignore[misc]
        node.kill9()
        last_offset = max(offset for _, offset, _ in load.last.values())
        node.start()
        start, records = read_log(node, "short")
        assert start >= earlier_start, "what was deleted came back"
        earlier_start = start
        assert [record.offset for record in records] == list(range(start, start + len(records)))
        assert records[-1].offset >= last_offset
    load.finish()
    assert earlier_start > 0
    node.stop()


def test_a_reader_in_the_middle_of_a_deletion_goes_on_or_is_told_that_it_is_too_late(make_broker: MakeBroker) -> None:
    node = make_broker(*BRISK)
    settings = {"internal.segment.bytes": "10000", "file.delete.delay.ms": "0"}
    create(node, "t", 1, settings)
    sent = send_all(make_producer(node, {"batch.size": 2000}), "t", [b"%d" % n + bytes(200) for n in range(2000)])
    assert len(sent) == 2000
    with Wire(node.port) as wire, Wire(node.port) as admin:
        offset = 0
        was_told = False
        while offset < 2000:
            answer = fetch(wire, "t", offset, partition_max_bytes=9000)
            if answer.error_code == ErrorCode.offset_out_of_range:
                was_told = True
                assert start_offset(admin, "t") > offset
                break
            assert answer.error_code == 0
            for record in records_of(answer.records):
                if record.offset >= offset:
                    assert record.offset == offset
                    assert record.value == b"%d" % offset + bytes(200)
                    offset += 1
            if offset > 200 and start_offset(admin, "t") == 0:
                _alter(node, "t", "retention.bytes", "30000")
    assert was_told or offset == 2000
    wait_until(lambda: read_log(node, "t")[0] > 1500, "old segments are dropped")


def _alter(node: Node, topic: str, name: str, value: str) -> None:
    with Wire(node.port) as wire:
        change = Struct(name=name, config_operation=0, value=value)
        resource = Struct(resource_type=2, resource_name=topic, configs=[change])
        wire.ask(INCREMENTAL_ALTER_CONFIGS, 1, Struct(resources=[resource], validate_only=False))


def files_below(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


def test_a_deleted_topic_leaves_no_file_and_its_name_no_data(make_broker: MakeBroker) -> None:
    node = make_broker(*BRISK)
    create(node, "gone", 3, COMPACTED)
    with Wire(node.port) as wire:
        for partition in range(3):
            for number in range(100):
                batch = batch_of([b"%d" % number + bytes(300)], key=b"k")
                assert produce(wire, "gone", batch, partition=partition, acks=1).error_code == 0
        wire.ask(DELETE_TOPICS, 6, Struct(topics=[Struct(name="gone", topic_id=None)], timeout=1000))
    create(node, "gone", 3, COMPACTED)
    assert read_log(node, "gone") == (0, [])
    wait_until(lambda: not [name for name in files_below(node.directory) if name.endswith("-delete")], "it is removed")
    with Wire(node.port) as wire:
        assert produce(wire, "gone", batch_of([b"new"], key=b"k")).base_offset == 0
    node.kill9()
    node.start()
    start, records = read_log(node, "gone")
    assert (start, [record.value for record in records]) == (0, [b"new"])


@pytest.mark.slow
def test_a_year_of_commits_fits_into_a_segment_and_a_restart_stays_fast(make_broker: MakeBroker) -> None:
    # Commits of ten partitions, a year of them at one every quarter of an hour.
    commits, partitions, segment_bytes = 4 * 24 * 365, 10, 1 << 20
    settings = {"offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": str(segment_bytes)}
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    node = make_broker(*BRISK, *options)
    create(node, "read", partitions)
    with Wire(node.port) as wire:
        wire.ask(FIND_COORDINATOR, 4, Struct(key_type=0, coordinator_keys=["yearly"]))
        wait_until(lambda: wire.ask(OFFSET_COMMIT, 8, commit_of_all("yearly", 0, partitions)) is not None, "it answers")
        in_flight = 0
        for number in range(commits):
            wire.send(OFFSET_COMMIT, 8, commit_of_all("yearly", number, partitions))
            in_flight += 1
            if in_flight == 100 or number == commits - 1:
                for _ in range(in_flight):
                    wire.receive()
                in_flight = 0
    directory = node.directory / "__consumer_offsets-0"

    def log_bytes() -> int:
        sizes = 0
        for path in directory.glob("*.log"):
            # Compaction may take it away meanwhile.
            with suppress(FileNotFoundError):
                sizes += path.stat().st_size
        return sizes

    # What is compacted is next to nothing; what is not is the active segment.
    wait_until(lambda: log_bytes() < 1.5 * segment_bytes, "the commits are compacted")
    node.kill9()
    started_s = time.monotonic()
    node.start()
    with Wire(node.port) as wire:
        found: list[int] = []

        def answers() -> bool:
            asked = Struct(group_id="yearly", topics=[Struct(name="read", partition_indexes=list(range(partitions)))])
            answer = wire.ask(OFFSET_FETCH, 7, asked)
            found[:] = [one.committed_offset for topic in answer.topics for one in topic.partitions]
            return bool(answer.error_code == 0)

        wait_until(answers, "the coordinator has read its log")
    assert found == [commits - 1] * partitions
    # Starting the process takes most of it.
    assert time.monotonic() - started_s < 20


def commit_of_all(group_id: str, offset: int, partitions: int) -> Struct:
    committed = [
        Struct(partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
        for index in range(partitions)
    ]
    return Struct(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[Struct(name="read", partitions=committed)],
    )
