"""The ports: everything a core needs of the outside world, as small Protocols.

A core never opens a file, reads a clock or rolls dice itself; it is handed one of these. The broker implements
them over the operating system, the simulator over memory and a seed. If a test needs to patch something, a port is
missing here.

Errors of the environment are mapped once, by the implementation: every Disk and File method may raise `DiskError`,
and `DiskFull` where the cause is a lack of space. No OSError escapes a port.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Bytes = bytes | bytearray | memoryview


class DiskError(Exception):
    """The disk did not do what was asked; the message says what, and on which file."""


class DiskFull(DiskError):
    """No space left. What was asked left no trace: an append is undone before this is raised."""


class MissingFile(DiskError):
    """The file or directory is not there."""


class File(Protocol):
    """One file, append-only but for `truncate`. Opened on first use; its descriptor may be closed and reopened."""

    path: str

    def append(self, data: Bytes) -> None:
        """Writes all of `data` at the end, or nothing of it."""

    def append_all(self, parts: Sequence[Bytes]) -> None:
        """The same, of parts that follow each other."""

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; shorter only at the end of the file."""

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """When its bytes last changed, in wall-clock milliseconds. Raises MissingFile."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Blocks until what was appended before the call is on the disk. Called off the event loop."""

    def close(self) -> None:
        """Gives the descriptor back. The object stays usable: the next use opens the file again."""


class Slice(NamedTuple):
    """Bytes of a file, to be sent as they are, without passing through this process where the system can do that."""

    file: File
    position: int
    length: int


class Disk(Protocol):
    """A tree of files. Paths are relative to the data directory, with `/` between the parts."""

    def open(self, path: str) -> File:
        """The file at `path`, made when first appended to. One object per path while it is in use."""

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted; empty when there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Makes it and its parents; no error when it is there."""

    def read_file(self, path: str) -> bytes:
        """A small file, whole. Raises MissingFile."""

    def write_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replaces a small file atomically: a crash leaves the old or the new bytes, never a mixture.
        `durable` says whether it must survive a power cut once this returns."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with everything in it; no error when it is not there."""

    def sync_all(self) -> None:
        """Blocks until everything written through this disk is durable. Called off the event loop."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, for deadlines."""


class Random(Protocol):
    def random_bytes(self, count: int) -> bytes: ...
