"""The real ports: files, clocks and chance of the operating system.

RealDisk keeps descriptors in a ring with a limit (a second chance for those used lately), so ten thousand partitions
fit under a modest ulimit. All calls come from the event loop's thread, but for `File.sync`, `Disk.sync_all`,
`write_file` and `remove`, which block and are called from others too. Syncs work on a descriptor of their own, so
closing one here never pulls it away under them; a removal by another thread leaves descriptors alone for the same
reason, so its caller closes them first.

A file that grows has space reserved a piece ahead (ADR 8), which is given back when its descriptor is closed.

An append is one `pwrite` at the size that the object knows. Neither O_APPEND nor the file's own position is used: this
process is the only writer of its data directory, a reopened file needs no seek, and what a failed write left behind
is overwritten by the next one even if cutting it off failed too.
"""

import contextlib
import errno
import os
import resource
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from weakref import WeakValueDictionary

from penstock.base.ports import Bytes, DiskError, DiskFull, MissingFile
from penstock.broker.reserving import give_back, reserve

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_TEMPORARY_SUFFIX = ".tmp"
_DESCRIPTORS_MAX = 8192
_READ_BYTES = 64 * 1024
# In one call (IOV_MAX).
_PARTS_MAX = 1024
# So much is reserved for a file once it has taken as much since it was opened: thousands of quiet ones reserve nothing.
RESERVED_BYTES = 4 * 1024 * 1024


def _disk_error(error: OSError, doing: str, path: str) -> DiskError:
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return DiskFull(f"no space left {doing} {path}: {reason}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return MissingFile(f"not found {doing} {path}: {reason}")
    return DiskError(f"failed {doing} {path}: {reason}")


def sync_problem(error_number: int, path: str) -> DiskError:
    return _disk_error(OSError(error_number, os.strerror(error_number)), "syncing", path)


class RealFile:
    """One file of a RealDisk. See penstock.base.ports.File."""

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_disk",
        "_has_reserved",
        "_is_removed",
        "_recently_used",
        "_reserve_at",
        "_size",
        "path",
    )

    def __init__(self, disk: "RealDisk", path: str) -> None:
        self.path = path
        self._disk = disk
        self._descriptor = -1
        self._size = -1
        self._recently_used = False
        self._is_removed = False
        # Whether there may be space behind its end, and the size from which on more is reserved.
        self._has_reserved = False
        self._reserve_at = 0

    def append(self, data: Bytes) -> None:
        # Hot: one frame and one system call for a produced batch.
        self._recently_used = True
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open(make=True)
        size = self._size
        try:
            written = os.pwrite(descriptor, data, size)
        except OSError as error:
            raise _disk_error(error, "appending to", self.path) from error
        if written != len(data):
            self._append_rest(data, written)
        self._size = size = size + len(data)
        if size >= self._reserve_at:
            self._reserve(size)

    def append_all(self, parts: Sequence[Bytes]) -> None:
        """What a page costs in the page cache is less the longer the write is that it is a part of: sixteen batches of
        16 KiB in one call take less than half of the time that they take one by one."""
        if len(parts) > _PARTS_MAX:
            self.append(b"".join(parts))
            return
        self._recently_used = True
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open(make=True)
        length = sum(map(len, parts))
        try:
            written = os.pwritev(descriptor, parts, self._size)
        except OSError as error:
            raise _disk_error(error, "appending to", self.path) from error
        if written != length:
            self._append_rest(b"".join(parts), written)
        self._size += length
        if self._size >= self._reserve_at:
            self._reserve(self._size)

    def _reserve(self, size: int) -> None:
        """A write whose blocks are reserved takes a quarter to a third less of the kernel's time."""
        if reserve(self._descriptor, size, RESERVED_BYTES):
            self._has_reserved = True
        self._reserve_at = size + RESERVED_BYTES

    def _append_rest(self, data: Bytes, written: int) -> None:
        """After a short write: the rest, or nothing at all."""
        view = memoryview(data)
        try:
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], self._size + written)
        except OSError as error:
            problem = _disk_error(error, "appending to", self.path)
            try:
                os.ftruncate(self._descriptor, self._size)
            except OSError as second:
                raise DiskError(f"{problem}; the half-written end could not be cut off: {second.strerror}") from second
            raise problem from error

    def read(self, position: int, length: int) -> bytes:
        self._recently_used = True
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open(make=False)
        try:
            data = os.pread(descriptor, length, position)
            if len(data) < length and position + len(data) < self._size:
                data = self._read_rest(descriptor, position, length, data)
        except OSError as error:
            raise _disk_error(error, "reading", self.path) from error
        return data

    def _read_rest(self, descriptor: int, position: int, length: int, data: bytes) -> bytes:
        """One pread gives 2 GiB at the most, and may give less."""
        result = bytearray(data)
        while len(result) < length and (more := os.pread(descriptor, length - len(result), position + len(result))):
            result += more
        return bytes(result)

    def size(self) -> int:
        if self._size < 0:
            try:
                size = os.stat(self._disk.absolute(self.path)).st_size
            except FileNotFoundError:
                return 0
            except OSError as error:
                raise _disk_error(error, "looking at", self.path) from error
            self._size = size
        return self._size

    def modified_ms(self) -> int:
        try:
            return os.stat(self._disk.absolute(self.path)).st_mtime_ns // 1_000_000
        except OSError as error:
            raise _disk_error(error, "looking at", self.path) from error

    def truncate(self, size: int) -> None:
        descriptor = self._descriptor if self._descriptor >= 0 else self._open(make=False)
        if size >= self._size:
            return
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            raise _disk_error(error, "cutting", self.path) from error
        self._size = size

    def sync(self) -> None:
        self._disk.sync_file(self)

    def descriptor_to_sync(self) -> int | None:
        """A descriptor whose fdatasync does all that `sync` would; None where there is more to do. Good until the next
        call into this disk."""
        return self._descriptor if self._descriptor >= 0 and self._disk.has_synced_names(self.path) else None

    def close(self) -> None:
        self._disk.close_descriptor(self)

    def fileno(self) -> int:
        """A descriptor for sendfile. Good until the next call into this disk: ask again after every await."""
        self._recently_used = True
        return self._descriptor if self._descriptor >= 0 else self._open(make=False)

    def _open(self, *, make: bool) -> int:
        self._descriptor, self._size = self._disk.open_descriptor(self, make=make)
        self._is_removed = False
        self._reserve_at = self._size + RESERVED_BYTES
        # One use earns no second chance: files touched once must not push out those in steady use.
        self._recently_used = False
        return self._descriptor


