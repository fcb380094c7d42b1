"""The process that compacts: it works, keeps to its rate, ends when nobody wants it, and is started anew."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

from penstock.broker.cleaner import HelperCleaner
from penstock.broker.cleaner_helper import Assignment, Failed, Report
from penstock.broker.ports import RealDisk
from penstock.log.compaction import Finished, Replacement
from penstock.log.log import Log
from tests.unit.log.compacted import COMPACTED, job_of, pairs_in, put
from tests.unit.log.made import DIRECTORY, NOW_MS, open_log

NO_LIMIT = 1e300


def filled(disk: RealDisk, count: int = 300, value_bytes: int = 100) -> Log:
    log = open_log(disk, COMPACTED)
    for number in range(count):
        put(log, (b"k%d" % (number % 7), bytes(value_bytes)))
    log.roll(NOW_MS)
    return log


async def compact(cleaner: HelperCleaner, log: Log, rate: float = NO_LIMIT) -> list[Report]:
    reports = []
    async for report in cleaner.run(job_of(log, None), rate):
        if isinstance(report, Replacement):
            assert log.replace_segments(report.segments, NOW_MS) is not None
        reports.append(report)
    return reports


async def test_one_process_does_pass_after_pass(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = filled(disk)
    cleaner = HelperCleaner(disk)
    assert isinstance((await compact(cleaner, log))[-1], Finished)
    pid = cleaner.pid
    # It reads the segments that it wrote itself, under names it has seen before.
    assert isinstance((await compact(cleaner, log))[-1], Finished)
    assert cleaner.pid == pid
    assert sorted(pairs_in(log)) == list(range(293, 300))
    cleaner.stop()
    assert cleaner.pid is None


async def test_it_keeps_to_its_rate(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = filled(disk)
    cleaner = HelperCleaner(disk)
    await compact(cleaner, log)
    put(log, (b"a", bytes(1500)))
    put(log, (b"a", bytes(1500)))
    log.roll(NOW_MS)
    size = sum(segment.size for segment in log.segments.sealed)
    started_s = time.monotonic()
    await compact(cleaner, log, rate=10_000)
    assert time.monotonic() - started_s >= 2 * size / 10_000
    cleaner.stop()


async def test_a_process_that_dies_fails_the_pass_and_the_next_one_gets_another(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = filled(disk)
    cleaner = HelperCleaner(disk)
    reports = cleaner.run(job_of(log, None), 1000)
    await anext(reports)
    assert cleaner.pid is not None
    os.kill(cleaner.pid, signal.SIGKILL)
    left = [report async for report in reports]
    assert isinstance(left[-1], Failed)
    assert not left[-1].is_corrupt
    assert isinstance((await compact(cleaner, log))[-1], Finished)
    cleaner.stop()


async def test_who_leaves_a_pass_ends_the_process(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = filled(disk)
    cleaner = HelperCleaner(disk)
    reports = cleaner.run(job_of(log, None), 1000)
    await anext(reports)
    await reports.aclose()
    assert cleaner.pid is None
    cleaner.stop()


def test_it_ends_with_its_node_also_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = filled(disk)
    command = [sys.executable, "-m", "penstock.broker.cleaner_helper", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps(Assignment(job_of(log, None), 1000)))
        process.stdin.flush()
        process.stdout.read(4)
        process.stdin.close()
        assert process.wait(30) == 0
    assert pairs_in(log).keys() == set(range(300))
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".swap")]
