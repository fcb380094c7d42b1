"""A disk in memory that can lose power, fill up, fail and rot, the same way every time.

What it promises after `crash` is what file systems promise. Bytes that were synced are there. Of bytes appended since,
some prefix is, perhaps with a torn end. A file replaced by `write_file` has its old or its new bytes. Renames,
removals and truncations are in order and kept, as by a journal.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.base.ports import Bytes, DiskError, DiskFull, MissingFile

# How many of a file's unsynced bytes survive: given its path and their number.
Survival = Callable[[str, int], int]


@dataclass(slots=True)
class _Content:
    """An inode: what reads see, and how much of it is durable."""

    data: bytearray = field(default_factory=bytearray)
    synced_bytes: int = 0
    modified_ms: int = 0
    # What a power cut brings back while a replacement by write_file is not durable; None: a file that was not there.
    replaced: bytes | None = None
    is_replacement: bool = False
    is_durable: bool = False

    def mark_synced(self) -> None:
        self.synced_bytes = len(self.data)
        self.replaced = None
        self.is_replacement = False
        self.is_durable = True


class SimFile:
    """See penstock.base.ports.File."""

    def __init__(self, disk: "SimDisk", path: str) -> None:
        self.path = path
        self._disk = disk

    def append(self, data: Bytes) -> None:
        disk = self._disk
        disk.act("append", self.path)
        if disk.capacity_bytes is not None:
            disk.reserve(self.path, len(data))
        content = disk.content(self.path, make=True)
        content.data += data
        content.modified_ms = disk.now_ms

    def append_all(self, parts: Sequence[Bytes]) -> None:
        self.append(b"".join(parts))

    def read(self, position: int, length: int) -> bytes:
        self._disk.act("read", self.path)
        return bytes(memoryview(self._disk.content(self.path).data)[position : position + length])

    def size(self) -> int:
        return len(self._disk.content(self.path).data) if self._disk.is_file(self.path) else 0

    def modified_ms(self) -> int:
        return self._disk.content(self.path).modified_ms

    def truncate(self, size: int) -> None:
        self._disk.act("truncate", self.path)
        content = self._disk.content(self.path)
        del content.data[size:]
        content.modified_ms = self._disk.now_ms
        content.synced_bytes = min(content.synced_bytes, size)

    def sync(self) -> None:
        self._disk.act("sync", self.path)
        self._disk.content(self.path).mark_synced()

    def close(self) -> None:
        """Nothing is held open."""


class SimDisk:
    """See penstock.base.ports.Disk."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        # Appends and writes that would go beyond are refused with DiskFull. None: without limit.
        self.capacity_bytes = capacity_bytes
        # What files are stamped with when they are written; the test moves it.
        self.now_ms = 0
        self._contents: dict[str, _Content] = {}
        self._directories: set[str] = {""}
        self._files: dict[str, SimFile] = {}
        self._failures: list[tuple[str, str, DiskError]] = []

    # The port

    def open(self, path: str) -> SimFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = SimFile(self, path)
        return file

    def exists(self, path: str) -> bool:
        return path in self._contents or path in self._directories

    def list(self, directory: str) -> list[str]:
        start = f"{directory}/" if directory else ""
        names = {
            path[len(start) :].split("/")[0] for path in (*self._contents, *self._directories) if path.startswith(start)
        }
        return sorted(names - {""})

    def make_directory(self, path: str) -> None:
        self.act("make_directory", path)
        while path:
            self._directories.add(path)
            path = _parent(path)

    def read_file(self, path: str) -> bytes:
        self.act("read", path)
        return bytes(self.content(path).data)

    def write_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.act("write_file", path)
        if _parent(path) not in self._directories:
            raise MissingFile(f"no directory for {path}")
        old = self._contents.get(path)
        # The old file stays until the new one is whole.
        self.reserve(path, len(data))
        new = _Content(bytearray(data), is_replacement=True)
        if old is not None:
            new.replaced = old.replaced if old.is_replacement else bytes(old.data[: old.synced_bytes])
        self._contents[path] = new
        if durable:
            new.mark_synced()

    def rename(self, old: str, new: str) -> None:
        self.act("rename", old)
        if not self.exists(old):
            raise MissingFile(f"not found renaming {old}")
        for path in _below(self._contents, old):
            moved = new + path[len(old) :]
            self._contents[moved] = self._contents.pop(path)
            self._files.pop(moved, None)
            if path in self._files:
                file = self._files[moved] = self._files.pop(path)
                file.path = moved
        for path in _below(self._directories, old):
            self._directories.remove(path)
            self._directories.add(new + path[len(old) :])

    def remove(self, path: str) -> None:
        self.act("remove", path)
        for known in _below(self._contents, path):
            del self._contents[known]
        self._directories.difference_update(_below(self._directories, path))

    def sync_all(self) -> None:
        self.act("sync", "")
        for content in tuple(self._contents.values()):
            content.mark_synced()

    # Mishaps

    def crash(self, survives: Survival | None = None, *, torn: bool = False) -> None:
        """The power goes. `survives` says how many of the unsynced bytes of each file are there afterwards (none unless
        told); with `torn` the last of these are zeros, as where the size reached the disk before the data. Objects from
        before must not be used on."""
        for path, content in list(self._contents.items()):
            unsynced = len(content.data) - content.synced_bytes
            kept = min(unsynced, survives(path, unsynced)) if survives is not None else 0
            if content.is_replacement:
                self._crash_replacement(path, content, kept)
            elif not content.is_durable and kept == 0:
                del self._contents[path]
            else:
                del content.data[content.synced_bytes + kept :]
                if torn and kept:
                    zeros = (kept + 1) // 2
                    content.data[-zeros:] = bytes(zeros)
                content.mark_synced()
        self._files.clear()
        self._failures.clear()

    def _crash_replacement(self, path: str, content: _Content, kept: int) -> None:
        if kept == 0:
            if content.replaced is None:
                del self._contents[path]
                return
            content.data[:] = content.replaced
        content.mark_synced()

    def hand_over(self) -> "SimDisk":
        """The same disk for the next process: whatever the one before still does, comes to nothing."""
        heir = SimDisk(self.capacity_bytes)
        heir.now_ms = self.now_ms
        heir._contents, self._contents = self._contents, {}
        heir._directories, self._directories = self._directories, {""}
        return heir

    def fail(self, operation: str, path_ending: str = "", error: DiskError | None = None) -> None:
        """The next call of `operation` (append, read, truncate, sync, write_file, rename, remove, make_directory) on a
        path that ends so fails, once."""
        self._failures.append((operation, path_ending, error or DiskError(f"injected into {operation}")))

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        self.content(path).data[position] ^= 1 << bit

    # What files use

    def act(self, operation: str, path: str) -> None:
        for failure in self._failures:
            if failure[0] == operation and path.endswith(failure[1]):
                self._failures.remove(failure)
                raise failure[2]

    def reserve(self, path: str, more_bytes: int) -> None:
        if self.capacity_bytes is not None and self.used_bytes() + more_bytes > self.capacity_bytes:
            raise DiskFull(f"no space left for {path}")

    def dump(self) -> dict[str, bytes]:
        """The bytes of every file, in the order of their paths."""
        return {path: bytes(self._contents[path].data) for path in sorted(self._contents)}

    def used_bytes(self) -> int:
        return sum(len(content.data) for content in tuple(self._contents.values()))

    def is_file(self, path: str) -> bool:
        return path in self._contents

    def content(self, path: str, *, make: bool = False) -> _Content:
        content = self._contents.get(path)
        if content is None:
            if not make or _parent(path) not in self._directories:
                raise MissingFile(f"not found: {path}")
            content = self._contents[path] = _Content()
        return content


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _below(paths: Iterable[str], path: str) -> list[str]:
    """`path` and what is in it. Listed at one stroke first: another thread may be writing a file of its own."""
    return [known for known in list(paths) if known == path or known.startswith(path + "/")]