class RealDisk:
    """A directory of the file system. See penstock.base.ports.Disk."""

    def __init__(self, root: str, *, descriptors_max: int | None = None) -> None:
        self._root = os.path.abspath(root)
        self._descriptors_max = descriptors_max or _default_descriptors_max()
        self._files: WeakValueDictionary[str, RealFile] = WeakValueDictionary()
        # Files whose descriptor is open, in the order in which the next one to close is looked for.
        self._open_files: OrderedDict[RealFile, None] = OrderedDict()
        # Directories with names in them that a power cut could still take back.
        self._unsynced_directories: set[str] = set()
        self._thread = threading.get_ident()
        # Held while a descriptor is duplicated for a sync or closed, and around the set above; never for long.
        self._lock = threading.Lock()
        # Held while a directory is synced: who finds its names already taken care of waits until they are.
        self._directory_sync_lock = threading.Lock()

    def absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def open(self, path: str) -> RealFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = RealFile(self, path)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(self.absolute(path))

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self.absolute(directory)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _disk_error(error, "listing", directory) from error

    def make_directory(self, path: str) -> None:
        absolute = self.absolute(path)
        try:
            try:
                os.mkdir(absolute)
            except FileNotFoundError:
                os.makedirs(absolute, exist_ok=True)
            except FileExistsError:
                return
        except OSError as error:
            raise _disk_error(error, "making the directory", path) from error
        while path:
            path = _parent(path)
            self._note_directory(path)

    def read_file(self, path: str) -> bytes:
        try:
            descriptor = os.open(self.absolute(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(descriptor, _READ_BYTES)
                while len(data) >= _READ_BYTES and (more := os.read(descriptor, len(data))):
                    data += more
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _disk_error(error, "reading", path) from error
        return data

    def write_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        absolute = self.absolute(path)
        temporary = absolute + _TEMPORARY_SUFFIX
        self._forget(path)
        try:
            try:
                _write_whole(temporary, data, durable=durable)
                os.rename(temporary, absolute)
            except OSError:
                # The space that the unfinished copy took is needed more than the copy.
                if os.path.exists(temporary):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise _disk_error(error, "writing", path) from error
        self._note_directory(_parent(path))
        if durable:
            self._sync_directories(_parent(path))

    def rename(self, old: str, new: str) -> None:
        self._forget(new)
        try:
            os.rename(self.absolute(old), self.absolute(new))
        except OSError as error:
            raise _disk_error(error, "renaming", old) from error
        # Known files keep their descriptors and get their new names; a whole directory of them may have moved.
        moved = self._known_below(old) if os.path.isdir(self.absolute(new)) else [old]
        for path in moved:
            file = self._files.pop(path, None)
            if file is not None:
                file.path = new + path[len(old) :]
                self._files[file.path] = file
        self._note_directory(_parent(old))
        self._note_directory(_parent(new))

    def remove(self, path: str) -> None:
        absolute = self.absolute(path)
        is_directory = os.path.isdir(absolute) and not os.path.islink(absolute)
        file = self._files.get(path)
        if file is not None:
            file._is_removed = True
        if threading.get_ident() == self._thread:
            for known in self._known_below(path) if is_directory else [path]:
                self._forget(known)
        try:
            if is_directory:
                shutil.rmtree(absolute)
            else:
                os.unlink(absolute)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _disk_error(error, "removing", path) from error
        self._note_directory(_parent(path))

    def sync_all(self) -> None:
        os.sync()
        with self._lock:
            self._unsynced_directories.clear()

    def close(self) -> None:
        """Gives all descriptors back."""
        for file in list(self._open_files):
            self.close_descriptor(file)

    def open_descriptor(self, file: RealFile, *, make: bool) -> tuple[int, int]:
        """(descriptor, size) of `file`, closing others where the limit asks for it."""
        while len(self._open_files) >= self._descriptors_max:
            self._close_one_unused()
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0)
            descriptor = os.open(self.absolute(file.path), flags, 0o644)
            size = os.fstat(descriptor).st_size
        except OSError as error:
            raise _disk_error(error, "opening", file.path) from error
        if make and size == 0:
            self._note_directory(_parent(file.path))
        self._open_files[file] = None
        return descriptor, size

    def _close_one_unused(self) -> None:
        file = next(iter(self._open_files))
        if file._recently_used:
            file._recently_used = False
            self._open_files.move_to_end(file)
        else:
            self.close_descriptor(file)

    def close_descriptor(self, file: RealFile) -> None:
        if file._descriptor < 0:
            return
        del self._open_files[file]
        if file._has_reserved:
            file._has_reserved = False
            if not file._is_removed:
                with contextlib.suppress(OSError):
                    give_back(file._descriptor, file._size)
        with self._lock:
            descriptor, file._descriptor = file._descriptor, -1
            os.close(descriptor)

    def sync_file(self, file: RealFile) -> None:
        try:
            with self._lock:
                if file._descriptor >= 0:
                    descriptor = os.dup(file._descriptor)
                else:
                    descriptor = os.open(self.absolute(file.path), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if file._is_removed:
                # Retention or compaction was quicker; nobody will miss it.
                return
            raise _disk_error(error, "syncing", file.path) from error
        self._sync_directories(_parent(file.path))

    def has_synced_names(self, path: str) -> bool:
        """Whether no power cut can take the names on the way to the file back."""
        while path:
            path = _parent(path)
            if path in self._unsynced_directories:
                return False
        # In this order: who syncs a directory takes it out of the set first, and the lock before that.
        return not self._directory_sync_lock.locked()

    def _sync_directories(self, directory: str) -> None:
        """Makes the names on the way from the root to a file durable."""
        with self._directory_sync_lock:
            while True:
                with self._lock:
                    is_unsynced = directory in self._unsynced_directories
                    self._unsynced_directories.discard(directory)
                if is_unsynced:
                    self._sync_directory(directory)
                if not directory:
                    return
                directory = _parent(directory)

    def _sync_directory(self, directory: str) -> None:
        try:
            descriptor = os.open(self.absolute(directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            self._note_directory(directory)
            raise _disk_error(error, "syncing the directory", directory) from error

    def _note_directory(self, directory: str) -> None:
        if directory not in self._unsynced_directories:
            with self._lock:
                self._unsynced_directories.add(directory)

    def _known_below(self, directory: str) -> Sequence[str]:
        return [path for path in self._files if path.startswith(directory + "/")]

    def _forget(self, path: str) -> None:
        """The bytes behind a known file object are about to be others: it looks again on its next use."""
        file = self._files.get(path)
        if file is not None:
            self.close_descriptor(file)
            file._size = -1


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _write_whole(absolute: str, data: bytes, *, durable: bool) -> None:
    descriptor = os.open(absolute, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _default_descriptors_max() -> int:
    """Half of what the process may open; the rest is for connections."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return _DESCRIPTORS_MAX
    return max(16, min(soft_limit // 2, _DESCRIPTORS_MAX))


class SystemClock:
    """See penstock.base.ports.Clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemRandom:
    """See penstock.base.ports.Random."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
