"""How much a micro-batch reads, and how it is divided into tasks."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.cluster import LATEST, TopicPartition
from penstock.pipeline.spark.ranges import OffsetRange, slices, within_limit

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", index), 100, 100 + size) for index, size in enumerate(sizes)]


def test_a_limit_is_shared_in_proportion_and_starves_nobody() -> None:
    assert within_limit(10, {A: 0, B: 0}, {A: 30, B: 10}) == {A: 7, B: 2}
    assert within_limit(10, {A: 0, B: 0}, {A: 1_000_000, B: 1}) == {A: 9, B: 1}
    assert within_limit(100, {A: 5, B: 5}, {A: 10, B: 5}) == {A: 10, B: 5}
    assert within_limit(10, {A: LATEST, B: 0}, {A: 50, B: 30}) == {A: 50, B: 10}


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=8))
def test_a_limit_moves_forward_and_not_too_far(limit: int, bounds: list[tuple[int, int]]) -> None:
    start = {TopicPartition("t", index): min(pair) for index, pair in enumerate(bounds)}
    end = {TopicPartition("t", index): max(pair) for index, pair in enumerate(bounds)}
    limited = within_limit(limit, start, end)
    assert all(start[each] <= limited[each] <= end[each] for each in start)
    taken = sum(limited[each] - start[each] for each in start)
    assert taken <= limit + len(start)
    assert taken > 0 or start == end


def test_ranges_stay_whole_without_options_and_empty_ones_are_dropped() -> None:
    assert slices(ranges(10, 0, 5), None, None) == [ranges(10)[0], ranges(0, 0, 5)[2]]
    assert slices(ranges(10, 10), 2, None) == ranges(10, 10)


def test_the_connector_divides_in_the_same_way() -> None:
    """By hand, after the arithmetic of its KafkaOffsetRangeCalculator; sizes only."""
    assert [each.size for each in slices(ranges(1, 1, 2, 5), 4, None)] == [1, 1, 2, 5]
    assert [each.size for each in slices(ranges(5, 5, 5), 6, None)] == [2, 3, 2, 3, 2, 3]
    assert [each.size for each in slices(ranges(1, 5), 3, None)] == [1, 2, 3]
    assert [each.size for each in slices(ranges(5), None, 2)] == [1, 2, 2]
    assert [each.size for each in slices(ranges(5, 20), 10, 4)] == [2, 3, *10 * [2]]


@given(
    st.lists(st.integers(0, 10**5), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1_000, 10**5),
)
def test_slices_cover_everything_once_in_order(sizes: list[int], parts: int | None, records: int | None) -> None:
    whole = ranges(*sizes)
    cut = slices(whole, parts, records)
    assert all(each.size > 0 for each in cut)
    if records is not None:
        assert all(each.size <= records for each in cut)
    for partition in {each.partition for each in whole}:
        mine = [each for each in cut if each.partition == partition]
        (original,) = (each for each in whole if each.partition == partition)
        ends = [original.start, *(each.end for each in mine)]
        assert [each.start for each in mine] == ends[:-1]
        assert ends[-1] == original.end
