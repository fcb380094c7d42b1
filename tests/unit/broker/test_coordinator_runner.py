"""The shell around a coordinator's shard: what it writes, and the log that it comes up from, also a damaged one."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker import coordinator_runner
from penstock.broker.coordinator_runner import CoordinatorRunner, ShardKind
from penstock.broker.log_reader import read_batches
from penstock.coordinator.effects import Answer, Append
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.protocol.messages import Struct
from penstock.protocol.records import iterate_records
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.made import DIRECTORY, NOW_MS, append, make_batch, open_log

RECORD_POSITION = 70


class Replayed:
    """A shard that only counts."""

    def __init__(self) -> None:
        self.records = 0

    def replay(self, record: Any, producer_id: int = -1) -> None:
        self.records += 1

    def on_loaded(self, now_ms: int) -> list[Any]:
        return []

    def next_deadline_ms(self) -> int | None:
        return None


def started(log: Log) -> CoordinatorRunner[Any]:
    """A coordinator whose records are their own keys, and committed as soon as they are written."""
    encode: Any = lambda record: (record, b"")  # noqa: E731
    decode: Any = lambda key, value: key  # noqa: E731
    kind: Any = ShardKind(make=Replayed, encode=encode, decode=decode, send=lambda *_: None)
    commits = SimpleNamespace(is_due=lambda partition: False)
    broker: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0), commits=commits)
    partition: Any = SimpleNamespace(
        log=log,
        leader_epoch=0,
        name=DIRECTORY,
        is_leading=True,
        append_own=lambda batch, now_ms: append(log, batch),
    )
    return CoordinatorRunner(broker, partition, kind)


async def loaded(log: Log) -> CoordinatorRunner[Any]:
    runner = started(log)
    async with asyncio.timeout(10):
        while runner.shard is None:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
    return runner


def asked(runner: CoordinatorRunner[Any], *records: Any, producer_id: int = -1) -> asyncio.Future[Struct]:
    """A request that changes this much."""
    effect = Append(list(records), producer_id)
    return runner.handle(lambda shard, token, now_ms: [effect, Answer(token, Struct(said=records[0]))])


def keys_by_batch(log: Log) -> list[list[bytes | None]]:
    return [[record.key for record in iterate_records(batch, header)] for header, batch in read_batches(log)]


async def test_a_coordinator_does_not_come_up_from_a_damaged_log_and_does_when_that_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_runner, "_RELOAD_SECONDS", 0.001)
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(3):
        append(log, make_batch())
    path, position = f"{DIRECTORY}/{0:020d}.log", len(make_batch()) + RECORD_POSITION
    disk.flip_bit(path, position)
    runner = started(log)
    first_try = runner._loading
    async with asyncio.timeout(10):
        while runner._loading is first_try:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
    assert runner.shard is None
    disk.flip_bit(path, position)
    async with asyncio.timeout(10):
        while runner.shard is None:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
    assert runner.shard.records == 1, "all three have the same key"
    runner.stop()


async def test_of_a_long_log_only_what_counts_is_decoded_and_others_have_their_turns() -> None:
    log = open_log(SimDisk())
    for _ in range(3000):
        append(log, make_batch([NOW_MS] * 10))
    runner = started(log)
    turns = 0
    async with asyncio.timeout(60):
        while runner.shard is None:
            turns += 1
            await asyncio.sleep(0)
    assert runner.shard.records == 1
    assert turns >= 30
    runner.stop()


async def test_what_comes_in_one_turn_is_one_batch_but_for_transactions() -> None:
    log = open_log(SimDisk())
    runner = await loaded(log)
    requests = [asked(runner, b"a", b"b"), asked(runner, b"c"), asked(runner, b"d", producer_id=7), asked(runner, b"e")]
    assert [answer.said for answer in await asyncio.gather(*requests)] == [b"a", b"c", b"d", b"e"]
    assert keys_by_batch(log) == [[b"a", b"b", b"c"], [b"d"], [b"e"]]
    runner.stop()


async def test_what_no_segment_can_hold_is_written_in_several_and_that_of_one_request_in_as_few_as_it_can() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=1000))
    runner = await loaded(log)
    small, large = [b"%03d" % number + bytes(200) for number in range(3)], [bytes([65 + n]) * 300 for n in range(8)]
    requests = [
        asked(runner, *small),
        asked(runner, *small),
        asked(runner, *large),
        asked(runner, *large, producer_id=7),
    ]
    async with asyncio.timeout(10):
        assert len(await asyncio.gather(*requests)) == 4
    batches = keys_by_batch(log)
    assert [key for batch in batches for key in batch] == [*small, *small, *large, *large]
    assert batches[:2] == [small, small]
    assert [len(batch) for batch in batches[2:]] == [2] * 8
    runner.stop()


async def test_a_record_that_no_segment_can_hold_is_refused_and_nothing_of_it_is_believed() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=1000))
    runner = await loaded(log)
    with pytest.raises(Refused) as refused:
        await asked(runner, bytes(2000))
    assert refused.value.code == ErrorCode.coordinator_not_available
    assert runner.shard is None
    assert keys_by_batch(log) == []
    runner.stop()
