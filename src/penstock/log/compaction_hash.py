"""MurmurHash3 (x64, 128 bits), Austin Appleby's, in the arithmetic of numpy's unsigned integers: to be compiled, since
each step of it would cost Python as much as a whole key."""

from typing import Any

import numpy as np

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_N1 = np.uint64(0x52DCE729)
_N2 = np.uint64(0x38495AB5)
_FIVE = np.uint64(5)
_WORD_BITS = np.uint64(64)
_SHIFT = np.uint64(33)


def rotated(value: Any, bits: Any) -> Any:
    return np.uint64((value << bits) | (value >> (_WORD_BITS - bits)))


def mixed(value: Any) -> Any:
    value ^= value >> _SHIFT
    value *= _M1
    value ^= value >> _SHIFT
    value *= _M2
    return np.uint64(value ^ (value >> _SHIFT))


def word(data: Any, start: int, end: int) -> Any:
    """Up to eight bytes, the first one the least."""
    value = np.uint64(0)
    for index in range(min(end - start, 8)):
        value |= np.uint64(data[start + index]) << np.uint64(8 * index)
    return value


def murmur3(data: Any, start: int, end: int) -> Any:
    first = np.uint64(0)
    second = np.uint64(0)
    for block in range((end - start) // 16):
        position = start + 16 * block
        first ^= rotated(word(data, position, end) * _C1, np.uint64(31)) * _C2
        first = np.uint64((rotated(first, np.uint64(27)) + second) * _FIVE + _N1)
        second ^= rotated(word(data, position + 8, end) * _C2, np.uint64(33)) * _C1
        second = np.uint64((rotated(second, np.uint64(31)) + first) * _FIVE + _N2)
    position = end - (end - start) % 16
    second ^= rotated(word(data, position + 8, end) * _C2, np.uint64(33)) * _C1
    first ^= rotated(word(data, position, end) * _C1, np.uint64(31)) * _C2
    size = np.uint64(end - start)
    first ^= size
    second ^= size
    first += second
    second += first
    first = mixed(first)
    second = mixed(second)
    first += second
    second += first
    return np.int64(first), np.int64(second)
