"""Space on the disk for bytes that are yet to come, by Linux' `fallocate`. The file's size stays as it is."""

import ctypes
import os
import sys

_KEEP_SIZE = 1
# Where less than so many times as much is free, whoever needs it first shall have it.
_FREE_RATIO_MIN = 256

_fallocate = None
if sys.platform == "linux":
    _fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def reserve(descriptor: int, position: int, length: int) -> bool:
    """Whether it was done. Not every file system can do it."""
    if _fallocate is None:
        return False
    space = os.fstatvfs(descriptor)
    if space.f_bavail * space.f_frsize < _FREE_RATIO_MIN * length:
        return False
    return bool(_fallocate(descriptor, _KEEP_SIZE, position, length) == 0)


def give_back(descriptor: int, size: int) -> None:
    """What was reserved behind the file's end. Raises OSError."""
    before = os.fstat(descriptor)
    os.ftruncate(descriptor, size)
    # Nothing was written, and retention may go by when something was.
    os.utime(descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))
