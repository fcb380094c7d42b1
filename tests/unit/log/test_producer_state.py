"""Idempotent and transactional producers (KIP-98, KIP-360) against a simple model, and their snapshots."""

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.log.end_marker import EndMarker, encode_end_marker, read_end_marker
from penstock.log.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot, state_from_snapshot
from penstock.log.producer_state import Duplicate, Producer, ProducerState
from penstock.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, read_header
from penstock.protocol.records import Headers, Record, build_batch
from tests.unit.log.made import NOW_MS, make_batch, make_marker

SEQUENCE_MAX = 2**31 - 1


def header_of(
    producer_id: int, epoch: int, sequence: int, count: int = 1, *, transactional: bool = False
) -> BatchHeader:
    return read_header(
        make_batch([NOW_MS] * count, producer=(producer_id, epoch, sequence), transactional=transactional)
    )


def test_the_first_batch_of_an_unknown_producer_may_have_any_sequence() -> None:
    assert ProducerState().check(header_of(1, 0, 77)) is None


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    state = ProducerState()
    state.update(header_of(1, 5, 0), 0, None, NOW_MS)
    assert state.check(header_of(1, 4, 1)) is ErrorCode.invalid_producer_epoch
    assert state.check(header_of(1, 6, 1)) is ErrorCode.out_of_order_sequence_number
    assert state.check(header_of(1, 6, 0)) is None
    state.update(header_of(1, 6, 0), 1, None, NOW_MS)
    assert state.check(header_of(1, 6, 0)) == Duplicate(1, 1, NOW_MS)


def test_the_sequence_goes_round_after_the_largest_int() -> None:
    state = ProducerState()
    state.update(header_of(1, 0, SEQUENCE_MAX - 1, 2), 0, None, NOW_MS)
    assert state.check(header_of(1, 0, 0)) is None
    state.update(header_of(1, 0, SEQUENCE_MAX, 1), 10, None, NOW_MS)
    state.update(header_of(1, 0, SEQUENCE_MAX - 1, 4), 20, None, NOW_MS)
    assert state.check(header_of(1, 0, 2)) is None
    assert state.check(header_of(1, 0, SEQUENCE_MAX - 1, 4)) == Duplicate(20, 23, NOW_MS)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 3)), max_size=60))
def test_a_batch_is_accepted_once_and_answered_again_within_five(attempts: list[tuple[int, int, int]]) -> None:
    state = ProducerState()
    appended: dict[int, list[tuple[int, int, int]]] = {}
    offset = 0
    for producer_id, back, count in attempts:
        history = appended.setdefault(producer_id, [])
        next_sequence = history[-1][0] + history[-1][1] if history else 0
        if 0 < back <= len(history):
            sequence, count, base_offset = history[-back]
            answer = state.check(header_of(producer_id, 0, sequence, count))
            if back <= 5:
                assert answer == Duplicate(base_offset, base_offset + count - 1, NOW_MS)
            else:
                assert answer is ErrorCode.out_of_order_sequence_number
        elif back > 6 and history:
            assert state.check(header_of(producer_id, 0, next_sequence + back, count)) in (
                ErrorCode.out_of_order_sequence_number,
            )
        else:
            header = header_of(producer_id, 0, next_sequence, count)
            assert state.check(header) is None
            state.update(header, offset, None, NOW_MS)
            history.append((next_sequence, count, offset))
            offset += count


def test_a_plain_batch_within_a_transaction_is_refused() -> None:
    state = ProducerState()
    state.update(header_of(1, 0, 0, transactional=True), 0, None, NOW_MS)
    assert state.check(header_of(1, 0, 1)) is ErrorCode.invalid_txn_state
    assert state.check(header_of(1, 0, 1, transactional=True)) is None


