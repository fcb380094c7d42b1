"""One sync for all who wait, in the order of their coming, and errors to those whose file failed."""

import asyncio
import threading
from typing import Any

import pytest

from penstock.base.ports import DiskError
from penstock.broker.group_commit import GroupCommit


class SlowFile:
    """A file whose sync waits to be let through."""

    def __init__(self, path: str, *, fails: bool = False) -> None:
        self.path = path
        self.syncs = 0
        self.gate = threading.Event()
        self.gate.set()
        self._fails = fails

    def sync(self) -> None:
        assert self.gate.wait(10)
        self.syncs += 1
        if self._fails:
            raise DiskError(f"failed syncing {self.path}")


class FailsOnce(SlowFile):
    def sync(self) -> None:
        self._fails = not self.syncs
        super().sync()


def slow(path: str, *, fails: bool = False) -> Any:
    return SlowFile(path, fails=fails)


async def test_all_who_come_during_a_sync_share_the_next_one() -> None:
    commit = GroupCommit()
    file = slow("a")
    file.gate.clear()
    first = asyncio.create_task(commit.sync([file]))
    await asyncio.sleep(0.01)
    others = [asyncio.create_task(commit.sync([file])) for _ in range(50)]
    await asyncio.sleep(0.01)
    assert not first.done()
    file.gate.set()
    await asyncio.gather(first, *others)
    assert file.syncs == 2
    commit.stop()


async def test_more_files_than_there_are_threads_are_all_synced_before_anybody_is_told() -> None:
    commit = GroupCommit()
    files = [slow(str(number), fails=number == 7) for number in range(20)]
    results = await asyncio.gather(*(commit.sync([file]) for file in files), return_exceptions=True)
    assert [file.syncs for file in files] == [1] * 20
    assert [number for number, result in enumerate(results) if result is not None] == [7]
    files[3].gate.clear()
    waiting = [asyncio.create_task(commit.sync([file])) for file in (*files[:7], *files[8:])]
    await asyncio.sleep(0.01)
    assert not any(one.done() for one in waiting)
    files[3].gate.set()
    await asyncio.gather(*waiting)
    commit.stop()


async def test_only_those_whose_file_failed_are_told() -> None:
    commit = GroupCommit()
    good, bad = slow("good"), slow("bad", fails=True)
    results = await asyncio.gather(
        commit.sync([good]), commit.sync([bad]), commit.sync([good, bad]), return_exceptions=True
    )
    assert results[0] is None
    assert isinstance(results[1], DiskError)
    assert isinstance(results[2], DiskError)
    await commit.sync([good])
    commit.stop()


async def test_who_came_while_a_sync_failed_is_not_told_of_the_success_of_the_next() -> None:
    commit = GroupCommit()
    good: Any = SlowFile("good")
    bad: Any = FailsOnce("bad")
    bad.gate.clear()
    first = asyncio.create_task(commit.sync([bad]))
    await asyncio.sleep(0.01)
    late = [asyncio.create_task(commit.sync(files)) for files in ([bad], [good, bad], [good])]
    await asyncio.sleep(0.01)
    bad.gate.set()
    with pytest.raises(DiskError):
        await first
    results = await asyncio.gather(*late, return_exceptions=True)
    assert [type(result) for result in results] == [DiskError, DiskError, type(None)]
    await commit.sync([bad])
    commit.stop()


async def test_nothing_to_sync_is_done_at_once() -> None:
    commit = GroupCommit()
    await asyncio.wait_for(commit.sync([]), 1)
    with pytest.raises(DiskError):
        await commit.sync([slow("bad", fails=True)])
    await asyncio.wait_for(commit.sync([]), 1)
    commit.stop()


async def test_who_comes_while_it_stops_is_not_answered_and_nothing_breaks() -> None:
    commit = GroupCommit()
    told: list[object] = []
    commit.submit([slow("a")], told.append)
    commit.stop()
    for _ in range(3):
        await asyncio.sleep(0)
    assert told == []
