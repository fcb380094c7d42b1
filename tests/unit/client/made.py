"""Batches to decode, as Hypothesis draws them."""

from hypothesis import strategies as st

from penstock.protocol.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, encode_batch, patch_times, read_header
from penstock.protocol.records import Record, build_batch

_maybe_bytes = st.none() | st.binary(max_size=200)
_headers = st.lists(st.tuples(st.text(max_size=5), _maybe_bytes), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Of one partition, in order, with gaps as compaction leaves them."""
    made = []
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 6))):
        records = []
        for _ in range(draw(st.integers(1, 12))):
            offset += draw(st.sampled_from((1, 1, 1, 2, 300)))
            timestamp = draw(st.integers(-1, 2**42))
            records.append(Record(offset, timestamp, draw(_maybe_bytes), draw(_maybe_bytes), draw(_headers)))
        batch = build_batch(records, codec=draw(st.integers(0, 4)))
        if draw(st.booleans()):
            header = read_header(batch)
            patch_times(batch, header.attributes | LOG_APPEND_TIME, draw(st.integers(0, 2**42)))
        made.append(bytes(batch))
    return made


def data_batch(offset: int, producer_id: int, value: bytes = b"v") -> bytes:
    record = Record(offset, 0, None, value)
    return bytes(build_batch([record], attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0))


def marker(offset: int, producer_id: int, *, commits: bool) -> bytes:
    key = b"\0\0\0\1" if commits else b"\0\0\0\0"
    record = Record(offset, 0, key, b"\0\0\0\0\0\0")
    flags = TRANSACTIONAL | CONTROL
    return bytes(build_batch([record], attributes=flags, producer_id=producer_id, producer_epoch=0))


def emptied_batch(base_offset: int, last_offset_delta: int) -> bytes:
    """What compaction leaves of a producer's last batch."""
    return bytes(
        encode_batch(b"", record_count=0, base_offset=base_offset, last_offset_delta=last_offset_delta, producer_id=7)
    )
