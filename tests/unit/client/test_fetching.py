"""A slice of a partition comes whole and in order, whatever happens to leaders and connections meanwhile."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.client.arrow_columns import schema_of
from penstock.client.cluster import EARLIEST, LATEST, ClientConfig, Cluster, TopicPartition
from penstock.client.connection import FETCH, LIST_OFFSETS, METADATA
from penstock.client.errors import ClientError, OffsetOutOfRange, Refusal, TimedOut
from penstock.client.fetching import FetchLimits
from penstock.client.reading import read_slice
from penstock.protocol.messages import Struct
from penstock.protocol.records import CorruptRecords, Record, build_batch
from tests.unit.client.made import data_batch, marker
from tests.unit.client.scripted_broker import Handler, ScriptedBroker, fetched, metadata

PARTITION = TopicPartition("t", 0)
LIMITS = FetchLimits(patience_ms=5_000, wait_ms_max=10)
Make = Callable[..., ScriptedBroker]


def one(offset: int) -> bytes:
    return bytes(build_batch([Record(offset, 0, None, b"%d" % offset)]))


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[ScriptedBroker] = []

    def make(handlers: dict[int, Handler], **others: Any) -> ScriptedBroker:
        made.append(ScriptedBroker(handlers, **others))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


def serving(fetch: Handler, make: Make, **others: Any) -> ScriptedBroker:
    """A cluster of one broker."""
    broker = make({FETCH: fetch}, **others)
    broker.handlers[METADATA] = metadata({1: broker.port}, "t", lambda: 1)
    return broker


def cluster_of(broker: ScriptedBroker) -> Cluster:
    return Cluster(ClientConfig(f"127.0.0.1:{broker.port}", patience_ms=5_000))


def offsets_read(broker: ScriptedBroker, start: int, end: int, limits: FetchLimits = LIMITS) -> list[int]:
    with cluster_of(broker) as cluster:
        batches = list(read_slice(cluster, PARTITION, start, end, schema_of(["offset"]), limits))
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def asked_offset(request: Any) -> int:
    offset: int = request.topics[0].partitions[0].fetch_offset
    return offset


def test_a_slice_is_read_fetch_by_fetch_and_cut_at_both_ends(make: Make) -> None:
    log = b"".join(bytes(build_batch([Record(base + i, 0, None, b"") for i in range(4)])) for base in (0, 4, 8))

    def fetch(_: ScriptedBroker, __: int, request: Any) -> Struct:
        batch = asked_offset(request) // 4
        size = len(log) // 3
        return fetched(log[batch * size : (batch + 1) * size + 20])

    assert offsets_read(serving(fetch, make), 2, 10) == list(range(2, 10))


def test_the_next_fetch_is_asked_for_before_this_one_is_handed_out(make: Make) -> None:
    broker = serving(lambda _, __, request: fetched(one(asked_offset(request))), make)
    with cluster_of(broker) as cluster:
        slices = read_slice(cluster, PARTITION, 0, 3, schema_of(["offset"]), LIMITS)
        next(slices)
        # The request is on its way; the broker's thread reads it without any help of ours.
        deadline = 5_000_000
        while [key for key, _ in broker.asked].count(FETCH) < 2 and deadline:
            deadline -= 1
        assert deadline
        assert [batch["offset"].to_pylist() for batch in slices] == [[1], [2]]
    assert [asked_offset(request) for key, request in broker.asked if key == FETCH] == [0, 1, 2]


def test_reading_goes_on_with_the_new_leader(make: Make) -> None:
    leader = [1]
    moved = {"done": False}

    def old(_: ScriptedBroker, __: int, request: Any) -> Struct:
        offset = asked_offset(request)
        if offset < 3:
            return fetched(one(offset))
        leader[0] = 2
        return fetched(b"", ErrorCode.not_leader_or_follower)

    def new(_: ScriptedBroker, __: int, request: Any) -> Struct:
        moved["done"] = True
        return fetched(one(asked_offset(request)))

    brokers = [make({FETCH: old}), make({FETCH: new})]
    ports = {1: brokers[0].port, 2: brokers[1].port}
    for broker in brokers:
        broker.handlers[METADATA] = metadata(ports, "t", lambda: leader[0])
    assert offsets_read(brokers[0], 0, 6) == list(range(6))
    assert moved["done"]


def test_a_broken_connection_costs_no_record_and_doubles_none(make: Make) -> None:
    breaks = {2, 5}

    def fetch(_: ScriptedBroker, __: int, request: Any) -> Struct | None:
        offset = asked_offset(request)
        if offset in breaks:
            breaks.discard(offset)
            return None
        return fetched(one(offset))

    assert offsets_read(serving(fetch, make), 0, 8) == list(range(8))
    assert not breaks


def test_damage_on_the_way_heals_with_another_try_but_not_for_ever(make: Make) -> None:
    damaged = bytearray(one(0))
    damaged[-1] ^= 1
    tries = iter((bytes(damaged), one(0)))
    assert offsets_read(serving(lambda *_: fetched(next(tries)), make), 0, 1) == [0]
    with pytest.raises(CorruptRecords):
        offsets_read(serving(lambda *_: fetched(bytes(damaged)), make), 0, 1)


def test_gaps_of_compaction_are_passed(make: Make) -> None:
    log = {0: one(0), 1: one(40), 41: one(90)}
    assert offsets_read(serving(lambda _, __, request: fetched(log[asked_offset(request)]), make), 0, 60) == [0, 40]


def test_aborted_transactions_are_cut_out_for_readers_of_committed_data(make: Make) -> None:
    log = data_batch(0, 7) + marker(1, 7, commits=False) + data_batch(2, 7) + marker(3, 7, commits=True)

    def fetch(_: ScriptedBroker, __: int, request: Any) -> Struct:
        return fetched(log, aborted=[(7, 0)] if request.isolation_level else None)

    broker = serving(fetch, make)
    assert offsets_read(broker, 0, 4, LIMITS._replace(read_committed=True)) == [2]
    assert offsets_read(broker, 0, 4) == [0, 2]


def test_offsets_that_are_gone_are_named(make: Make) -> None:
    broker = serving(lambda *_: fetched(b"", ErrorCode.offset_out_of_range), make)
    with pytest.raises(OffsetOutOfRange, match="offset 5 of t-0"):
        offsets_read(broker, 5, 9)


def test_what_will_not_change_is_raised_at_once(make: Make) -> None:
    broker = serving(lambda *_: fetched(b"", ErrorCode.topic_authorization_failed), make)
    with pytest.raises(Refusal, match="topic authorization failed"):
        offsets_read(broker, 0, 9)


def test_records_that_never_come_end_the_wait(make: Make) -> None:
    broker = serving(lambda *_: fetched(b""), make)
    with pytest.raises(TimedOut, match=r"t-0 brought nothing after offset 3 for 0.2 s"):
        offsets_read(broker, 3, 9, LIMITS._replace(patience_ms=200))


def test_a_broker_without_the_version_is_named(make: Make) -> None:
    broker = serving(lambda *_: fetched(b""), make, served={FETCH: (4, 11)})
    with pytest.raises(ClientError, match="too old"):
        offsets_read(broker, 0, 1)


def listing(error: Callable[[], ErrorCode], offsets: dict[int, int]) -> Handler:
    def answer(_: ScriptedBroker, __: int, request: Any) -> Struct:
        asked = request.topics[0].partitions[0]
        partition = Struct(partition_index=0, error_code=error(), timestamp=-1, offset=offsets[asked.timestamp])
        return Struct(topics=[Struct(name="t", partitions=[partition])])

    return answer


def test_offsets_are_asked_for_again_while_a_leader_is_being_elected(make: Make) -> None:
    errors = iter([ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available])
    broker = make({LIST_OFFSETS: listing(lambda: next(errors, ErrorCode.none), {LATEST: 12, EARLIEST: 3})})
    broker.handlers[METADATA] = metadata({1: broker.port}, "t", lambda: 1)
    with cluster_of(broker) as cluster:
        assert cluster.list_offsets({PARTITION: LATEST}) == {PARTITION: 12}
        assert cluster.list_offsets({PARTITION: EARLIEST}) == {PARTITION: 3}


def test_any_broker_of_the_list_will_do(make: Make) -> None:
    broker = serving(lambda _, __, request: fetched(one(asked_offset(request))), make)
    with Cluster(ClientConfig(f"127.0.0.1:1, 127.0.0.1:{broker.port}")) as cluster:
        assert list(cluster.topics()) == ["t"]


def test_nobody_there_is_said_in_words() -> None:
    with (
        Cluster(ClientConfig("127.0.0.1:1", patience_ms=100)) as cluster,
        pytest.raises(TimedOut, match=r"127\.0\.0\.1:1 cannot be reached"),
    ):
        cluster.topics()
    with pytest.raises(ClientError, match=r"'nonsense:port' in bootstrap\.servers is not HOST:PORT"):
        Cluster(ClientConfig("nonsense:port"))
