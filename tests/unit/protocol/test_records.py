"""The records section of a batch: what coordinators write against what everybody reads and writes."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.records import Record, encode_pairs, encode_records

pairs = st.tuples(st.binary(max_size=30), st.none() | st.binary(max_size=30))


def by_records(written: Sequence[tuple[bytes, bytes | None]]) -> bytearray:
    return encode_records([Record(offset, 0, *pair) for offset, pair in enumerate(written)], 0, 0)


@given(st.lists(pairs, max_size=200))
def test_pairs_are_written_as_records_of_one_time_are(written: list[tuple[bytes, bytes | None]]) -> None:
    assert encode_pairs(written) == by_records(written)


def test_so_are_pairs_of_any_size_and_any_number_of_them() -> None:
    sizes = [0, 1, 50, 51, 52, 55, 62, 63, 64, 127, 128, 4000, 4070, 4083, 4084, 4085, 4095, 4096, 8191, 8192, 70_000]
    written = [(bytes(key), bytes(value)) for key in sizes for value in sizes]
    assert encode_pairs(written) == by_records(written)
    many: list[tuple[bytes, bytes | None]] = [(b"k", b"v"), (b"", None)] * 5000
    assert encode_pairs(many) == by_records(many)
