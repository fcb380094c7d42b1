"""Whether a compacted log still keeps its promises: for simulations and tests that know what was written to it.

The latest committed value of each key is there, and a tombstone until it may go; offsets never move; what a tombstone
deleted does not come back; the marker of a transaction is there as long as one of its records is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.base.ports import Bytes
from penstock.protocol.batch import BatchHeader, crc_is_valid, read_header
from penstock.protocol.records import iterate_records


@dataclass(frozen=True, slots=True)
class Written:
    key: bytes | None
    value: bytes | None
    is_aborted: bool
    # Of the transaction that it belongs to.
    marker_offset: int | None


class CompactionChecker:
    """To be told of all records that were acknowledged, in the order of their offsets."""

    def __init__(self) -> None:
        self._written: dict[int, Written] = {}
        self._last_offsets: dict[bytes, int] = {}

    def wrote(
        self,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        *,
        is_aborted: bool = False,
        marker_offset: int | None = None,
    ) -> None:
        self._written[offset] = Written(key, value, is_aborted, marker_offset)
        if key is not None and not is_aborted:
            self._last_offsets[key] = offset

    def check(self, batches: Bytes, *, log_start_offset: int = 0, tombstones_may_be_gone: bool) -> None:
        """`batches` is the whole log, as a consumer that reads uncommitted records too would get it. Raises
        AssertionError, with a sentence that says what is wrong."""
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        markers: set[int] = set()
        next_offset = 0
        for position, header in _headers(batches):
            assert header.base_offset >= next_offset, f"offset {header.base_offset} comes after {next_offset - 1}"
            next_offset = header.last_offset + 1
            for record in iterate_records(memoryview(batches)[position : position + header.size], header):
                if header.is_control:
                    markers.add(record.offset)
                else:
                    found[record.offset] = record.key, record.value
        for offset, pair in found.items():
            self._check_record(offset, pair, markers)
        for key, offset in self._last_offsets.items():
            if offset >= log_start_offset:
                self._check_key(key, offset, found, tombstones_may_be_gone)

    def _check_record(self, offset: int, pair: tuple[bytes | None, bytes | None], markers: set[int]) -> None:
        written = self._written.get(offset)
        assert written is not None, f"nothing was written at {offset}, but there is {pair}"
        assert pair == (written.key, written.value), f"{pair} is at {offset}, not {(written.key, written.value)}"
        if written.marker_offset is not None:
            assert written.marker_offset in markers, f"the marker of the record at {offset} went before it"

    def _check_key(
        self,
        key: bytes,
        offset: int,
        found: dict[int, tuple[bytes | None, bytes | None]],
        tombstones_may_be_gone: bool,
    ) -> None:
        if offset in found:
            return
        assert self._written[offset].value is None, f"the last value of {key!r}, at {offset}, is gone"
        assert tombstones_may_be_gone, f"the tombstone of {key!r}, at {offset}, went too early"
        older = [at for at, pair in found.items() if pair[0] == key and not self._written[at].is_aborted]
        assert not older, f"{key!r} was deleted at {offset}, but what it was at {older} is there"


def _headers(batches: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while position < len(batches):
        header = read_header(batches, position)
        assert crc_is_valid(batches, header, position), f"the batch at {header.base_offset} is damaged"
        yield position, header
        position += header.size
