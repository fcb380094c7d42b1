"""The last hour for the console's charts: rates of the brokers every 5 s, lags of the groups every 15 s, in memory."""

import asyncio
import time
from array import array
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.http.errors import ApiError

if TYPE_CHECKING:
    from penstock.http.administration import Administration, TopicPartition
    from penstock.http.broker_metrics import BrokerFigures, BrokerMetricsPages

_SECONDS_KEPT = 3600
_RATE_SECONDS = 5
_LAG_SECONDS = 15
# Asking for the offsets of more groups than this every few seconds would be felt.
_GROUPS_MAX = 100
# Of so many partitions, over all groups, there is a line each: at most 10 MB. Of more, only the groups' sums.
_PARTITIONS_MAX = 5_000
_UNKNOWN = -1
_COUNTERS = {"messages_in": "messagesin", "bytes_in": "bytesin", "bytes_out": "bytesout"}


class _Totals(NamedTuple):
    time_s: float
    counts: dict[str, float]


class _GroupLags:
    """Of one group: its partitions in the order in which they came up, and their lags at each time in that order."""

    def __init__(self) -> None:
        self._places: dict[TopicPartition, int] = {}
        self._points: deque[tuple[float, int, array[int]]] = deque(maxlen=_SECONDS_KEPT // _LAG_SECONDS)

    def add(self, time_s: float, lags: "dict[TopicPartition, int]", *, is_each_kept: bool) -> None:
        each: array[int] = array("q")
        if is_each_kept:
            for key in lags:
                self._places.setdefault(key, len(self._places))
            each = array("q", [lags.get(key, _UNKNOWN) for key in self._places])
        self._points.append((time_s, sum(lags.values()), each))

    def sums(self) -> tuple[list[float], list[int]]:
        return [time_s for time_s, _, _ in self._points], [lag for _, lag, _ in self._points]

    def of(self, partition: "TopicPartition") -> tuple[list[float], list[int | None]]:
        """None where it had none."""
        place = self._places.get(partition)
        if place is None:
            return [], []
        found = [each[place] if place < len(each) else _UNKNOWN for _, _, each in self._points]
        return self.sums()[0], [None if lag == _UNKNOWN else lag for lag in found]


class Charts:
    def __init__(self, administration: "Administration", broker_metrics: "BrokerMetricsPages") -> None:
        self._administration = administration
        self._broker_metrics = broker_metrics
        self._totals: deque[_Totals] = deque(maxlen=_SECONDS_KEPT // _RATE_SECONDS + 1)
        self._lags: dict[str, _GroupLags] = {}
        self._tasks = [asyncio.create_task(self._watch_rates()), asyncio.create_task(self._watch_lags())]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _watch_rates(self) -> None:
        while self._broker_metrics.brokers:
            totals = await self._broker_metrics.totals()
            if totals:
                self._totals.append(_Totals(time.time(), _sums(totals)))
            await asyncio.sleep(_RATE_SECONDS)

    async def _watch_lags(self) -> None:
        while True:
            await asyncio.sleep(_LAG_SECONDS)
            try:
                lags = await self._administration.in_thread(self._group_lags)
            except ApiError:
                # The cluster does not answer; the chart has a gap.
                continue
            now_s = time.time()
            for group in self._lags.keys() - lags.keys():
                del self._lags[group]
            is_each_kept = sum(map(len, lags.values())) <= _PARTITIONS_MAX
            for group, of_group in lags.items():
                self._lags.setdefault(group, _GroupLags()).add(now_s, of_group, is_each_kept=is_each_kept)

    def _group_lags(self) -> "dict[str, dict[TopicPartition, int]]":
        """Blocks."""
        groups = self._administration.groups_now()
        if len(groups) > _GROUPS_MAX:
            return {}
        committed = self._administration.offsets_of_groups_now(one.group_id for one in groups)
        partitions = {key for offsets in committed.values() for key in offsets}
        ends = self._administration.offsets_now(partitions, -1)
        return {
            group: {key: max(0, ends[key] - offset) for key, offset in offsets.items() if key in ends}
            for group, offsets in committed.items()
        }

    def lags(self, group: str, partition: "TopicPartition | None") -> dict[str, Any]:
        """Of the whole group, or of what it has to do in one partition."""
        found = self._lags.get(group, _GroupLags())
        times, line = found.sums() if partition is None else found.of(partition)
        return {"times": times, "series": {"lag": line}}

    def rates(self) -> dict[str, Any]:
        """As uPlot wants it: the times, and a list for each line."""
        totals = list(self._totals)
        times: list[float] = []
        lines: dict[str, list[float]] = {name: [] for name in _COUNTERS}
        for before, after in pairwise(totals):
            seconds = after.time_s - before.time_s
            times.append(after.time_s)
            for name, line in lines.items():
                # A node that starts anew counts from nothing.
                line.append(max(0.0, after.counts[name] - before.counts[name]) / seconds)
        return {"times": times, "series": lines}


def _sums(totals: "dict[int, BrokerFigures]") -> dict[str, float]:
    return {
        name: sum(
            topic.get(f"kafka_server_brokertopicmetrics_{short}_total", 0)
            for one in totals.values()
            for topic in one.topics.values()
        )
        for name, short in _COUNTERS.items()
    }
