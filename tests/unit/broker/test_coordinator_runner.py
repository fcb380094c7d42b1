"""The shell around a coordinator's shard, where the log that it comes up from is not what was written."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker import coordinator_runner
from penstock.broker.coordinator_runner import CoordinatorRunner, ShardKind
from penstock.log.log import Log
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
    decode: Any = lambda key, value: key  # noqa: E731
    kind: Any = ShardKind(make=Replayed, encode=lambda record: (b"", None), decode=decode, send=lambda *_: None)
    broker: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0))
    partition: Any = SimpleNamespace(log=log, leader_epoch=0, name=DIRECTORY)
    return CoordinatorRunner(broker, partition, kind)


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
