"""No space left: writes get KAFKA_STORAGE_ERROR, reads go on, and all is well when there is space again."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.wire import Wire, batch_of, create_topic, fetch, ping, produce, records_of
from tests.conftest import MakeBroker
from tests.e2e.node import Node

SIZE_BYTES = 8 << 20
BALLAST_BYTES = 3 << 20
VALUE = b"x" * 50_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes where a node will keep its log; its own messages go elsewhere."""
    directory = tmp_path / "data" / "node-1"
    directory.mkdir(parents=True)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={SIZE_BYTES}".encode()
    if libc.mount(b"tmpfs", str(directory).encode(), b"tmpfs", 0, options) != 0:
        pytest.skip(f"needs to mount a tmpfs: {os.strerror(ctypes.get_errno())}")
    yield directory
    detach_when_unused = 2
    assert libc.umount2(str(directory).encode(), detach_when_unused) == 0


def fill(wire: Wire, acks: int) -> int:
    """Writes until it is refused; how many batches were taken."""
    for count in range(2 * SIZE_BYTES // len(VALUE)):
        answer = produce(wire, "full", batch_of([b"%d " % count + VALUE]), acks=acks)
        if answer.error_code != 0:
            assert answer.error_code.name == "kafka_storage_error"
            return count
    raise AssertionError("it is never full")


def use_up(path: Path) -> None:
    """Takes what space is left, to the last block."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def read_all(wire: Wire) -> list[int]:
    """The numbers in the records, in order."""
    found: list[int] = []
    while True:
        answer = fetch(wire, "full", len(found))
        assert answer.error_code == 0
        found += [int((record.value or b"").split()[0]) for record in records_of(answer.records)]
        if len(found) >= answer.high_watermark:
            return found


@pytest.mark.parametrize("acks", [1, -1])
def test_a_full_disk_refuses_writes_serves_reads_and_recovers(
    small_disk: Path, make_broker: MakeBroker, acks: int
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    node: Node = make_broker(data=small_disk.parent)
    with Wire(node.port) as wire:
        create_topic(wire, "full")
        taken = fill(wire, acks)
        assert taken > 0
        assert read_all(wire) == list(range(taken))
        # Still full, still calm; other topics are refused too.
        assert produce(wire, "full", batch_of([VALUE]), acks=acks).error_code.name == "kafka_storage_error"
        ping(wire)
        ballast.unlink()
        answer = produce(wire, "full", batch_of([b"%d after" % taken]), acks=acks)
        assert (answer.error_code, answer.base_offset) == (0, taken)
        assert read_all(wire) == list(range(taken + 1))
    node.restart()
    with Wire(node.port) as wire:
        assert read_all(wire) == list(range(taken + 1))


def test_a_node_killed_on_a_full_disk_starts_again_and_has_everything(
    small_disk: Path, make_broker: MakeBroker
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    node = make_broker(data=small_disk.parent)
    with Wire(node.port) as wire:
        create_topic(wire, "full")
        taken = fill(wire, -1)
    node.kill9()
    ballast.unlink()
    node.start()
    with Wire(node.port) as wire:
        assert read_all(wire) == list(range(taken))
        assert produce(wire, "full", batch_of([b"%d after" % taken])).error_code == 0


def test_topics_cannot_be_made_on_a_full_disk_and_can_afterwards(small_disk: Path, make_broker: MakeBroker) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    node = make_broker(data=small_disk.parent)
    with Wire(node.port) as wire:
        create_topic(wire, "full")
        fill(wire, 1)
        use_up(small_disk / "more")
        with pytest.raises(AssertionError, match="kafka_storage_error"):
            create_topic(wire, "refused", 100)
        ping(wire)
        ballast.unlink()
        create_topic(wire, "taken")
        assert produce(wire, "taken", batch_of([b"v"])).error_code == 0
    node.restart()
    with Wire(node.port) as wire:
        assert fetch(wire, "taken", 0).high_watermark == 1
