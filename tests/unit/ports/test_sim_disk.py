"""The simulated disk's mishaps are those a real one has."""

import pytest

from penstock.base.ports import DiskError, DiskFull
from penstock.testing.sim_disk import SimDisk


def test_synced_bytes_survive_a_crash_and_of_the_others_a_prefix() -> None:
    disk = SimDisk()
    disk.open("a").append(b"synced")
    disk.open("a").sync()
    disk.open("a").append(b"not yet")
    disk.open("b").append(b"never")
    disk.crash(lambda path, unsynced: 3 if path == "a" else 0)
    assert disk.read_file("a") == b"syncednot"
    assert not disk.exists("b")


def test_a_torn_end_is_zeros() -> None:
    disk = SimDisk()
    disk.open("a").append(b"0123456789")
    disk.crash(lambda path, unsynced: unsynced, torn=True)
    assert disk.read_file("a") == b"01234" + bytes(5)


def test_a_replaced_file_is_old_or_new_after_a_crash() -> None:
    for survivors, expected in ((0, b"old"), (1, b"newer")):
        disk = SimDisk()
        disk.write_file("a", b"old")
        disk.write_file("a", b"new", durable=False)
        disk.write_file("a", b"newer", durable=False)
        disk.crash(lambda path, unsynced, survivors=survivors: survivors)  # type: ignore[misc]
        assert disk.read_file("a") == expected


def test_a_full_disk_refuses_and_keeps_what_it_had() -> None:
    disk = SimDisk(capacity_bytes=10)
    disk.open("a").append(b"12345678")
    with pytest.raises(DiskFull):
        disk.open("a").append(b"123")
    with pytest.raises(DiskFull):
        disk.write_file("b", b"123")
    # A file that is replaced stays until the new one is whole.
    with pytest.raises(DiskFull):
        disk.write_file("a", b"123")
    disk.write_file("a", b"12")
    assert disk.used_bytes() == 2


def test_an_injected_failure_happens_once() -> None:
    disk = SimDisk()
    disk.fail("append", "a", DiskError("so it was asked"))
    disk.open("b").append(b"x")
    with pytest.raises(DiskError, match="so it was asked"):
        disk.open("a").append(b"x")
    disk.open("a").append(b"x")
    disk.flip_bit("a", 0, 1)
    assert disk.read_file("a") == b"z"
