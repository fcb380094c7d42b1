"""Produce requests of one turn are appended together, and each is answered as if it had been alone."""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.appending import Appending, Requests
from penstock.broker.deferred import Deferred
from penstock.broker.hearing import LoopHearing
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import decode_response
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk
from tests.unit.partition.made import NOW_MS, make_partition

VERSION = 12
TOPIC = b"t"


class Client:
    """A connection that has more to say."""

    def __init__(self) -> None:
        self.has_more = True
        self.hearing = LoopHearing(asyncio.get_running_loop())
        self.settle: Callable[[], None] | None = None
        self.closed_for: str | None = None

    def release(self) -> None:
        """Answers are looked at in the requests."""

    def close(self, why: str) -> None:
        self.closed_for = why


class World:
    def __init__(self) -> None:
        self.disk = SimDisk()
        self.partitions = {index: make_partition(self.disk, index=index) for index in (0, 1)}
        self.failed: Counter[str] = Counter()
        # What waits for its commit, to be told what became of it.
        self.waiting: list[Callable[[dict[Partition, ErrorCode]], None]] = []
        self.is_due = False
        broker: Any = SimpleNamespace(
            clock=SimpleNamespace(now_ms=lambda: NOW_MS),
            topics_by_name={TOPIC: self.partitions},
            topics_by_id={},
            image=SimpleNamespace(topics={"t": SimpleNamespace(partitions={0, 1, 7})}),
            metrics=SimpleNamespace(failed_produce_requests=self.failed),
            commits=SimpleNamespace(
                is_due=lambda partition: self.is_due,
                when_committed=lambda partitions, timeout_ms, done: self.waiting.append(done),
            ),
        )
        self.appending = Appending(broker)

    def ask(self, client: Client, parts: dict[int, list[bytearray | None]], *, acks: int = 1) -> Requests:
        asked: list[Any] = [
            (TOPIC, index, [None if batch is None else memoryview(batch) for batch in batches])
            for index, batches in parts.items()
        ]
        ids = range(len(next(iter(parts.values()))))
        requests = Requests(VERSION, list(ids), acks, 1000, asked)
        requests._connection = client  # type: ignore[assignment]
        taken = self.appending.take(client, requests)  # type: ignore[arg-type]
        assert taken is requests
        return requests


def batch(value: bytes, records: int = 1) -> bytearray:
    return build_batch([Record(i, NOW_MS, None, value) for i in range(records)])


def answered(requests: Deferred) -> list[tuple[int, ErrorCode, int]]:
    """(partition, error, base offset) of everything that was answered."""
    assert requests._parts is not None
    data = b"".join(bytes(part) for part in requests._parts)  # type: ignore[arg-type]
    found = []
    while data:
        size = int.from_bytes(data[:4])
        answer = decode_response(0, VERSION, data[4 : 4 + size])
        data = data[4 + size :]
        for topic in answer.responses:
            found += [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses]
    return found


