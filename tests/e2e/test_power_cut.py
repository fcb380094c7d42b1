"""The power goes: what was acknowledged with acks=all is there, whatever else the disk has kept or torn.

A whole node on a simulated disk, with clients over TCP. What was not synced survives in part, differently in every
file, perhaps with a torn end.
"""

import random

import pytest

from penstock.protocol.messages import Struct
from penstock.testing.sim_disk import Survival
from tests.conformance.wire import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    Wire,
    batch_of,
    create_topic,
    create_topic_of,
    fetch,
    list_offsets_of,
    produce,
    records_of,
)
from tests.e2e.sim_node import SimNode

# Values by offset.
Acknowledged = dict[int, bytes]


def survival(chance: random.Random) -> Survival:
    """Some of the unsynced bytes of some of the files."""
    return lambda _, unsynced: chance.choice([0, unsynced, chance.randint(0, unsynced)])


def read_values(wire: Wire, topic: str, partition: int = 0) -> Acknowledged:
    found: Acknowledged = {}
    offset = 0
    while True:
        answer = fetch(wire, topic, offset, partition=partition, partition_max_bytes=20_000)
        assert answer.error_code == 0
        for record in records_of(answer.records):
            assert record.value is not None
            found[record.offset] = record.value
            offset = record.offset + 1
        if offset >= answer.high_watermark:
            return found


@pytest.fixture
def node() -> SimNode:
    """Tests end it themselves: it is not the same node after a power cut."""
    return SimNode().start()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_acknowledged_with_acks_all_is_lost_and_offsets_never_mean_something_else(seed: int) -> None:
    chance = random.Random(seed)
    node = SimNode().start()
    partitions = 3
    acknowledged: list[Acknowledged] = [{} for _ in range(partitions)]
    with Wire(node.port) as wire:
        # Small segments, so that rolls are among what the cut interrupts.
        create_topic(wire, "cut", partitions, {"internal.segment.bytes": "2000", "index.interval.bytes": "300"})
    for round_number in range(4):
        with Wire(node.port) as wire:
            for number in range(chance.randint(1, 30)):
                partition = chance.randrange(partitions)
                acks = chance.choice([-1, 1])
                values = [b"%d.%d.%d" % (round_number, number, index) * 5 for index in range(chance.randint(1, 5))]
                answer = produce(
                    wire, "cut", batch_of(values, codec=chance.choice([0, 4])), partition=partition, acks=acks
                )
                assert answer.error_code == 0
                if acks == -1:
                    # The sync covers what stands before it in the same log.
                    written = read_values(wire, "cut", partition)
                    acknowledged[partition] = {**acknowledged[partition], **written}
        node = node.cut_power(survival(chance), torn=chance.random() < 0.5).start()
        with Wire(node.port) as wire:
            for partition in range(partitions):
                found = read_values(wire, "cut", partition)
                assert acknowledged[partition].items() <= found.items()
                assert list(found) == list(range(len(found)))
                acknowledged[partition] = found
    node.stop()


def test_a_producer_goes_on_where_it_was_and_its_duplicates_are_known(node: SimNode) -> None:
    with Wire(node.port) as wire:
        create_topic(wire, "once")
        given = wire.ask(INIT_PRODUCER_ID, 4, Struct(transactional_id=None, transaction_timeout=1000))
        producer_id = given.producer_id
        for sequence in range(8):
            batch = batch_of([b"%d" % sequence], producer=(producer_id, 0, sequence))
            assert produce(wire, "once", batch).base_offset == sequence
    node = node.cut_power().start()
    with Wire(node.port) as wire:
        again = produce(wire, "once", batch_of([b"7"], producer=(producer_id, 0, 7)))
        assert (again.error_code, again.base_offset) == (0, 7)
        gap = produce(wire, "once", batch_of([b"x"], producer=(producer_id, 0, 20)))
        assert gap.error_code.name == "out_of_order_sequence_number"
        assert produce(wire, "once", batch_of([b"8"], producer=(producer_id, 0, 8))).base_offset == 8
        assert len(read_values(wire, "once")) == 9
        # No producer id is given twice.
        others = wire.ask(INIT_PRODUCER_ID, 4, Struct(transactional_id=None, transaction_timeout=1000))
        assert others.producer_id != producer_id
    node.stop()


def test_topics_settings_and_deletions_that_were_answered_are_kept(node: SimNode) -> None:
    with Wire(node.port) as wire:
        create_topic(wire, "kept", 2)
        create_topic(wire, "deleted")
        change = Struct(name="retention.ms", config_operation=0, value="77")
        resource = Struct(resource_type=2, resource_name="kept", configs=[change])
        (altered,) = wire.ask(INCREMENTAL_ALTER_CONFIGS, 1, Struct(resources=[resource])).responses
        assert altered.error_code == 0
        produce(wire, "kept", batch_of([b"a", b"b", b"c"]))
        deletion = Struct(topics=[Struct(name="kept", partitions=[Struct(partition_index=0, offset=2)])], timeout=1000)
        assert wire.ask(DELETE_RECORDS, 2, deletion).topics[0].partitions[0].low_watermark == 2
        (gone,) = wire.ask(DELETE_TOPICS, 6, Struct(topics=[Struct(name="deleted")], timeout=1000)).responses
        assert gone.error_code == 0
    node = node.cut_power().start()
    with Wire(node.port) as wire:
        listed = wire.ask(METADATA, 12, Struct(topics=None))
        assert {topic.name: len(topic.partitions) for topic in listed.topics} == {"kept": 2}
        assert wire.ask(LIST_OFFSETS, 7, list_offsets_of("kept", [(0, -2)])).topics[0].partitions[0].offset == 2
        (again,) = wire.ask(CREATE_TOPICS, 7, create_topic_of("kept")).topics
        assert again.error_code.name == "topic_already_exists"
    node.stop()


def test_a_clean_stop_is_not_mistaken_for_a_durable_one(node: SimNode) -> None:
    """Where no boot id tells a restart of the machine, a clean stop syncs everything."""
    with Wire(node.port) as wire:
        create_topic(wire, "calm")
        for number in range(10):
            produce(wire, "calm", batch_of([b"%d" % number]), acks=1)
    node.stop()
    node.disk.crash()
    node = SimNode(node.disk).start()
    with Wire(node.port) as wire:
        assert len(read_values(wire, "calm")) == 10
    node.stop()


def test_an_fsync_that_fails_is_never_acknowledged(node: SimNode) -> None:
    with Wire(node.port) as wire:
        create_topic(wire, "failing")
        assert produce(wire, "failing", batch_of([b"good"])).error_code == 0
        node.disk.fail("sync", ".log")
        assert produce(wire, "failing", batch_of([b"bad"])).error_code.name == "kafka_storage_error"
        # Nobody knows what the disk has now: no more writes, but reads go on.
        assert produce(wire, "failing", batch_of([b"later"]), acks=1).error_code.name == "kafka_storage_error"
        assert read_values(wire, "failing")[0] == b"good"
    node = node.cut_power().start()
    with Wire(node.port) as wire:
        assert read_values(wire, "failing")[0] == b"good"
        assert produce(wire, "failing", batch_of([b"after"])).error_code == 0
    node.stop()
