"""Apache Kafka's DumpLogSegments reads files that Penstock wrote and finds nothing wrong."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.ports import RealDisk
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.apache_kafka import java_command
from tests.unit.log.compacted import compact, put
from tests.unit.log.made import DIRECTORY, NOW_MS, append, make_batch, make_marker, open_log

pytestmark = pytest.mark.java

CONFIG = LogConfig(segment_bytes=8000, index_interval_bytes=300)
# What the tool prints when something is wrong.
COMPLAINTS = re.compile(
    r"Mismatches|invalid bytes|isvalid: false|not found|Indexed offset|Found timestamp|exception", re.I
)

# The tool says the second and third of every segment that does not begin at 0, Kafka's own included.
HARMLESS = re.compile(r"^SLF4J|^Non-consecutive offsets in|^  -1 is followed by")
# Offsets are missing where compaction removed records.
HARMLESS_COMPACTED = re.compile(rf"{HARMLESS.pattern}|^  \d+ is followed by")


def dump(directory: Path, *arguments: str, harmless: re.Pattern[str] = HARMLESS) -> str:
    if kafka_jars() is None:
        pytest.skip("Apache Kafka's jars are not here")
    files = sorted(
        str(path)
        for path in directory.iterdir()
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    )
    command = java_command("org.apache.kafka.tools.DumpLogSegments", *arguments, "--files", ",".join(files))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not harmless.search(line)] == []
    assert not COMPLAINTS.search(done.stdout), done.stdout
    return done.stdout


def fill(log: Log) -> None:
    """All codecs, timestamps that go back, an idempotent producer, a committed, an aborted and an open transaction."""
    for number in range(60):
        timestamps = [NOW_MS + number * 10 - delta for delta in range(number % 5 + 1)]
        append(log, make_batch(timestamps, 100, codec=number % 5), leader_epoch=number // 25)
    for number in range(10):
        append(log, make_batch([NOW_MS + 1, NOW_MS + 2], producer=(7, 0, number * 2)), leader_epoch=3)
    for number, abort in enumerate((False, True)):
        append(log, make_batch(producer=(8, 0, number), transactional=True), leader_epoch=3)
        append(log, make_marker(8, 0, abort=abort), leader_epoch=3)
    append(log, make_batch(producer=(8, 0, 2), transactional=True), leader_epoch=3)


def test_the_tool_finds_nothing_wrong_after_a_clean_close(tmp_path: Path) -> None:
    log = open_log(RealDisk(str(tmp_path)), CONFIG)
    fill(log)
    log.close()
    printed = dump(tmp_path / DIRECTORY, "--deep-iteration", "--print-data-log")
    assert printed.count("baseOffset:") == 75
    assert printed.count("endTxnMarker: ABORT") == 1
    assert "producerId: 7 producerEpoch: 0" in printed
    dump(tmp_path / DIRECTORY, "--index-sanity-check")


def test_the_tool_finds_nothing_wrong_after_reopening_truncation_and_recovery(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = open_log(disk, CONFIG)
    fill(log)
    log.close()
    log = open_log(disk, CONFIG)
    fill(log)
    for path in log.truncate_to(log.log_end_offset - 20, NOW_MS):
        disk.remove(path)
    log.close(clean=False)
    log = open_log(disk, CONFIG, clean=False)
    fill(log)
    log.close()
    dump(tmp_path / DIRECTORY, "--deep-iteration", "--print-data-log")
    dump(tmp_path / DIRECTORY, "--index-sanity-check")


def test_the_tool_finds_nothing_wrong_with_compacted_segments(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    config = replace(CONFIG, cleanup_policy=("compact",), delete_retention_ms=1000)
    log = open_log(disk, config)
    fill(log)
    for number in range(40):
        put(log, (b"a", b"%d" % number), (b"k%d" % (number % 3), bytes(90)), (b"z", None), codec=number % 5)
    append(log, make_marker(8, 0, abort=True), leader_epoch=3)
    put(log, (b"last", b""))
    log.roll(NOW_MS)
    end_offset = 0
    # The first pass sets delete horizons, the last one comes after them.
    for now_ms in (NOW_MS, NOW_MS + 10, NOW_MS + 3000):
        done = compact(disk, log, end_offset, now_ms)
        end_offset = done.end_offset
        for path in done.doomed:
            disk.remove(path)
        log.close(clean=False)
        printed = dump(tmp_path / DIRECTORY, "--deep-iteration", "--print-data-log", harmless=HARMLESS_COMPACTED)
        assert printed.count("key: a payload: 39") == 1
        assert printed.count("deleteHorizonMs: OptionalLong[") > 0
        dump(tmp_path / DIRECTORY, "--index-sanity-check")
    assert "key: z" not in printed