async def heard() -> None:
    """Everybody was: what is short waits for the turn after the next."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.fixture
async def world() -> World:
    return World()


async def test_what_several_clients_send_to_a_partition_is_one_write(world: World) -> None:
    world.partitions[0].append(memoryview(batch(b"first")), 1, VERSION, NOW_MS)
    clients = [Client(), Client()]
    requests = [world.ask(client, {0: [batch(b"x"), batch(b"y")]}) for client in clients]
    assert [each.is_done for each in requests] == [False, False]
    world.disk.fail("append", ".log")
    await heard()
    refused = [(0, ErrorCode.kafka_storage_error, -1)] * 2
    assert [answered(each) for each in requests] == [refused, refused]
    assert world.failed == {"t": 4}


async def test_each_has_its_own_offsets_in_the_order_of_coming(world: World) -> None:
    one, other = Client(), Client()
    first = world.ask(one, {1: [batch(b"a", 2)], 0: [batch(b"b")]})
    second = world.ask(other, {0: [batch(b"c"), batch(b"d", 3), batch(b"e")]})
    third = world.ask(one, {0: [batch(b"f")], 1: [batch(b"g")]})
    await heard()
    assert answered(first) == [(1, ErrorCode.none, 0), (0, ErrorCode.none, 0)]
    assert answered(second) == [(0, ErrorCode.none, 1), (0, ErrorCode.none, 2), (0, ErrorCode.none, 5)]
    assert answered(third) == [(0, ErrorCode.none, 6), (1, ErrorCode.none, 2)]


async def test_one_that_is_refused_takes_nothing_from_the_others(world: World) -> None:
    damaged = batch(b"x")
    damaged[-1] ^= 1
    good = world.ask(Client(), {0: [batch(b"a")], 1: [batch(b"b")]})
    bad = world.ask(Client(), {0: [damaged], 1: [None], 7: [batch(b"c")], 9: [batch(b"d")]})
    await heard()
    assert answered(good) == [(0, ErrorCode.none, 0), (1, ErrorCode.none, 0)]
    assert answered(bad) == [
        (0, ErrorCode.corrupt_message, -1),
        (1, ErrorCode.invalid_record, -1),
        (7, ErrorCode.not_leader_or_follower, -1),
        (9, ErrorCode.unknown_topic_or_partition, -1),
    ]
    assert world.failed == {"t": 2, "": 2}


async def test_a_client_that_has_sent_nothing_else_is_served_at_once(world: World) -> None:
    client = Client()
    client.has_more = False
    requests = world.ask(client, {0: [batch(b"a")]})
    assert answered(requests) == [(0, ErrorCode.none, 0)]
    assert client.settle is None


async def test_what_is_short_waits_for_those_who_are_heard_next_and_what_is_long_does_not(world: World) -> None:
    short = world.ask(Client(), {0: [batch(b"a")]})
    await asyncio.sleep(0)
    assert not short.is_done
    with_it = world.ask(Client(), {0: [batch(b"b" * 10_000)]})
    await asyncio.sleep(0)
    assert (answered(short), answered(with_it)) == ([(0, ErrorCode.none, 0)], [(0, ErrorCode.none, 1)])
    await heard()
    long = world.ask(Client(), {0: [batch(b"c" * 10_000)]})
    await asyncio.sleep(0)
    assert answered(long) == [(0, ErrorCode.none, 2)]


async def test_what_was_put_off_is_done_before_anything_else_for_its_client(world: World) -> None:
    client = Client()
    requests = world.ask(client, {0: [batch(b"a"), batch(b"b")]})
    assert client.settle is not None
    client.settle()
    assert answered(requests) == [(0, ErrorCode.none, 0), (0, ErrorCode.none, 1)]
    assert client.settle is None
    later = world.ask(client, {0: [batch(b"c")]})
    await heard()
    assert answered(later) == [(0, ErrorCode.none, 2)]


async def test_an_answer_waits_for_the_commit_and_tells_what_became_of_it(world: World) -> None:
    world.is_due = True
    damaged = batch(b"x")
    damaged[-1] ^= 1
    requests = world.ask(Client(), {0: [batch(b"a"), damaged]}, acks=-1)
    at_once = world.ask(Client(), {0: [batch(b"b")]}, acks=1)
    await heard()
    assert (requests.is_done, at_once.is_done) == (False, True)
    (done,) = world.waiting
    done({world.partitions[0]: ErrorCode.request_timed_out})
    assert answered(requests) == [(0, ErrorCode.request_timed_out, -1), (0, ErrorCode.corrupt_message, -1)]


async def test_a_defect_closes_the_connections_that_met_it_and_no_later_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    client, later = Client(), Client()
    world.partitions[0].config = None  # type: ignore[assignment]
    world.ask(client, {0: [batch(b"a")]})
    await heard()
    assert client.closed_for == "see the error above"
    assert "met a defect" in caplog.text
    requests = world.ask(later, {1: [batch(b"b")]})
    await heard()
    assert answered(requests) == [(1, ErrorCode.none, 0)]
