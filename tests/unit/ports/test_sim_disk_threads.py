"""A node writes checkpoints from other threads while its event loop goes on: the simulated disk bears that too."""

import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.testing.sim_disk import SimDisk


@pytest.fixture
def threads_change_often() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("threads_change_often")
def test_files_come_from_one_thread_while_another_removes_and_renames() -> None:
    disk = SimDisk()
    for name in ("a", "b"):
        disk.make_directory(name)
    for number in range(200):
        disk.write_file(f"b/{number}", b"")
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            disk.write_file(f"a/{number % 500}", b"checkpoint")
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(200):
            disk.rename(f"b/{number}", f"b/{number}.deleted")
            disk.remove(f"b/{number}.deleted")
    finally:
        is_over.set()
        writer.join()
    assert disk.list("b") == []
