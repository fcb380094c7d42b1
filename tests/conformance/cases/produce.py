"""Produce: what is accepted, what is refused, and how."""

import struct
import uuid
from typing import Any

from crc32c import crc32c

from penstock.protocol.batch import encode_batch
from penstock.protocol.messages import Struct
from tests.conformance.cases.registry import case
from tests.conformance.cluster import CLOSED, Cluster, versions_of
from tests.conformance.wire import (
    FETCH,
    FETCH_BY_NAME,
    PRODUCE,
    PRODUCE_BY_NAME,
    Closed,
    batch_of,
    fetch_of,
    ping,
    produce_of,
    request_payload,
)

UNKNOWN_ID = uuid.UUID(int=0xABCDEF)


def reseal(batch: bytearray) -> bytearray:
    """The CRC of a batch that was tampered with, made right again."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def send(cluster: Cluster, topic: str, batch: bytes | bytearray | None, *, acks: int = 1, partition: int = 0) -> Any:
    return cluster.ask(PRODUCE, PRODUCE_BY_NAME, produce_of(topic, [(partition, batch)], acks=acks))


def read_back(cluster: Cluster, topic: str, offset: int = 0) -> Any:
    return cluster.ask(FETCH, FETCH_BY_NAME, fetch_of(topic, [(0, offset)]))


@case
def produce_in_every_version(cluster: Cluster) -> Any:
    topic_id = cluster.topic("produce-versions", 2)
    asked = [
        (version, acks, produce_of("produce-versions", [(1, batch_of([b"a", None]))], topic_id=topic_id, acks=acks))
        for version in versions_of(PRODUCE)
        for acks in (1, -1)
    ]
    answers = [cluster.ask(PRODUCE, version, body) for version, _, body in asked]
    return [answers, cluster.ask(FETCH, FETCH_BY_NAME, fetch_of("produce-versions", [(1, 0)]))]


@case
def produce_to_an_unknown_topic(cluster: Cluster) -> Any:
    return cluster.ask_all_versions(PRODUCE, produce_of("nowhere", [(0, batch_of([b"a"]))], topic_id=UNKNOWN_ID))


@case
def produce_to_the_zero_topic_id(cluster: Cluster) -> Any:
    return cluster.ask(PRODUCE, 13, produce_of("", [(0, batch_of([b"a"]))], topic_id=None))


@case
def produce_to_unknown_partitions(cluster: Cluster) -> Any:
    topic_id = cluster.topic("produce-partitions")
    batches = [(index, batch_of([b"a"])) for index in (-1, 1, 10**9, 2**31 - 1)]
    return cluster.ask_all_versions(PRODUCE, produce_of("produce-partitions", batches, topic_id=topic_id))


@case
def produce_with_acks_that_do_not_exist(cluster: Cluster) -> Any:
    topic_id = cluster.topic("produce-acks")
    return [
        cluster.ask_all_versions(
            PRODUCE, produce_of("produce-acks", [(0, batch_of([b"a"]))], topic_id=topic_id, acks=acks)
        )
        for acks in (2, -2, 32767)
    ]


@case
def produce_without_acks_to_an_unknown_topic_closes(cluster: Cluster) -> Any:
    cluster.wire.send(PRODUCE, PRODUCE_BY_NAME, produce_of("nowhere", [(0, batch_of([b"a"]))], acks=0))
    is_closed = cluster.wire.is_closed_by_peer()
    cluster.close()
    return is_closed


@case
def produce_without_acks_gets_no_answer(cluster: Cluster) -> Any:
    cluster.topic("produce-no-acks")
    cluster.wire.send(PRODUCE, PRODUCE_BY_NAME, produce_of("produce-no-acks", [(0, batch_of([b"a", b"b"]))], acks=0))
    ping(cluster.wire)
    return read_back(cluster, "produce-no-acks")


@case
def produce_without_topics(cluster: Cluster) -> Any:
    return cluster.ask_all_versions(PRODUCE, Struct(acks=1, timeout=1000, topic_data=[]))


@case
def produce_topics_without_partitions(cluster: Cluster) -> Any:
    topic_id = cluster.topic("produce-no-partitions")
    return [
        cluster.ask_all_versions(PRODUCE, produce_of(name, [], topic_id=topic_id))
        for name in ("produce-no-partitions", "nowhere")
    ]


@case
def produce_with_a_topic_twice(cluster: Cluster) -> Any:
    cluster.topic("produce-twice", 2)
    body = produce_of("produce-twice", [(0, batch_of([b"a"]))], acks=1)
    body.topic_data += produce_of("produce-twice", [(1, batch_of([b"b"]))]).topic_data
    return cluster.ask(PRODUCE, PRODUCE_BY_NAME, body)


@case
def produce_with_topics_good_and_bad(cluster: Cluster) -> Any:
    cluster.topic("produce-good")
    body = produce_of("produce-good", [(0, batch_of([b"a"])), (5, batch_of([b"b"]))], acks=-1)
    body.topic_data += produce_of("produce-missing", [(0, batch_of([b"c"]))]).topic_data
    return cluster.ask(PRODUCE, PRODUCE_BY_NAME, body)


@case
def produce_with_a_transactional_id_only_in_the_request(cluster: Cluster) -> Any:
    cluster.topic("produce-tx-id")
    body = produce_of("produce-tx-id", [(0, batch_of([b"a"]))], acks=-1)
    body.transactional_id = "t"
    return cluster.ask(PRODUCE, PRODUCE_BY_NAME, body)


@case
def produce_no_records(cluster: Cluster) -> Any:
    cluster.topic("produce-nothing")
    # Not null: Kafka never answers that.
    return [send(cluster, "produce-nothing", data) for data in (b"", bytes(10), bytes(60))]


@case
def produce_a_wrong_crc(cluster: Cluster) -> Any:
    cluster.topic("produce-crc")
    batch = batch_of([b"value"])
    batch[-1] ^= 0xFF
    return [send(cluster, "produce-crc", batch), read_back(cluster, "produce-crc")]


@case
def produce_other_magics(cluster: Cluster) -> Any:
    cluster.topic("produce-magic")
    answers = {}
    for magic in (0, 1, 3, 127, -1):
        batch = batch_of([b"value"])
        struct.pack_into(">b", batch, 16, magic)
        answers[f"magic {magic}"] = send(cluster, "produce-magic", batch)
    return answers


@case
def produce_batch_lengths_that_lie(cluster: Cluster) -> Any:
    cluster.topic("produce-length")
    answers = {}
    true_length = len(batch_of([b"value"])) - 12
    for length in (-1, 0, 10, 48, true_length - 1, true_length + 1, 10**6, 2**31 - 1, -(2**31)):
        batch = batch_of([b"value"])
        struct.pack_into(">i", batch, 8, length)
        answers[f"length {length}"] = send(cluster, "produce-length", batch)
    return [answers, read_back(cluster, "produce-length")]


@case
def produce_two_batches_for_a_partition(cluster: Cluster) -> Any:
    cluster.topic("produce-two")
    return [send(cluster, "produce-two", batch_of([b"a"]) + batch_of([b"b"])), read_back(cluster, "produce-two")]


@case
def produce_a_batch_and_a_bit(cluster: Cluster) -> Any:
    cluster.topic("produce-bit")
    return [send(cluster, "produce-bit", batch_of([b"a"]) + bytes(count)) for count in (1, 11, 12, 17, 61)]


@case
def produce_a_control_batch(cluster: Cluster) -> Any:
    cluster.topic("produce-control")
    return [send(cluster, "produce-control", batch_of([b"a"], attributes=attributes)) for attributes in (0x20, 0x30)]


@case
def produce_attributes_that_mean_nothing(cluster: Cluster) -> Any:
    cluster.topic("produce-attributes")
    answers = {}
    for attributes in (0x40, 0x80, 0x100, 0x4000, 0x10):
        answers[hex(attributes)] = send(cluster, "produce-attributes", batch_of([b"a"], attributes=attributes))
    return [answers, read_back(cluster, "produce-attributes")]


@case
def produce_codecs_that_do_not_exist(cluster: Cluster) -> Any:
    cluster.topic("produce-codec")
    answers = {}
    for codec in (5, 6, 7):
        batch = batch_of([b"value"])
        struct.pack_into(">h", batch, 21, codec)
        answers[f"codec {codec}"] = send(cluster, "produce-codec", reseal(batch))
    return answers


@case
def produce_every_codec_in_every_version(cluster: Cluster) -> Any:
    topic_id = cluster.topic("produce-codecs")
    answers = {}
    for codec in range(5):
        batch = batch_of([b"value" * 20, b"other" * 20], codec=codec)
        asked = produce_of("produce-codecs", [(0, batch)], topic_id=topic_id)
        answers[f"codec {codec}"] = cluster.ask_all_versions(PRODUCE, asked)
    return [answers, read_back(cluster, "produce-codecs")]


@case
def produce_counts_that_lie(cluster: Cluster) -> Any:
    cluster.topic("produce-counts")
    answers = {}
    for name, position, value in [
        ("no records", 57, 0),
        ("fewer records than offsets", 57, 1),
        ("more records than offsets", 57, 3),
        ("-1 records", 57, -1),
        ("2^31-1 records", 57, 2**31 - 1),
        ("fewer offsets than records", 23, 0),
        ("more offsets than records", 23, 5),
        ("an offset delta of -1", 23, -1),
        ("an offset delta of 2^31-1", 23, 2**31 - 1),
    ]:
        batch = batch_of([b"a", b"b"])
        struct.pack_into(">i", batch, position, value)
        answers[name] = send(cluster, "produce-counts", reseal(batch))
    return answers


@case
def produce_an_empty_batch(cluster: Cluster) -> Any:
    cluster.topic("produce-empty")
    return send(cluster, "produce-empty", encode_batch(b"", record_count=0, last_offset_delta=-1))


@case
def produce_with_a_base_offset(cluster: Cluster) -> Any:
    cluster.topic("produce-offset")
    answers = {}
    for offset in (1, 1000, -1, 2**62):
        batch = batch_of([b"a"])
        struct.pack_into(">q", batch, 0, offset)
        answers[f"offset {offset}"] = send(cluster, "produce-offset", batch)
    return [answers, read_back(cluster, "produce-offset")]


@case
def produce_with_a_leader_epoch(cluster: Cluster) -> Any:
    cluster.topic("produce-epoch")
    answers = []
    for epoch in (0, 7, -5):
        batch = batch_of([b"a"])
        struct.pack_into(">i", batch, 12, epoch)
        answers.append(send(cluster, "produce-epoch", batch))
    return [answers, read_back(cluster, "produce-epoch")]


@case
def produce_too_large_a_batch(cluster: Cluster) -> Any:
    cluster.topic("produce-large", configs={"max.message.bytes": "1000"})
    answers = {}
    overhead = len(batch_of([bytes(900)])) - 900
    for size in (1000, 1001, 5000):
        answers[f"{size} bytes"] = send(cluster, "produce-large", batch_of([bytes(size - overhead)]))
    return answers


@case
def produce_the_largest_batch_by_default(cluster: Cluster) -> Any:
    cluster.topic("produce-largest")
    overhead = len(batch_of([bytes(1_000_000)])) - 1_000_000
    return [
        send(cluster, "produce-largest", batch_of([bytes(size - overhead)]))["responses"][0]["partition_responses"]
        for size in (1_048_588, 1_048_589)
    ]


@case
def produce_extreme_timestamps(cluster: Cluster) -> Any:
    cluster.topic("produce-times")
    answers = {}
    for timestamp in (0, -1, -2, 1, -(2**62), 2**62, 4_000_000_000_000):
        answers[f"at {timestamp}"] = send(cluster, "produce-times", batch_of([b"a", b"b"], timestamp_ms=timestamp))
    return [answers, read_back(cluster, "produce-times")]


@case
def produce_max_timestamps_that_lie(cluster: Cluster) -> Any:
    cluster.topic("produce-max-time")
    answers = {}
    for maximum in (-1, 0, 1_600_000_000_000, 1_800_000_000_000, 2**62):
        batch = batch_of([b"a"], timestamp_ms=1_700_000_000_000)
        struct.pack_into(">q", batch, 35, maximum)
        answers[f"{maximum}"] = send(cluster, "produce-max-time", reseal(batch))
    return [answers, read_back(cluster, "produce-max-time")]


@case
def produce_stamped_by_the_client(cluster: Cluster) -> Any:
    cluster.topic("produce-stamped")
    answer = send(cluster, "produce-stamped", batch_of([b"a"], attributes=0x08))
    return [answer, read_back(cluster, "produce-stamped")]


@case
def produce_to_a_topic_of_append_time(cluster: Cluster) -> Any:
    topic_id = cluster.topic("produce-append-time", configs={"message.timestamp.type": "LogAppendTime"})
    plain = produce_of("produce-append-time", [(0, batch_of([b"a", b"b"]))], topic_id=topic_id)
    stamped = produce_of("produce-append-time", [(0, batch_of([b"c"], attributes=0x08))], topic_id=topic_id)
    answers = [cluster.ask_all_versions(PRODUCE, body) for body in (plain, stamped)]
    return [answers, read_back(cluster, "produce-append-time")]


@case
def produce_out_of_the_time_bounds_of_the_topic(cluster: Cluster) -> Any:
    cluster.topic(
        "produce-bounds",
        configs={"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
    )
    answers = {}
    for name, timestamp in (("early", 1_000_000_000_000), ("late", 4_000_000_000_000), ("none", -1)):
        batch = batch_of([b"a", b"b"], timestamp_ms=timestamp)
        answers[name] = send(cluster, "produce-bounds", batch)
    return answers


@case
def produce_without_keys_to_a_compacted_topic(cluster: Cluster) -> Any:
    cluster.topic("produce-compacted", configs={"cleanup.policy": "compact"})
    answers = [
        send(cluster, "produce-compacted", batch_of([b"a", b"b"], key=key, codec=codec))
        for key in (None, b"", b"k")
        for codec in (0, 4)
    ]
    return [answers, read_back(cluster, "produce-compacted")]


@case
def produce_to_topics_that_recompress(cluster: Cluster) -> Any:
    answers = {}
    for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        name = f"produce-as-{codec}"
        cluster.topic(name, configs={"compression.type": codec})
        sent = [send(cluster, name, batch_of([b"value" * 50, None], codec=number)) for number in range(5)]
        answers[codec] = [sent, read_back(cluster, name)]
    return answers


@case
def produce_rubbish_as_compressed_records(cluster: Cluster) -> Any:
    answers = {}
    for compression in ("producer", "gzip", "uncompressed"):
        name = f"produce-rubbish-{compression}"
        cluster.topic(name, configs={"compression.type": compression, "cleanup.policy": "compact"})
        for codec in (1, 2, 3, 4):
            batch = encode_batch(b"not compressed at all", record_count=1, attributes=codec, base_timestamp=1)
            answers[f"{compression} from {codec}"] = send(cluster, name, batch)
    return answers


@case
def produce_records_that_are_malformed(cluster: Cluster) -> Any:
    """Into a compacted topic, for which brokers must look at the records."""
    cluster.topic("produce-malformed", configs={"cleanup.policy": "compact"})
    answers = {}
    for name, records in {
        "nothing": b"",
        "an overlong varint": b"\xff" * 11,
        "a length of 2^31-1": b"\xfe\xff\xff\xff\x0f",
        "a negative length": b"\x01",
        "too short": b"\x10\x00\x00",
        "a key longer than the record": b"\x10\x00\x00\x00\x7e\x00\x00\x00\x00",
        "more headers than bytes": b"\x0e\x00\x00\x00\x02k\x01\x7e",
        "a header without a name": b"\x10\x00\x00\x00\x02k\x01\x02\x01",
        "trailing bytes": bytes(batch_of([None], key=b"k")[61:]) + b"xyz",
    }.items():
        batch = encode_batch(records, record_count=1, base_timestamp=1, max_timestamp=1)
        answers[name] = send(cluster, "produce-malformed", batch)
    return answers


@case
def idempotent_produce_and_its_duplicates(cluster: Cluster) -> Any:
    cluster.topic("idempotent")
    producer = cluster.new_producer()
    answers = []
    for sequence in range(0, 20, 2):
        batch = batch_of([b"a", b"b"], producer=(producer, 0, sequence))
        answers.append(send(cluster, "idempotent", bytes(batch), acks=-1))
    for sequence in range(0, 22, 2):
        batch = batch_of([b"a", b"b"], producer=(producer, 0, sequence))
        answers.append(send(cluster, "idempotent", bytes(batch), acks=-1))
    return [answers, read_back(cluster, "idempotent")]


@case
def idempotent_produce_with_gaps_and_odd_epochs(cluster: Cluster) -> Any:
    cluster.topic("sequences")
    producer = cluster.new_producer()
    answers = {}
    for name, epoch, sequence, count in [
        ("a first batch that is not the first", 0, 5, 1),
        ("goes on from there", 0, 6, 1),
        ("a gap", 0, 9, 1),
        ("back into the past", 0, 0, 1),
        ("an overlap", 0, 6, 2),
        ("a new epoch in the middle", 3, 7, 1),
        ("a new epoch from the start", 3, 0, 2),
        ("an old epoch", 1, 2, 1),
        ("the new epoch goes on", 3, 2, 1),
        ("a negative sequence", 3, -1, 1),
        ("a negative epoch", -1, 0, 1),
    ]:
        batch = batch_of([b"v"] * count, producer=(producer, epoch, sequence))
        answers[name] = send(cluster, "sequences", batch, acks=-1)
    return [answers, read_back(cluster, "sequences")]


@case
def idempotent_produce_across_the_wrap_of_sequences(cluster: Cluster) -> Any:
    cluster.topic("wrap")
    producer = cluster.new_producer()
    last = 2**31 - 1
    answers = [
        send(cluster, "wrap", batch_of([b"v"] * count, producer=(producer, 0, sequence)), acks=-1)
        for sequence, count in [(last - 2, 2), (last, 1), (0, 1), (last, 1), (1, 1)]
    ]
    return [answers, read_back(cluster, "wrap")]


@case
def idempotent_produce_whose_batch_wraps(cluster: Cluster) -> Any:
    cluster.topic("wrap-inside")
    producer = cluster.new_producer()
    last = 2**31 - 1
    return [
        send(cluster, "wrap-inside", batch_of([b"v"] * count, producer=(producer, 0, sequence)), acks=-1)
        for sequence, count in [(last - 1, 4), (2, 1)]
    ]


@case
def idempotent_produce_with_foreign_producer_ids(cluster: Cluster) -> Any:
    cluster.topic("foreign")
    return [
        send(cluster, "foreign", batch_of([b"v"], producer=producer), acks=acks)
        for producer in [(123_456_789, 0, 0), (2**62, 5, 3), (-2, 0, 0), (-1, 0, 0), (-1, -1, 0)]
        for acks in (1, -1)
    ]


@case
def transactional_batch_without_a_transaction(cluster: Cluster) -> Any:
    cluster.topic("transactional")
    producer = cluster.new_producer()
    batch = batch_of([b"v"], attributes=0x10, producer=(producer, 0, 0))
    body = produce_of("transactional", [(0, batch)])
    return [cluster.ask(PRODUCE, version, body) for version in (9, 12)]


@case
def produce_cut_short(cluster: Cluster) -> Any:
    """A request whose body ends early, for every length of it."""
    cluster.topic("cut")
    payload = request_payload(PRODUCE, PRODUCE_BY_NAME, produce_of("cut", [(0, batch_of([b"a"]))], acks=1))
    return [cluster.ask_bytes(payload[:length]) for length in range(8, len(payload), 7)]


@case
def a_closed_connection_does_not_matter_to_others(cluster: Cluster) -> Any:
    cluster.topic("other-connections")
    survivor = Cluster(cluster.port)
    ping(survivor.wire)
    try:
        cluster.wire.send_bytes(b"\xff\xff\xff\xff")
        cluster.wire.receive()
        outcome = "an answer"
    except Closed:
        outcome = CLOSED
    cluster.close()
    ping(survivor.wire)
    survivor.close()
    return outcome
