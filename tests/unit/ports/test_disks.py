"""The Disk port's promises, asked of the real disk and of the simulated one alike."""

from pathlib import Path

import pytest

from penstock.base.ports import Disk, MissingFile
from penstock.broker.ports import RealDisk
from penstock.testing.sim_disk import SimDisk


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(str(tmp_path)) if request.param == "real" else SimDisk()


def test_a_file_is_made_by_its_first_append_and_read_anywhere(disk: Disk) -> None:
    file = disk.open("a")
    assert not disk.exists("a")
    assert file.size() == 0
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    assert file.size() == 11
    assert file.read(4, 4) == b"o wo"
    assert file.read(9, 100) == b"ld"
    assert file.read(11, 5) == b""
    assert disk.read_file("a") == b"hello world"


@pytest.mark.parametrize("count", [1, 3, 2000])
def test_parts_are_appended_in_their_order(disk: Disk, count: int) -> None:
    file = disk.open("a")
    file.append(b"first")
    parts = [str(number).encode() for number in range(count)]
    file.append_all([memoryview(part) for part in parts])
    file.append(b"last")
    expected = b"".join([b"first", *parts, b"last"])
    assert file.size() == len(expected)
    assert disk.read_file("a") == expected


def test_an_empty_append_makes_the_file(disk: Disk) -> None:
    disk.open("a").append(b"")
    assert disk.exists("a")
    assert disk.open("a").size() == 0


def test_there_is_one_object_per_path(disk: Disk) -> None:
    file = disk.open("a")
    assert disk.open("a") is file


def test_a_missing_file_is_told_apart(disk: Disk) -> None:
    with pytest.raises(MissingFile):
        disk.read_file("a")
    with pytest.raises(MissingFile):
        disk.open("a").read(0, 1)
    with pytest.raises(MissingFile):
        disk.rename("a", "b")
    with pytest.raises(MissingFile):
        disk.open("no/such/directory").append(b"x")
    disk.remove("a")
    assert disk.list("a") == []


def test_a_file_can_be_cut_and_grown_again(disk: Disk) -> None:
    file = disk.open("a")
    file.append(b"0123456789")
    file.truncate(4)
    assert file.size() == 4
    file.append(b"ab")
    assert disk.read_file("a") == b"0123ab"
    file.truncate(100)
    assert file.size() == 6


def test_a_closed_file_is_opened_again_by_its_next_use(disk: Disk) -> None:
    file = disk.open("a")
    file.append(b"one")
    file.close()
    file.append(b"two")
    file.close()
    assert file.read(0, 10) == b"onetwo"


def test_names_are_listed_in_order(disk: Disk) -> None:
    disk.make_directory("d/e")
    disk.open("d/b").append(b"")
    disk.open("d/a").append(b"")
    assert disk.list("d") == ["a", "b", "e"]
    assert disk.list("") == ["d"]
    assert disk.exists("d/e")


def test_a_small_file_is_replaced_whole(disk: Disk) -> None:
    for durable in (True, False):
        disk.write_file("a", b"long old content", durable=durable)
        file = disk.open("a")
        assert file.size() == 16
        disk.write_file("a", b"new", durable=durable)
        assert (disk.read_file("a"), file.size(), file.read(0, 10)) == (b"new", 3, b"new")
    assert disk.list("") == ["a"]


def test_who_holds_a_renamed_file_goes_on_with_it(disk: Disk) -> None:
    disk.make_directory("d")
    file = disk.open("d/a")
    file.append(b"one")
    disk.rename("d/a", "d/b")
    assert file.path == "d/b"
    file.append(b"two")
    assert file.read(0, 10) == b"onetwo"
    disk.rename("d", "e")
    assert file.path == "e/b"
    file.close()
    assert file.read(0, 10) == b"onetwo"
    assert disk.open("e/b") is file
    assert disk.list("") == ["e"]


def test_a_file_made_anew_after_removal_is_empty(disk: Disk) -> None:
    disk.make_directory("d")
    file = disk.open("d/a")
    file.append(b"one")
    disk.remove("d")
    assert not disk.exists("d")
    assert disk.open("d/a").size() == 0
    disk.make_directory("d")
    disk.open("d/a").append(b"x")
    assert disk.open("d/a").read(0, 10) == b"x"


def test_syncing_changes_no_byte(disk: Disk) -> None:
    disk.make_directory("d")
    file = disk.open("d/a")
    file.append(b"one")
    file.sync()
    file.close()
    file.append(b"two")
    file.close()
    file.sync()
    disk.sync_all()
    assert file.read(0, 10) == b"onetwo"
