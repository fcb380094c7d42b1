"""The lines of the last hour: of groups, and of their partitions."""

from penstock.http import charts
from penstock.http.charts import _GroupLags


def test_a_group_has_a_line_for_all_and_one_for_each_partition() -> None:
    lags = _GroupLags()
    lags.add(1.0, {("t", 0): 5}, is_each_kept=True)
    lags.add(2.0, {("t", 0): 4, ("t", 1): 7}, is_each_kept=True)
    lags.add(3.0, {("t", 1): 6}, is_each_kept=True)
    assert lags.sums() == ([1.0, 2.0, 3.0], [5, 11, 6])
    assert lags.of(("t", 0)) == ([1.0, 2.0, 3.0], [5, 4, None])
    assert lags.of(("t", 1)) == ([1.0, 2.0, 3.0], [None, 7, 6])
    assert lags.of(("u", 0)) == ([], [])


def test_where_there_are_too_many_partitions_only_the_sum_is_kept() -> None:
    lags = _GroupLags()
    lags.add(1.0, {("t", 0): 5}, is_each_kept=True)
    lags.add(2.0, {("t", 0): 4, ("t", 1): 7}, is_each_kept=False)
    assert lags.sums() == ([1.0, 2.0], [5, 11])
    assert lags.of(("t", 0)) == ([1.0, 2.0], [5, None])
    assert lags.of(("t", 1)) == ([], [])


def test_an_hour_is_kept_and_no_more() -> None:
    lags = _GroupLags()
    for number in range(1000):
        lags.add(float(number), {("t", 0): number}, is_each_kept=True)
    times, line = lags.of(("t", 0))
    assert len(times) == len(line) == charts._SECONDS_KEPT // charts._LAG_SECONDS
    assert line[-1] == 999
