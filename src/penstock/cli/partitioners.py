"""Which partition a produced record goes to, decided here so that every record lands where its partitioner says.

A partitioner is a function of key, value and partition count. murmur2 is the default because Java's clients use it:
records with the same key meet in the same partition whoever produced them. librdkafka's own default is crc32.
"""

import importlib
import random
import sys
import zlib
from collections.abc import Callable

Partitioner = Callable[[bytes | None, bytes | None, int], int]

# Java's sticky partitioner (KIP-794) moves on once it gave a partition a batch's worth of bytes.
STICKY_BYTES = 16 * 1024


class NoPartitioner(ValueError):
    """There is no such partitioner; the message says what there is."""


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (seed 0x9747b28c) as Java computes it, but unsigned."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    hash_ = 0x9747B28C ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        hash_ = (hash_ * multiplier & mask) ^ word
    if whole < length:
        hash_ = (hash_ ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    hash_ = (hash_ ^ hash_ >> 13) * multiplier & mask
    return hash_ ^ hash_ >> 15


class Sticky:
    """Stays with a partition for a batch's worth of bytes, then moves to another one by chance."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self._partition = -1
        self._bytes_left = 0

    def __call__(self, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        if self._bytes_left <= 0 or self._partition >= partition_count:
            others = [partition for partition in range(partition_count) if partition != self._partition]
            self._partition = self._chance.choice(others or [0])
            self._bytes_left = STICKY_BYTES
        self._bytes_left -= len(key or b"") + len(value or b"") + 1
        return self._partition


class RoundRobin:
    """One record each, in turn, whatever the key."""

    def __init__(self) -> None:
        self._next = -1

    def __call__(self, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        self._next = (self._next + 1) % partition_count
        return self._next


class Hashed:
    """By a hash of the key; records without a key stick together for a while, as Java's do."""

    def __init__(self, hash_of: Callable[[bytes], int]) -> None:
        self._hash_of = hash_of
        self._keyless = Sticky()

    def __call__(self, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        if key is None:
            return self._keyless(key, value, partition_count)
        return self._hash_of(key) % partition_count


def _java_positive_murmur2(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


BUILT_IN: dict[str, Callable[[], Partitioner]] = {
    "murmur2": lambda: Hashed(_java_positive_murmur2),
    "crc32": lambda: Hashed(zlib.crc32),
    "round-robin": RoundRobin,
    "sticky": Sticky,
}


def partitioner(name: str) -> Partitioner:
    """A built-in one by its name, or your own as `module:function`."""
    if name in BUILT_IN:
        return BUILT_IN[name]()
    module_name, colon, function_name = name.partition(":")
    if not colon:
        raise NoPartitioner(
            f"there is no partitioner '{name}'; take one of {', '.join(BUILT_IN)}, or your own as module:function"
        )
    return _own(name, module_name, function_name)


def _own(name: str, module_name: str, function_name: str) -> Partitioner:
    # A person names a module of the directory they are in, which an installed program does not search.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise NoPartitioner(f"the partitioner '{name}' cannot be loaded: {error}") from error

    def checked(key: bytes | None, value: bytes | None, partition_count: int) -> int:
        chosen = function(key, value, partition_count)
        if not isinstance(chosen, int) or not 0 <= chosen < partition_count:
            raise NoPartitioner(f"{name} chose {chosen!r}; it must give an int from 0 to {partition_count - 1}")
        return chosen

    return checked
