"""Compiles compaction's loops, where numba is installed (`penstock[spark]` brings it).

For processes that do nothing else: the compiler takes a second to load, some hundred megabytes, and, the first time on
a machine, some seconds to compile. What it has compiled is kept beside this file or in the user's cache.
"""

from array import array
from typing import Any

from penstock.base.ports import Bytes
from penstock.log import compaction_kernels as kernels
from penstock.log.compaction_map import OffsetMap
from penstock.protocol.batch import HEADER_BYTES, read_header
from penstock.protocol.records import Record, build_batch

# Those call these, with whatever types: they are kept as part of them. numba's files are not made for processes that
# compile one function at once for several types.
_INNER = ("varint", "find")
_COMPILED = ("map_records", "keep_mapped", "keep_any")


def compile_kernels() -> bool:
    """Puts compiled loops in the place of the others, in this process; False, everything being as it was, if there is
    no compiler or it is not up to them."""
    plain = {name: getattr(kernels, name) for name in (*_INNER, *_COMPILED, "key_hashes", "as_bytes", "as_numbers")}
    try:
        _replace()
        _try_out()
    except Exception:
        # Whatever it is: slower is better than not at all.
        for name, function in plain.items():
            setattr(kernels, name, function)
        return False
    return True


def _replace() -> None:
    import numba
    import numpy

    from penstock.log import compaction_hash

    inner = numba.njit(nogil=True)

    def compiled(function: Any) -> Any:
        try:
            return numba.njit(cache=True, nogil=True)(function)
        except RuntimeError:
            # There is no place to keep what was compiled.
            return inner(function)

    def as_bytes(data: Bytes) -> Any:
        return numpy.frombuffer(data, numpy.uint8)

    def as_numbers(data: "array[int]") -> Any:
        return numpy.frombuffer(data, numpy.int64)

    for name in ("rotated", "mixed", "word"):
        setattr(compaction_hash, name, inner(getattr(compaction_hash, name)))
    kernels.key_hashes = compiled(compaction_hash.murmur3)
    for name in _INNER:
        setattr(kernels, name, inner(getattr(kernels, name)))
    for name in _COMPILED:
        setattr(kernels, name, compiled(getattr(kernels, name)))
    kernels.as_bytes = as_bytes
    kernels.as_numbers = as_numbers


def _try_out() -> None:
    """Has them compiled now, by what they are for."""
    batch = build_batch([Record(offset, 0, b"key", b"value") for offset in range(2)])
    header = read_header(batch)
    records = bytes(batch[HEADER_BYTES:])
    offset_map = OffsetMap(0, 2, 1 << 10, 0.9)
    assert offset_map.add(records, 2, 0)
    for offset_map.end_offset in (2, 1):
        assert offset_map.keep(records, header, tombstones_go=False).records == 1
