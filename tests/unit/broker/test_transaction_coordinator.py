"""The shell of the transaction coordinator: markers until they are written, producer ids before they are needed."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.links import LinkBroken
from penstock.broker.producer_ids import ProducerIdBlocks
from penstock.broker.transaction_coordinator import TransactionCoordinator
from penstock.coordinator.transaction.requests import Addition, TopicPartition, WriteMarkers

P0, P1, GONE = ("orders", 0), ("orders", 1), ("deleted", 0)
MARKERS = WriteMarkers("t", 5, 1, 0, True, (P0, P1, GONE), 2)
Done = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class Markers:
    """Partitions that fail so many times before they take a marker."""

    def __init__(self, failures: dict[TopicPartition, list[ErrorCode]]) -> None:
        self.failures = failures
        self.asked: list[tuple[TopicPartition, ...]] = []

    def write(self, markers: WriteMarkers, done: Done) -> None:
        self.asked.append(markers.partitions)
        outcome = {}
        for one in markers.partitions:
            failures = self.failures.get(one)
            outcome[one] = failures.pop(0) if failures else ErrorCode.none
        done(outcome)


class Runner:
    """A runner whose shard only notes what is confirmed."""

    def __init__(self) -> None:
        self.missing = set(MARKERS.partitions)
        self.shard: Any = self

    def tell(self, invoke: Callable[[Any, int], list[Any]]) -> None:
        invoke(self, 0)

    def markers_written(self, *confirmed: Any) -> list[Any]:
        transactional_id, producer_id, producer_epoch, partitions, _ = confirmed
        assert (transactional_id, producer_id, producer_epoch) == ("t", 5, 1)
        self.missing -= partitions
        return []

    def unmarked(self, markers: WriteMarkers) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self.missing))


def sending(failures: dict[TopicPartition, list[ErrorCode]]) -> tuple[Any, Markers, Runner]:
    markers = Markers(failures)
    image = SimpleNamespace(topics={"orders": SimpleNamespace(partitions={0: None, 1: None})})
    broker: Any = SimpleNamespace(markers=markers, image=image)
    return TransactionCoordinator(broker), markers, Runner()


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


async def test_markers_are_written_again_where_they_failed_and_nowhere_else() -> None:
    not_yet = [ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error]
    coordinator, markers, runner = sending({P1: not_yet, GONE: [ErrorCode.unknown_topic_or_partition]})
    coordinator._send(runner, MARKERS)
    await settled(lambda: not runner.missing)
    assert markers.asked == [(P0, P1, GONE), (P1,), (P1,)]


async def test_a_topic_that_is_there_but_not_found_yet_is_asked_again() -> None:
    coordinator, markers, runner = sending({P0: [ErrorCode.unknown_topic_or_partition]})
    coordinator._send(runner, MARKERS)
    assert runner.missing == {P0}
    await settled(lambda: not runner.missing)
    assert markers.asked[1:] == [(P0,)]


@pytest.mark.parametrize("why", ["the coordinator is elsewhere", "the shard was loaded anew", "the node stops"])
async def test_it_stops_when_the_end_is_somebody_elses(why: str) -> None:
    is_elsewhere = why == "the coordinator is elsewhere"
    error = ErrorCode.transaction_coordinator_fenced if is_elsewhere else ErrorCode.not_leader_or_follower
    coordinator, markers, runner = sending({P0: [error] * 1000})
    coordinator._send(runner, MARKERS)
    if why == "the shard was loaded anew":
        runner.shard = object()
    elif why == "the node stops":
        coordinator.stop()
    await asyncio.sleep(0.1)
    assert len(markers.asked) == 1


class Elsewhere:
    """The shards of a node that coordinates nothing: node 2 does."""

    def node_of(self, key: str) -> int:
        return 2

    def runner_of(self, key: str) -> Any:
        raise Refused(ErrorCode.not_coordinator, "")


async def test_what_a_client_asks_of_the_wrong_node_is_not_passed_on() -> None:
    """It may have given up long ago and have asked the right one: passed on, it would open the next transaction."""
    asked: list[int] = []

    async def request(node_id: int, *_: Any) -> Any:
        asked.append(node_id)
        raise LinkBroken("it does not matter here")

    broker: Any = SimpleNamespace(node_id=1, links=SimpleNamespace(request=request))
    coordinator = TransactionCoordinator(broker)
    coordinator.shards = Elsewhere()  # type: ignore[assignment]
    of_client = await coordinator.add_partitions(Addition("t", 5, 0, frozenset({P0}), False, 0))
    assert (of_client, asked) == ({P0: ErrorCode.not_coordinator}, [])
    of_write = await coordinator.add_written(Addition("t", 5, 0, frozenset({P0}), True, 2))
    assert (of_write, asked) == ({P0: ErrorCode.coordinator_not_available}, [2])


class Controller:
    """Gives out blocks of ten, after a turn of the loop, while it is well."""

    def __init__(self) -> None:
        self.blocks = 0
        self.is_well = True

    async def allocate_producer_ids(self) -> range:
        await asyncio.sleep(0)
        if not self.is_well:
            raise Refused(ErrorCode.kafka_storage_error, "the disk is full")
        self.blocks += 1
        return range(self.blocks * 1000, self.blocks * 1000 + 1000)


async def test_producer_ids_are_unique_and_the_next_block_is_there_before_the_last_is_used_up() -> None:
    controller: Any = Controller()
    producer_ids = ProducerIdBlocks(controller)
    assert producer_ids.take() is None
    await producer_ids.wait()
    taken = []
    for _ in range(5000):
        taken.append(producer_ids.take())
        await asyncio.sleep(0)
    assert None not in taken
    assert len(set(taken)) == 5000


async def test_all_who_wait_for_the_first_block_are_served_by_it() -> None:
    controller: Any = Controller()
    producer_ids = ProducerIdBlocks(controller)
    given = await asyncio.gather(*(producer_ids.next() for _ in range(50)))
    assert len(set(given)) == 50
    assert controller.blocks == 1


async def test_without_a_block_those_who_wait_are_told_why_and_later_ones_are_served() -> None:
    controller: Any = Controller()
    controller.is_well = False
    producer_ids = ProducerIdBlocks(controller)
    with pytest.raises(Refused) as refused:
        await producer_ids.next()
    assert refused.value.code == ErrorCode.kafka_storage_error
    controller.is_well = True
    assert await producer_ids.next() == 1000
    producer_ids.stop()