def test_the_last_stable_offset_waits_for_the_oldest_transaction_and_its_replication() -> None:
    state = ProducerState()
    state.update(header_of(1, 0, 0, transactional=True), 10, None, NOW_MS)
    state.update(header_of(2, 0, 0, transactional=True), 20, None, NOW_MS)
    assert state.last_stable_offset(30) == 10
    assert state.last_stable_offset(5) == 5
    marker = EndMarker(is_abort=True, coordinator_epoch=4)
    aborted = state.aborted_by(read_header(make_marker(1, 0, abort=True)), 30, marker)
    assert aborted == (1, 10, 30, 20)
    state.update(read_header(make_marker(1, 0, abort=True)), 30, marker, NOW_MS)
    # The marker is at 30: not before the high watermark has passed it is the transaction over for readers.
    assert state.last_stable_offset(30) == 10
    assert state.last_stable_offset(31) == 20
    state.update(
        read_header(make_marker(2, 0, abort=False)), 31, EndMarker(is_abort=False, coordinator_epoch=4), NOW_MS
    )
    assert state.last_stable_offset(32) == 32


def test_the_marker_of_an_empty_transaction_aborts_nothing() -> None:
    state = ProducerState()
    header = read_header(make_marker(1, 0, abort=True))
    assert state.aborted_by(header, 5, EndMarker(is_abort=True, coordinator_epoch=0)) is None
    state.update(header, 5, EndMarker(is_abort=True, coordinator_epoch=0), NOW_MS)
    assert state.last_stable_offset(9) == 9


def test_a_marker_with_a_newer_epoch_restarts_the_sequence() -> None:
    """KIP-890: every commit and abort bumps the epoch."""
    state = ProducerState()
    state.update(header_of(1, 0, 0, transactional=True), 0, None, NOW_MS)
    state.update(read_header(make_marker(1, 1, abort=False)), 1, EndMarker(is_abort=False, coordinator_epoch=0), NOW_MS)
    assert state.check(header_of(1, 0, 1, transactional=True)) is ErrorCode.invalid_producer_epoch
    assert state.check(header_of(1, 1, 1, transactional=True)) is ErrorCode.out_of_order_sequence_number
    assert state.check(header_of(1, 1, 0, transactional=True)) is None


@pytest.mark.parametrize("abort", [True, False])
def test_end_markers_are_read_from_control_batches(abort: bool) -> None:
    batch = make_marker(1, 0, abort=abort, coordinator=9)
    assert read_end_marker(batch, read_header(batch)) == EndMarker(abort, 9)


@pytest.mark.parametrize("abort", [True, False])
def test_our_own_end_markers_are_the_bytes_of_a_record_of_key_and_value(abort: bool) -> None:
    written = encode_end_marker(EndMarker(abort, -1), 2**40, 7, NOW_MS)
    key, value = bytes([0, 0, 0, not abort]), b"\0\0\xff\xff\xff\xff"
    attributes = TRANSACTIONAL | CONTROL
    assert written == build_batch(
        [Record(0, NOW_MS, key, value)], attributes=attributes, producer_id=2**40, producer_epoch=7
    )
    assert read_end_marker(written, read_header(written)) == EndMarker(abort, -1)


@pytest.mark.parametrize(
    ("key", "value", "headers", "expected"),
    [
        (b"\0\0\0\1", b"\0\0\0\0\0\5", (("h", b""),), EndMarker(False, 5)),
        (b"\0\1\0\0", b"\0\1\0\0\0\5", (), EndMarker(True, 5)),
        # A later version may be longer.
        (b"\0\1\0\0", b"\0\1\0\0\0\5more", (), EndMarker(True, 5)),
        (b"\0\0\0\2", b"\0\0\0\0\0\5", (), None),
        # As long as a marker, and something else.
        (b"\0\0\0\1\0", b"\0\0\0\0\5", (), None),
        (b"\0\0\0", b"\0\0\0\0\0\0\5", (), None),
    ],
)
def test_control_records_of_other_shapes_are_read_for_what_they_are(
    key: bytes, value: bytes, headers: Headers, expected: EndMarker | None
) -> None:
    batch = build_batch([Record(0, NOW_MS, key, value, headers)], attributes=TRANSACTIONAL | CONTROL, producer_id=1)
    assert read_end_marker(batch, read_header(batch)) == expected


def test_silent_producers_expire_unless_their_transaction_is_open() -> None:
    state = ProducerState()
    state.update(header_of(1, 0, 0), 0, None, NOW_MS)
    state.update(header_of(2, 0, 0, transactional=True), 1, None, NOW_MS)
    state.expire(NOW_MS + 86_399_999)
    assert set(state.producers) == {1, 2}
    state.expire(NOW_MS + 86_400_000)
    assert set(state.producers) == {2}


