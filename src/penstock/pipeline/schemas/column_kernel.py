"""What the kernels of typed columns have in common.

numba keeps compiled code until its own file changes: who changes something here, or what the programs' numbers mean,
must touch the kernels' files too, or they go on with what was.

Importing this module imports numba, which takes a second; the first call on a machine compiles, which takes some more.
"""

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# In place of a position.
BAD = -1
NO_ROOM = -2

_jit: Any = numba.njit


def compiled(function: Any) -> Any:
    """Kept beside the module, or in the user's cache directory where that cannot be written. Without numba's runtime,
    which would count references to every array at every call, and take four times as long: nothing here reserves
    memory."""
    try:
        return _jit(cache=True, nogil=True, _nrt=False)(function)
    except RuntimeError:  # nowhere to keep it: every process compiles for itself
        return _jit(nogil=True, _nrt=False)(function)


def inlined(function: Any) -> Any:
    return _jit(inline="always", _nrt=False)(function)


@inlined
def is_text(data: Any, position: Any, end: Any) -> Any:
    """Whether it is UTF-8 as Python has it: without surrogates, nothing longer than need be."""
    seen = numba.uint8(0)
    for place in range(position, end):
        seen |= data[place]
    if seen < 0x80:
        return True
    while position < end:
        first = data[position]
        position += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if end - position < more:
            return False
        second = data[position]
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return False
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return False
        for place in range(position, position + more):
            if data[place] & 0xC0 != 0x80:
                return False
        position += more
    return True


@inlined
def varint(data: Any, position: Any, end: Any) -> Any:
    """(64 bits, position after them); the position is -1 when they do not end before `end`, or are more."""
    result = numba.int64(0)
    shift = 0
    while position < end:
        byte = numba.int64(data[position])
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return 0, -1
            return result, position
        shift += 7
        if shift > 63:
            return 0, -1
    return 0, -1


@inlined
def little_endian(data: Any, position: Any, size: Any) -> Any:
    result = numba.int64(0)
    for place in range(size):
        result |= numba.int64(data[position + place]) << (8 * place)
    return result


@compiled
def take_back(levels: Any, bases: Any, counts: Any, row: Any, before: Any, values: Any, is_set: Any) -> None:
    """All that a row has set."""
    for column in range(len(levels)):
        level = levels[column]
        first = row if level == 0 else before[level]
        end = row + 1 if level == 0 else counts[level]
        for slot in range(bases[column] + first, bases[column] + end):
            values[slot] = 0
            is_set[slot] = 0
    for level in range(len(counts)):
        counts[level] = before[level]


@compiled
def _gather(data: Any, starts: Any, lengths: Any, offsets: Any, out: Any) -> None:
    for row in range(len(starts)):
        start = starts[row]
        place = offsets[row]
        for byte in range(lengths[row]):
            out[place + byte] = data[start + byte]


def gather(
    data: "NDArray[np.uint8]", starts: "NDArray[np.int64]", lengths: "NDArray[np.int64]", offsets: "NDArray[np.int32]"
) -> "NDArray[np.uint8]":
    """Bytes from all over the data one after the other; fills where each starts, and the end."""
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1:])
    out: NDArray[np.uint8] = np.empty(int(offsets[-1]), np.uint8)
    _gather(data, starts, lengths, offsets, out)
    return out
