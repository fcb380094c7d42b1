import random
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.partitioners import STICKY_BYTES, NoPartitioner, RoundRobin, Sticky, murmur2, partitioner

# key in hexadecimal, Utils.murmur2 of Java (org.apache.kafka.common.utils, Kafka 4.3.1), its partition of 7 and of 10.
JAVA_MURMUR2 = [
    ("", 275646681, 2, 1),
    ("61", -1563381124, 5, 4),
    ("6162", 316155434, 0, 4),
    ("616263", 479470107, 4, 7),
    ("61626364", -1323649548, 5, 0),
    ("6162636465", 461995741, 4, 1),
    ("3231", -973932308, 3, 0),
    ("666f6f626172", -790332482, 0, 6),
    ("612d6c6974746c652d6269742d6c6f6e672d737472696e67", -985981536, 1, 2),
    (
        "6c6b6a683233346c68396669756839307932336f697568736166756a6861646f66323239706872396831396838396838",
        -58897971,
        3,
        7,
    ),
    ("6f72646572732d3432", 479277457, 1, 7),
    ("c3bc6ec3af636f646520d0bad0bbd18ed187", 830861116, 1, 6),
    ("00", 375494588, 0, 8),
    ("fffe80", -160726397, 3, 1),
    ("8000ff7f90", -283518826, 6, 2),
    ("0000000000000001", 2100486060, 1, 0),
]


@pytest.mark.parametrize(("key_hex", "java_hash", "of_7", "of_10"), JAVA_MURMUR2)
def test_murmur2_puts_keys_where_java_puts_them(key_hex: str, java_hash: int, of_7: int, of_10: int) -> None:
    key = bytes.fromhex(key_hex)
    assert murmur2(key) == java_hash & 0xFFFFFFFF
    choose = partitioner("murmur2")
    assert choose(key, b"value", 7) == of_7
    assert choose(key, None, 10) == of_10


def test_crc32_puts_keys_where_librdkafka_puts_them() -> None:
    assert partitioner("crc32")(b"abc", None, 10) == zlib.crc32(b"abc") % 10


@given(st.binary(), st.integers(1, 1000), st.sampled_from(["murmur2", "crc32"]))
def test_a_key_always_goes_to_the_same_existing_partition(key: bytes, partition_count: int, name: str) -> None:
    chosen = {partitioner(name)(key, value, partition_count) for value in (None, b"", b"x" * 50_000)}
    assert len(chosen) == 1
    assert chosen <= set(range(partition_count))


def test_round_robin_takes_turns_whatever_the_key() -> None:
    choose = RoundRobin()
    assert [choose(b"same", None, 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_sticky_stays_for_a_batch_and_then_moves() -> None:
    choose = Sticky(random.Random(7))
    value = b"x" * (STICKY_BYTES // 4)
    chosen = [choose(None, value, 5) for _ in range(40)]
    runs = [1]
    for before, after in pairwise(chosen):
        if after == before:
            runs[-1] += 1
        else:
            runs.append(1)
    assert set(runs[:-1]) == {4}
    assert set(chosen) <= set(range(5))


def test_sticky_manages_with_a_single_partition() -> None:
    choose = Sticky()
    assert {choose(None, b"x" * STICKY_BYTES, 1) for _ in range(5)} == {0}


def test_records_without_a_key_stick_together() -> None:
    choose = partitioner("murmur2")
    assert len({choose(None, b"small", 100) for _ in range(20)}) == 1


def test_an_own_partitioner_is_loaded_by_module_and_function() -> None:
    assert partitioner("operator:length_hint") is not None
    with pytest.raises(NoPartitioner, match="cannot be loaded"):
        partitioner("no_such_module_here:choose")
    with pytest.raises(NoPartitioner, match="cannot be loaded"):
        partitioner("operator:no_such_function")


def test_an_own_partitioner_that_chooses_nonsense_is_refused() -> None:
    choose = partitioner("builtins:max")
    # max(key, value, 3) of numbers is 3: one past the last partition.
    with pytest.raises(NoPartitioner, match="from 0 to 2"):
        choose(0, 1, 3)  # type: ignore[arg-type]


def test_an_unknown_partitioner_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NoPartitioner, match="murmur2, crc32, round-robin, sticky"):
        partitioner("murmur3")
