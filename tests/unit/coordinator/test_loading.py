"""What is left of a coordinator's log says the same as all of it."""

from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.coordinator.effects import NO_PRODUCER_ID
from penstock.coordinator.group.offset_store import OffsetStore
from penstock.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from penstock.coordinator.loading import LatestRecords

PRODUCERS = (7, 8)
KEYS = (b"0", b"1", b"2")
# A record (key, value, producer id), or the end of a transaction (producer id, whether it is committed).
Step = tuple[bytes, bytes | None, int] | tuple[int, bool]
RECORDS = st.tuples(
    st.sampled_from(KEYS),
    st.none() | st.integers(0, 255).map(lambda number: bytes([number])),
    st.sampled_from((NO_PRODUCER_ID, *PRODUCERS)),
)
ENDS = st.tuples(st.sampled_from(PRODUCERS), st.booleans())


def latest(steps: Iterable[Step]) -> LatestRecords:
    found = LatestRecords()
    for step in steps:
        if len(step) == 2:
            found.end_transaction(*step)
        else:
            found.note(*step)
    return found


def replay(store: OffsetStore, steps: Iterable[Step]) -> OffsetStore:
    for step in steps:
        if len(step) == 2:
            store.end_transaction(*step)
            continue
        key, value, producer_id = step
        offset = None if value is None else OffsetCommitValue(offset=value[0], metadata="", commit_timestamp=0)
        store.replay(OffsetCommitKey(group="g", topic="t", partition=int(key)), offset, producer_id)
    return store


def told(store: OffsetStore) -> list[object]:
    return [(store.get("g", "t", int(key)), store.is_unstable("g", "t", int(key))) for key in KEYS]


@given(st.lists(RECORDS | ENDS, max_size=30), st.lists(ENDS, max_size=4))
# What a tombstone takes away does not come back; of two open transactions the one that wrote later has the last word.
@example([(b"0", b"1", 7), (b"0", None, NO_PRODUCER_ID), (b"0", b"2", NO_PRODUCER_ID)], [])
@example([(b"0", b"1", 7), (b"1", b"1", 8), (b"1", b"2", 7)], [(7, True), (8, True)])
def test_offsets_are_the_same_whenever_transactions_end(before: list[Step], after: list[Step]) -> None:
    whole, rest = replay(OffsetStore(), before), replay(OffsetStore(), latest(before))
    assert told(rest) == told(whole)
    assert told(replay(rest, after)) == told(replay(whole, after))


@given(st.lists(RECORDS | ENDS, max_size=60))
def test_of_each_key_one_record_is_left_and_one_of_every_open_transaction(steps: list[Step]) -> None:
    left = [(key, producer_id) for key, _, producer_id in latest(steps)]
    assert len(left) == len(set(left))


def test_records_are_left_in_the_order_of_the_last_of_each_key() -> None:
    steps: list[Step] = [(b"a", b"1", -1), (b"b", b"1", -1), (b"c", b"1", -1), (b"a", None, -1), (b"b", b"2", -1)]
    assert list(latest(steps)) == [(b"c", b"1", -1), (b"a", None, -1), (b"b", b"2", -1)]
