"""Files of a log, changed, and then the log brought up, read and written to.

Damage may cost what it hit, and is told by a note or one of the errors that a log has. It may not crash the node, make
it search without end, or let a batch out whose checksum is wrong where the log was checked.
"""

import contextlib
import random
import signal
from collections.abc import Iterator
from functools import cache

from penstock.base.errors import Refused
from penstock.base.ports import DiskError
from penstock.log.checkpoints import BadCheckpoint
from penstock.log.config import LogConfig
from penstock.log.end_marker import EndMarker, encode_end_marker
from penstock.log.log import Log
from penstock.protocol.batch import HEADER_BYTES, TRANSACTIONAL, crc_is_valid, read_header
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk
from tests.fuzz.mutation import mutated

NOW_MS = 1_700_000_000_000
DIRECTORY = "t-0"
CASE_SECONDS_MAX = 5
_CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=100)
# What a log may answer damage with.
_TOLD = (DiskError, BadCheckpoint, Refused)

Files = dict[str, bytes]


class TooLong(Exception):
    """It searches without end."""


@contextlib.contextmanager
def bounded(seconds: float = CASE_SECONDS_MAX) -> Iterator[None]:
    """In processor time. Raises TooLong."""

    def give_up(*_: object) -> None:
        raise TooLong

    previous = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


@cache
def good_log() -> Files:
    """Several segments; producers, transactions of both ends, several leader epochs; cleanly closed."""
    disk = SimDisk()
    log = open_log(disk, clean=True)
    for number in range(60):
        producer_id, attributes = (number % 3, TRANSACTIONAL if number % 3 == 2 else 0)
        records = [Record(0, NOW_MS + number, b"key", b"value %d" % number * 4)]
        batch = build_batch(
            records, codec=number % 2 * 4, attributes=attributes, producer_id=producer_id, producer_epoch=0,
            base_sequence=number // 3,
        )  # fmt: skip
        log.append(batch, read_header(batch), number // 20, NOW_MS)
        if number % 9 == 8:
            marker = encode_end_marker(EndMarker(is_abort=number % 2 == 0, coordinator_epoch=0), 2, 0, NOW_MS)
            log.append(marker, read_header(marker), number // 20, NOW_MS)
    log.close()
    return contents(disk)


def contents(disk: SimDisk) -> Files:
    found = {}
    pending = [""]
    while pending:
        directory = pending.pop()
        for name in disk.list(directory):
            path = f"{directory}/{name}" if directory else name
            if disk.is_file(path):
                found[path] = disk.read_file(path)
            else:
                pending.append(path)
    return found


def disk_with(files: Files) -> SimDisk:
    disk = SimDisk()
    for path, data in files.items():
        disk.make_directory(path.rpartition("/")[0])
        disk.write_file(path, data)
    return disk


def open_log(disk: SimDisk, *, clean: bool, recovery_point: int = 0) -> Log:
    return Log.open(
        disk, DIRECTORY, _CONFIG, topic_id=None, recovery_point=recovery_point, clean=clean, log_start_offset=0,
        now_ms=NOW_MS,
    )  # fmt: skip


def try_damaged_log(chance: random.Random) -> None:
    """One case. Raises whatever a log may not raise."""
    files = dict(good_log())
    for _ in range(chance.choice((1, 1, 2))):
        path = chance.choice(sorted(files))
        if chance.random() < 0.05:
            del files[path]
        else:
            files[path] = mutated(files[path], chance, others=files[path])
    disk = disk_with(files)
    clean = chance.random() < 0.5
    with bounded(), contextlib.suppress(*_TOLD):
        recovery_point = chance.choice((0, 0, 30, 70))
        log = open_log(disk, clean=clean, recovery_point=recovery_point)
        # What lies below the recovery point is trusted, and checked by who reads it.
        _use(log, is_checked=not clean and recovery_point == 0)
        log.close(clean=chance.random() < 0.5)
        _use(open_log(disk, clean=chance.random() < 0.5), is_checked=False)


def _use(log: Log, *, is_checked: bool) -> None:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            found = log.read(offset, 600, log.log_end_offset, at_least_one=True)
        except _TOLD:
            offset += 1
            continue
        if found is None:
            break
        data = found.file.read(found.position, found.length)
        with contextlib.suppress(*_TOLD):
            log.aborted_transactions(offset, log.log_end_offset, found)
        if len(data) < HEADER_BYTES:
            break
        header = read_header(data)
        if is_checked:
            assert len(data) >= header.size
            assert crc_is_valid(memoryview(data)[: header.size], header), f"a damaged batch at {offset} was let out"
        offset = max(offset, header.last_offset) + 1
    for timestamp in (0, NOW_MS + 30, NOW_MS + 10_000):
        with contextlib.suppress(*_TOLD):
            log.offset_for_timestamp(timestamp)
    batch = build_batch([Record(0, NOW_MS, b"key", b"more")])
    log.append(batch, read_header(batch), 9, NOW_MS)
    log.truncate_to(max(log.log_start_offset, log.log_end_offset - 3), NOW_MS)
