"""The leader epoch cache (KIP-101, KIP-279) against a list that is searched in full."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.epochs import EpochCache

histories = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 10)), max_size=12)


def cache_of(steps: list[tuple[int, int]]) -> tuple[EpochCache, list[tuple[int, int]]]:
    cache, entries = EpochCache(), []
    epoch = offset = 0
    for epoch_step, offset_step in steps:
        epoch, offset = epoch + epoch_step, offset + offset_step
        cache.assign(epoch, offset)
        cache.assign(epoch, offset + 1)
        entries.append((epoch, offset))
    cache.has_changed = False
    return cache, entries


@given(histories, st.integers(-1, 40))
def test_an_epoch_ends_where_the_next_one_begins(steps: list[tuple[int, int]], wanted: int) -> None:
    cache, entries = cache_of(steps)
    above = [start for epoch, start in entries if epoch > wanted]
    below = [epoch for epoch, _ in entries if epoch <= wanted]
    answer = cache.end_offset_for(wanted, 1000)
    if wanted == -1 or not entries:
        assert answer == (-1, -1)
    elif wanted == entries[-1][0]:
        assert answer == (wanted, 1000)
    elif not above:
        assert answer == (-1, -1)
    else:
        assert answer == (below[-1] if below else wanted, above[0])


@given(histories, st.integers(0, 130))
def test_every_offset_belongs_to_the_last_epoch_that_began_before_it(steps: list[tuple[int, int]], at: int) -> None:
    cache, entries = cache_of(steps)
    assert cache.epoch_for_offset(at) == max((epoch for epoch, start in entries if start <= at), default=-1)


@given(histories, st.integers(0, 130))
def test_truncation_keeps_the_epochs_of_what_is_left(steps: list[tuple[int, int]], at: int) -> None:
    cache, entries = cache_of(steps)
    cache.truncate_from_end(at)
    assert cache.has_changed == any(start >= at for _, start in entries)
    assert cache.entries() == [entry for entry in entries if entry[1] < at]
    cache, entries = cache_of(steps)
    cache.truncate_from_start(at)
    first = [(max(epoch for epoch, start in entries if start <= at), at)] if any(e[1] <= at for e in entries) else []
    assert cache.entries() == first + [entry for entry in entries if entry[1] > at]
    cache.has_changed = False
    cache.truncate_from_start(at)
    assert not cache.has_changed


@given(histories)
def test_the_file_says_the_same(steps: list[tuple[int, int]]) -> None:
    cache, entries = cache_of(steps)
    assert EpochCache.parse(cache.format(), "x").entries() == entries


def test_an_epoch_that_contradicts_later_ones_replaces_them() -> None:
    cache = EpochCache()
    for epoch, start in ((1, 10), (2, 20), (3, 30)):
        cache.assign(epoch, start)
    cache.assign(4, 20)
    assert cache.entries() == [(1, 10), (4, 20)]
    cache.assign(3, 40)
    assert cache.entries() == [(1, 10), (3, 40)]
