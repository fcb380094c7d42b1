"""Syncs by the kernel: told once each, by whoever is there to tell; and files that need more go to the threads."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ports import DiskError, DiskFull
from penstock.broker.group_commit import GroupCommit
from penstock.broker.kernel_syncs import Done, KernelSyncs
from penstock.broker.ports import RealDisk


def made() -> KernelSyncs:
    kernel = KernelSyncs.make(asyncio.get_running_loop())
    if kernel is None:
        pytest.skip("this system has no asynchronous I/O")
    return kernel


async def first(length: int, told: "asyncio.Queue[int]") -> list[int]:
    async with asyncio.timeout(10):
        return [await told.get() for _ in range(length)]


async def test_each_sync_is_told_once_also_where_the_descriptor_is_closed_meanwhile(tmp_path: Path) -> None:
    kernel = made()
    told: asyncio.Queue[int] = asyncio.Queue()
    descriptors = [os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR) for number in range(5)]
    for descriptor in descriptors:
        os.write(descriptor, b"bytes")
    assert kernel.submit([(descriptor, told.put_nowait) for descriptor in descriptors]) == 5
    for descriptor in descriptors:
        os.close(descriptor)
    assert await first(5, told) == [0] * 5
    assert told.empty()
    kernel.stop()


async def test_what_cannot_be_synced_and_what_comes_after_it_is_left_to_the_caller(tmp_path: Path) -> None:
    kernel = made()
    told: asyncio.Queue[int] = asyncio.Queue()
    good = os.open(tmp_path / "good", os.O_CREAT | os.O_RDWR)
    reading, writing = os.pipe()
    assert kernel.submit([(good, told.put_nowait), (writing, told.put_nowait), (good, told.put_nowait)]) == 1
    assert kernel.submit([(writing, told.put_nowait)]) == 0
    assert kernel.submit([]) == 0
    assert await first(1, told) == [0]
    assert kernel.submit([(good, told.put_nowait)]) == 1
    assert await first(1, told) == [0]
    assert told.empty()
    for descriptor in (good, reading, writing):
        os.close(descriptor)
    kernel.stop()


async def test_more_than_it_takes_at_a_time_is_left_to_the_caller(tmp_path: Path) -> None:
    kernel = made()
    told: asyncio.Queue[int] = asyncio.Queue()
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    taken = kernel.submit([(descriptor, told.put_nowait)] * 1000)
    assert 0 < taken < 1000
    assert kernel.submit([(descriptor, told.put_nowait)]) == 0
    assert await first(taken, told) == [0] * taken
    assert kernel.submit([(descriptor, told.put_nowait)]) == 1
    os.close(descriptor)
    kernel.stop()


async def test_a_stop_waits_for_what_is_under_way_which_is_told_all_the_same(tmp_path: Path) -> None:
    kernel = made()
    told: asyncio.Queue[int] = asyncio.Queue()
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    os.write(descriptor, b"bytes")
    assert kernel.submit([(descriptor, told.put_nowait)] * 7) == 7
    kernel.stop()
    assert await first(7, told) == [0] * 7
    os.close(descriptor)


class FakeKernel:
    """Takes so many, and says of each what it is told to."""

    def __init__(self, takes: int, error_number: int = 0) -> None:
        self.takes = takes
        self.error_number = error_number
        self.taken = 0

    def submit(self, syncs: Sequence[tuple[int, Done]]) -> int:
        taken = syncs[: self.takes]
        for _, done in taken:
            asyncio.get_running_loop().call_soon(done, self.error_number)
        self.taken += len(taken)
        return len(taken)

    def stop(self) -> None: ...


def with_kernel(kernel: FakeKernel) -> GroupCommit:
    commit = GroupCommit()
    if commit._kernel is not None:
        commit._kernel.stop()
    replaced: Any = commit
    replaced._kernel = kernel
    return commit


async def test_new_files_go_to_threads_which_sync_their_names_too_and_then_to_the_kernel(tmp_path: Path) -> None:
    commit = with_kernel(kernel := FakeKernel(10))
    disk = RealDisk(str(tmp_path))
    disk.make_directory("orders-0")
    files = [disk.open("orders-0/0.log"), disk.open("orders-0/1.log")]
    for file in files:
        file.append(b"bytes")
        assert file.descriptor_to_sync() is None
    await commit.sync(files)
    assert kernel.taken == 0
    assert all(file.descriptor_to_sync() is not None for file in files)
    await commit.sync(files)
    assert kernel.taken == 2
    files[0].close()
    assert files[0].descriptor_to_sync() is None
    await commit.sync(files)
    assert kernel.taken == 3
    commit.stop()


async def test_a_file_that_is_alone_goes_to_a_thread(tmp_path: Path) -> None:
    commit = with_kernel(kernel := FakeKernel(10))
    file = RealDisk(str(tmp_path)).open("file")
    file.append(b"bytes")
    file.sync()
    await commit.sync([file])
    assert kernel.taken == 0
    commit.stop()


async def test_files_that_the_kernel_does_not_take_go_to_threads_in_the_same_sync(tmp_path: Path) -> None:
    commit = with_kernel(kernel := FakeKernel(2))
    disk = RealDisk(str(tmp_path))
    files = [disk.open(str(number)) for number in range(6)]
    for file in files:
        file.append(b"bytes")
    await commit.sync(files)
    await commit.sync(files)
    assert kernel.taken == 2
    commit.stop()


@pytest.mark.parametrize(("number", "problem"), [(errno.EIO, DiskError), (errno.ENOSPC, DiskFull)])
async def test_a_sync_that_the_kernel_says_has_failed_is_a_problem_of_the_disk(
    tmp_path: Path, number: int, problem: type[DiskError]
) -> None:
    commit = with_kernel(FakeKernel(1, number))
    disk = RealDisk(str(tmp_path))
    bad, good = disk.open("bad"), disk.open("good")
    for file in (bad, good):
        file.append(b"bytes")
        file.sync()
    results = await asyncio.gather(commit.sync([bad]), commit.sync([good]), return_exceptions=True)
    assert isinstance(results[0], problem)
    assert "bad" in str(results[0])
    assert results[1] is None
    commit.stop()
