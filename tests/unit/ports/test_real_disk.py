"""What only the real disk can show: descriptors, errors of the system, threads."""

import os
import resource
import threading
from pathlib import Path

import pytest

from penstock.base.ports import DiskError, DiskFull, MissingFile
from penstock.broker.ports import RESERVED_BYTES, RealDisk, RealFile, SystemClock, SystemRandom
from penstock.broker.reserving import reserve


def open_descriptors(below: Path) -> int:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.readlink(link).startswith(str(below)) for link in links)


def test_no_more_descriptors_are_open_than_allowed(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path), descriptors_max=5)
    files = [disk.open(f"file-{number}") for number in range(40)]
    for turn in range(3):
        for file in files:
            file.append(bytes((turn,)))
            assert open_descriptors(tmp_path) <= 5
    assert all(file.read(0, 9) == b"\0\1\2" for file in files)
    disk.close()
    assert open_descriptors(tmp_path) == 0


def test_files_in_use_keep_their_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path), descriptors_max=4)
    busy = disk.open("busy")
    busy.append(b"x")
    descriptor = busy.fileno()
    for number in range(20):
        busy.append(b"x")
        disk.open(f"file-{number}").append(b"x")
    assert busy.fileno() == descriptor


def test_a_descriptor_for_sendfile_is_there_after_eviction(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.open("a")
    file.append(b"hello")
    file.close()
    assert os.pread(file.fileno(), 5, 0) == b"hello"


def test_a_full_disk_is_told_apart_and_nothing_is_counted(tmp_path: Path) -> None:
    os.symlink("/dev/full", tmp_path / "full")
    file = RealDisk(str(tmp_path)).open("full")
    with pytest.raises(DiskFull, match="no space left appending to full"):
        file.append(b"x")
    with pytest.raises(DiskFull, match="no space left appending to full"):
        file.append_all([b"x", b"y"])
    assert file.size() == 0


def reserved_bytes(path: Path) -> int:
    status = path.stat()
    return status.st_blocks * 512 - status.st_size


@pytest.fixture
def grown(tmp_path: Path) -> RealFile:
    """A file that has taken enough for more to be reserved."""
    with (tmp_path / "probe").open("wb") as probe:
        if not reserve(probe.fileno(), 0, RESERVED_BYTES):
            pytest.skip("this file system reserves nothing, or has hardly any space left")
    file = RealDisk(str(tmp_path)).open("a")
    for _ in range(RESERVED_BYTES // 2**19):
        file.append(b"a" * 2**18)
        file.append_all([b"b" * 2**17] * 2)
    return file


def test_a_file_that_grows_has_space_reserved_behind_its_end(grown: RealFile, tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert path.stat().st_size == grown.size() == RESERVED_BYTES
    assert reserved_bytes(path) >= RESERVED_BYTES
    grown.append_all([b"c", b"d"])
    assert path.stat().st_size == RESERVED_BYTES + 2
    assert path.read_bytes()[-4:] == b"bbcd"


def test_what_was_reserved_is_given_back_with_the_descriptor(grown: RealFile, tmp_path: Path) -> None:
    path = tmp_path / "a"
    content, long_ago_ns = path.read_bytes(), 1_700_000_000_000_000_000
    os.utime(path, ns=(long_ago_ns, long_ago_ns))
    grown.close()
    assert path.read_bytes() == content
    assert reserved_bytes(path) < RESERVED_BYTES // 4
    # Retention may go by when something was written.
    assert path.stat().st_mtime_ns == long_ago_ns
    grown.append(b"more")
    assert path.read_bytes() == content + b"more"
    assert reserved_bytes(path) < RESERVED_BYTES // 4


def test_the_rest_of_a_write_that_failed_does_not_outlive_the_descriptor(grown: RealFile, tmp_path: Path) -> None:
    with (tmp_path / "a").open("ab") as beside:
        beside.write(b"what could not be cut off")
    grown.close()
    assert (tmp_path / "a").stat().st_size == grown.size()


def test_quiet_files_have_nothing_reserved(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    for _ in range(3):
        # Opened anew each time: it grows, but slowly.
        file = disk.open("a")
        file.append(bytes(RESERVED_BYTES // 2))
        file.close()
    file.append(b"x")
    assert reserved_bytes(tmp_path / "a") < RESERVED_BYTES // 4


def test_a_removed_file_is_closed_without_a_complaint(grown: RealFile, tmp_path: Path) -> None:
    RealDisk(str(tmp_path)).remove("a")
    grown.close()
    assert not (tmp_path / "a").exists()


def test_nothing_is_reserved_where_it_cannot_be_or_would_take_what_is_left(tmp_path: Path) -> None:
    with open("/dev/null", "rb+") as device, (tmp_path / "a").open("wb") as file:
        assert not reserve(device.fileno(), 0, 4096)
        assert not reserve(file.fileno(), 0, 2**50)
    assert reserved_bytes(tmp_path / "a") == 0


@pytest.mark.parametrize("parts", [[bytes(100)], [bytes(25)] * 4])
def test_a_half_written_append_is_cut_off_again(tmp_path: Path, parts: list[bytes]) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.open("a")
    file.append(bytes(50))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Beyond this size the system writes a part and then refuses.
    resource.setrlimit(resource.RLIMIT_FSIZE, (80, hard))
    try:
        with pytest.raises(DiskError, match="File too large"):
            file.append_all(parts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (file.size(), os.path.getsize(tmp_path / "a")) == (50, 50)
    file.append(b"x")
    assert os.path.getsize(tmp_path / "a") == 51


def test_a_failed_replacement_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.write_file("a", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80, hard))
    try:
        with pytest.raises(DiskError):
            disk.write_file("a", bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert disk.read_file("a") == b"old"
    assert disk.list("") == ["a"]


def test_every_error_of_the_system_arrives_as_a_disk_error(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.make_directory("d")
    for attempt in (
        lambda: disk.open("d").append(b"x"),
        lambda: disk.open("d").read(0, 1),
        lambda: disk.read_file("d"),
        lambda: disk.write_file("d", b"x"),
        lambda: disk.open("d/missing").sync(),
        lambda: disk.open("d/missing").truncate(0),
    ):
        with pytest.raises(DiskError, match="d"):
            attempt()


def test_syncs_in_other_threads_survive_files_being_closed_here(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path), descriptors_max=2)
    disk.make_directory("d")
    files = [disk.open(f"d/file-{number}") for number in range(6)]
    for file in files:
        file.append(b"x")
    problems: list[BaseException] = []

    def sync() -> None:
        try:
            for file in files:
                file.sync()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=sync) for _ in range(3)]
    for thread in threads:
        thread.start()
    appended = 1
    while any(thread.is_alive() for thread in threads):
        appended += 1
        for file in files:
            file.append(b"y")
    for thread in threads:
        thread.join()
    assert problems == []
    assert all(file.size() == appended for file in files)


def test_clock_and_chance_are_the_systems() -> None:
    clock = SystemClock()
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()
    assert len(SystemRandom().random_bytes(16)) == 16


def test_a_sync_that_comes_after_the_removal_has_nothing_to_do(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.open("a")
    file.append(b"1")
    file.close()
    remover = threading.Thread(target=disk.remove, args=("a",))
    remover.start()
    remover.join()
    file.sync()
    file.append(b"22")
    assert disk.read_file("a") == b"22"
    file.sync()


def test_a_removal_by_another_thread_leaves_a_descriptor_that_is_in_use_alone(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.open("a")
    file.append(b"123")
    remover = threading.Thread(target=disk.remove, args=("a",))
    remover.start()
    remover.join()
    assert file.read(0, 3) == b"123"
    assert not disk.exists("a")


def test_a_file_knows_when_it_was_last_written(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.open("a").append(b"1")
    os.utime(tmp_path / "a", (5, 7))
    assert disk.open("a").modified_ms() == 7000
    with pytest.raises(MissingFile):
        disk.open("b").modified_ms()
