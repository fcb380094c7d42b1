"""The compiled loops of compaction do what the plain ones do."""

import random
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from penstock.log import compaction_kernels as kernels
from penstock.log.compaction_map import OffsetMap
from penstock.protocol.batch import read_header
from penstock.protocol.records import CorruptRecords, Record, build_batch, encode_records
from tests.unit.log.made import NOW_MS

ROOT = Path(__file__).parents[3]


def random_batches(seed: int) -> list[tuple[bytes, list[Record]]]:
    chance = random.Random(seed)
    batches = []
    offset = 0
    for _ in range(60):
        records = []
        for _ in range(chance.randint(1, 12)):
            key = chance.choice(
                [None, b"", b"k%d" % chance.randrange(30), chance.randbytes(chance.choice([20, 40, 300]))]
            )
            value = chance.choice([None, b"", bytes(chance.choice([1, 70, 9000]))])
            headers = (("h", b"v"),) if chance.random() < 0.2 else ()
            records.append(Record(offset, NOW_MS + chance.randint(-(10**6), 10**6), key, value, headers))
            offset += chance.choice([1, 1, 1, 1, 200])
        batches.append((bytes(encode_records(records, records[0].offset, NOW_MS)), records))
    return batches


def outcome(seed: int) -> list[object]:
    """What the map makes of random batches: mapped from the middle on, a little at a time."""
    batches = random_batches(seed)
    middle = batches[20][1][0].offset
    offset_map = OffsetMap(middle, 1 << 20, 1 << 18, 0.9)
    found: list[object] = []
    for data, records in batches[20:50]:
        found.append(offset_map.add(data, len(records), records[0].offset))
        offset_map.end_offset = records[-1].offset + 1
    for data, records in batches:
        header = read_header(build_batch(records))
        found.append(offset_map.keep(data, header, tombstones_go=seed % 2 == 0))
        found.append(offset_map.counts(header.base_offset, header.last_offset) if offset_map.holds(header) else None)
    found.append(offset_map.keys)
    return found


def test_the_plain_loops_keep_the_last_of_each_key() -> None:
    batches = random_batches(1)
    offset_map = OffsetMap(0, 1 << 20, 1 << 20, 0.9)
    last: dict[bytes, int] = {}
    for data, records in batches:
        assert offset_map.add(data, len(records), records[0].offset)
        offset_map.end_offset = records[-1].offset + 1
        last |= {record.key: record.offset for record in records if record.key is not None}
    for data, records in batches:
        kept = offset_map.keep(data, read_header(build_batch(records)), tombstones_go=False)
        expected = [record for record in records if record.key is not None and last[record.key] == record.offset]
        assert kept.records == len(expected)
        base_offset = records[0].offset
        bytes_kept = b"".join(data[start:end] for start, end in kept.spans)
        assert bytes_kept == bytes(encode_records(expected, base_offset, NOW_MS))
        if expected:
            assert kept.timestamp_delta_max == max(record.timestamp for record in expected) - NOW_MS
            assert kept.has_tombstones == any(record.value is None for record in expected)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_records_are_noticed_or_harmless(seed: int) -> None:
    chance = random.Random(seed)
    data, records = random_batches(seed)[chance.randrange(60)]
    for _ in range(200):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        cut = bytes(damaged[: chance.choice([len(data), chance.randrange(len(data) + 1)])])
        offset_map = OffsetMap(0, 1 << 20, 1 << 20, 0.9)
        header = read_header(build_batch(records))
        try:
            offset_map.add(cut, len(records), 0)
            offset_map.keep(cut, header, tombstones_go=False)
        except CorruptRecords:
            continue


_COMPARE = """
import sys
from tests.unit.log.test_compaction_native import outcome
from penstock.log.compaction_native import compile_kernels
plain = [outcome(seed) for seed in range(6)]
if not compile_kernels():
    sys.exit(77)
sys.exit(0 if [outcome(seed) for seed in range(6)] == plain else 1)
"""


@pytest.mark.slow
def test_the_compiled_loops_do_what_the_plain_ones_do() -> None:
    pytest.importorskip("numba")
    # In a process of its own: what is compiled stays so.
    done = subprocess.run([sys.executable, "-c", _COMPARE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert kernels.as_numbers(array("q")) == array("q")


_BREAK = """
import sys
from penstock.log import compaction_kernels as kernels
from penstock.log.compaction_native import compile_kernels
from tests.unit.log.test_compaction_native import outcome
plain = outcome(1)
before = kernels.keep_any
sys.modules["numba"] = None if sys.argv[1] == "missing" else type(sys)("numba")
assert not compile_kernels()
assert kernels.keep_any is before
assert outcome(1) == plain
"""


@pytest.mark.parametrize("how", ["missing", "broken"])
def test_without_a_compiler_that_works_the_plain_loops_stay(how: str) -> None:
    command = [sys.executable, "-c", _BREAK, how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