producers = st.builds(
    Producer,
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(NOW_MS - 1000, NOW_MS),
    st.integers(-1, 2**40),
)


@given(st.dictionaries(st.integers(0, 2**63 - 1), producers, max_size=6), st.data())
def test_snapshots_keep_all_that_is_known_of_each_producer(entries: dict[int, Producer], data: st.DataObject) -> None:
    state = ProducerState()
    state.load(entries)
    offset = 0
    for producer_id, producer in entries.items():
        sequence = data.draw(st.integers(0, SEQUENCE_MAX))
        for count in data.draw(st.lists(st.integers(1, 5), max_size=7)):
            is_open = producer.transaction_first_offset >= 0
            header = header_of(producer_id, producer.epoch, sequence, count, transactional=is_open)
            state.update(header, offset, None, data.draw(st.integers(NOW_MS - 1000, NOW_MS)))
            sequence = (sequence + count) & SEQUENCE_MAX
            offset += count
    encoded = encode_snapshot(state)
    loaded = state_from_snapshot(encoded, NOW_MS)
    assert encode_snapshot(loaded) == encoded
    assert {key: known_of(entry) for key, entry in loaded.producers.items()} == {
        key: known_of(entry) for key, entry in state.producers.items()
    }
    assert loaded.last_stable_offset(2**62) == state.last_stable_offset(2**62)


def known_of(producer: Producer) -> tuple[object, ...]:
    return tuple(getattr(producer, name) for name in Producer.__slots__)


def test_a_snapshot_without_our_trailer_is_kafkas() -> None:
    state = ProducerState()
    for sequence in range(3):
        state.update(header_of(1, 0, sequence), sequence, None, NOW_MS + 5)
    data = bytearray(encode_snapshot(state)[: 10 + 46])
    data[2:6] = crc32c(memoryview(data)[6:]).to_bytes(4)
    (producer,) = decode_snapshot(bytes(data)).values()
    assert producer.batches == [(2, 2, 2, 0, NOW_MS)]
    assert producer.last_seen_ms == producer.last_timestamp == NOW_MS


def test_producers_expire_by_when_they_wrote_not_by_the_time_of_what_they_wrote() -> None:
    state = ProducerState()
    state.update(header_of(1, 0, 0), 0, None, NOW_MS + 86_400_000)
    state.expire(NOW_MS + 86_400_001)
    assert set(state.producers) == {1}
    assert set(state_from_snapshot(encode_snapshot(state), NOW_MS + 86_400_001).producers) == {1}


def test_damaged_snapshots_are_told_from_good_ones() -> None:
    state = ProducerState()
    state.update(header_of(1, 0, 0), 0, None, NOW_MS)
    good = encode_snapshot(state)
    assert set(decode_snapshot(good)) == {1}
    for length in range(len(good)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(good[:length])
    for position in range(len(good)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(good[:position] + bytes((good[position] ^ 4,)) + good[position + 1 :])


def test_producers_that_expired_while_the_node_was_down_are_left_out() -> None:
    state = ProducerState()
    state.update(header_of(1, 0, 0), 0, None, NOW_MS)
    assert state_from_snapshot(encode_snapshot(state), NOW_MS + 86_400_000).producers == {}


@pytest.mark.parametrize("is_abort", [False, True])
def test_numbers_of_a_transaction_that_has_ended_are_not_those_of_a_duplicate(is_abort: bool) -> None:
    """librdkafka counts on from before a batch that it has not heard of when it aborts; the next one may be as long."""
    state = ProducerState()
    batch = header_of(1, 0, 7, 3, transactional=True)
    state.update(batch, 10, None, NOW_MS)
    assert state.check(batch) == Duplicate(10, 12, NOW_MS)
    marker = EndMarker(is_abort, 0)
    state.update(read_header(make_marker(1, 0, abort=is_abort)), 13, marker, NOW_MS)
    assert state.check(batch) is ErrorCode.out_of_order_sequence_number
    following = header_of(1, 0, 10, 1, transactional=True)
    state.update(following, 14, None, NOW_MS)
    assert state.check(batch) is ErrorCode.out_of_order_sequence_number
    assert state.check(following) == Duplicate(14, 14, NOW_MS)
