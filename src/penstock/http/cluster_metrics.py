"""The cluster's offsets and lags in Prometheus' format, under kafka_exporter's names, and this process' own figures.

They are gathered in a thread, since ten thousand partitions take a while. What was gathered a moment ago serves all who
ask at that moment.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.base.metrics import quantile_us
from penstock.base.metrics_text import counters, escaped, family, gauges
from penstock.http.errors import ApiError
from penstock.process_figures import process_figures

if TYPE_CHECKING:
    from penstock.http.administration import Administration, ClusterView
    from penstock.http.broker_metrics import BrokerFigures, BrokerMetricsPages
    from penstock.http.services import Services

_FRESH_SECONDS = 1.0
# Metadata of ten thousand partitions costs a broker as much as all the rest: it may be so old, unless the brokers tell
# of partitions that it does not have.
_VIEW_SECONDS = 10.0
_QUANTILES = (0.5, 0.95, 0.99)

Sample = tuple[str, float]


def _family(name: str, kind: str, meaning: str, samples: Iterable[Sample]) -> str:
    return family(name, kind, meaning, [f"{name}{labels} {value}" for labels, value in samples])


class ClusterMetrics:
    def __init__(self, administration: "Administration", broker_metrics: "BrokerMetricsPages") -> None:
        self._administration = administration
        self._broker_metrics = broker_metrics
        self._page = ""
        self._page_s = -_FRESH_SECONDS
        self._view: ClusterView | None = None
        self._view_page = ""
        self._view_s = 0.0
        self._gathering: asyncio.Task[str] | None = None

    async def page(self) -> str:
        """Raises ApiError where the cluster does not answer."""
        if time.monotonic() - self._page_s < _FRESH_SECONDS:
            return self._page
        if self._gathering is None:
            self._gathering = asyncio.create_task(self._gather())
        return await asyncio.shield(self._gathering)

    async def _gather(self) -> str:
        try:
            figures = await self._broker_metrics.figures()
            view = self._view
            if (
                view is None
                or time.monotonic() - self._view_s > _VIEW_SECONDS
                or await asyncio.to_thread(is_behind, view, figures)
            ):
                self._view = view = await self._administration.cluster()
                self._view_page = await asyncio.to_thread(_of_view, view)
                self._view_s = time.monotonic()
            of_offsets = await self._administration.in_thread(lambda: gather(self._administration, view, figures))
            self._page = self._view_page + of_offsets
            self._page_s = time.monotonic()
            return self._page
        finally:
            self._gathering = None


def is_behind(view: "ClusterView", figures: "Mapping[int, BrokerFigures]") -> bool:
    known = {(topic, one.partition) for topic, of_topic in view.topics.items() for one in of_topic}
    return any(not known.issuperset(of_broker.ends) for of_broker in figures.values())


def gather(administration: "Administration", view: "ClusterView", figures: "Mapping[int, BrokerFigures]") -> str:
    """Offsets and groups. Blocks. Raises KafkaException, ClientError."""
    starts, ends = known_offsets(view, figures)
    # The brokers' own metrics have the offsets of all logs in use; only others cost questions, and opening a log.
    unknown = [
        (topic, one.partition)
        for topic, of_topic in view.topics.items()
        for one in of_topic
        if (topic, one.partition) not in ends
    ]
    if unknown:
        ends |= administration.offsets_now(unknown, -1)
        starts |= administration.offsets_now(unknown, -2)
    return _of_offsets(view, starts, ends) + _of_groups(administration, ends)


def known_offsets(
    view: "ClusterView", figures: "Mapping[int, BrokerFigures]"
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """First offsets and ends, each as the partition's leader has it."""
    if len(view.brokers) == 1 and len(figures) == 1:
        (only,) = figures.values()
        return dict(only.starts), dict(only.ends)
    starts, ends = {}, {}
    for topic, of_topic in view.topics.items():
        for one in of_topic:
            key = (topic, one.partition)
            leader = figures.get(one.leader)
            if leader is not None and key in leader.ends:
                starts[key] = leader.starts[key]
                ends[key] = leader.ends[key]
    return starts, ends


def _of_view(view: "ClusterView") -> str:
    """What the metadata alone tells: most of the page, written once for all that show the same view."""
    return _of_brokers(view) + _of_topics(view)


def _of_brokers(view: "ClusterView") -> str:
    info = [(f'{{id="{one.broker_id}",address="{escaped(one.host)}:{one.port}"}}', 1) for one in view.brokers.values()]
    return _family("kafka_brokers", "gauge", "Brokers of the cluster.", [("", len(view.brokers))]) + _family(
        "kafka_broker_info", "gauge", "Where each broker is.", info
    )


def _of_topics(view: "ClusterView") -> str:
    counts = [(f'{{topic="{topic}"}}', len(of_topic)) for topic, of_topic in view.topics.items()]
    rows = [
        (f'{{topic="{topic}",partition="{one.partition}"}}', one)
        for topic, of_topic in view.topics.items()
        for one in of_topic
    ]
    leaders = [(labels, one.leader) for labels, one in rows]
    preferred = [(labels, int(bool(one.replicas) and one.leader == one.replicas[0])) for labels, one in rows]
    replicas = [(labels, len(one.replicas)) for labels, one in rows]
    in_sync = [(labels, len(one.isr)) for labels, one in rows]
    under = [(labels, int(len(one.isr) < len(one.replicas))) for labels, one in rows]
    prefix = "kafka_topic_partition"
    return "".join(
        [
            _family("kafka_topic_partitions", "gauge", "Partitions of the topic.", counts),
            _family(f"{prefix}_leader", "gauge", "The broker that leads it.", leaders),
            _family(f"{prefix}_leader_is_preferred", "gauge", "1 where the first replica leads.", preferred),
            _family(f"{prefix}_replicas", "gauge", "Replicas it should have.", replicas),
            _family(f"{prefix}_in_sync_replica", "gauge", "Replicas that are in sync.", in_sync),
            _family(f"{prefix}_under_replicated_partition", "gauge", "1 where replicas are not in sync.", under),
        ]
    )


def _of_offsets(view: "ClusterView", starts: dict[tuple[str, int], int], ends: dict[tuple[str, int], int]) -> str:
    """Hot: two lines for each partition, with every page."""
    current, oldest = [], []
    current_name, oldest_name = "kafka_topic_partition_current_offset", "kafka_topic_partition_oldest_offset"
    for topic, of_topic in view.topics.items():
        for one in of_topic:
            key = (topic, one.partition)
            if key in ends:
                current.append(f'{current_name}{{topic="{topic}",partition="{one.partition}"}} {ends[key]}')
            if key in starts:
                oldest.append(f'{oldest_name}{{topic="{topic}",partition="{one.partition}"}} {starts[key]}')
    return family(current_name, "gauge", "The offset after the last.", current) + family(
        oldest_name, "gauge", "The first offset.", oldest
    )


def _of_groups(administration: "Administration", ends: dict[tuple[str, int], int]) -> str:
    names = [one.group_id for one in administration.groups_now()]
    described = administration.describe_groups_now(names) if names else {}
    committed = administration.offsets_of_groups_now(names)
    members: list[Sample] = []
    current: list[Sample] = []
    sums: list[Sample] = []
    lags: list[Sample] = []
    lag_sums: list[Sample] = []
    for name in names:
        group = f'consumergroup="{escaped(name)}"'
        if name in described:
            members.append((f"{{{group}}}", len(described[name].members)))
        offsets = committed.get(name, {})
        totals: dict[str, list[int]] = {}
        for (topic, partition), offset in sorted(offsets.items()):
            labels = f'{{{group},topic="{topic}",partition="{partition}"}}'
            current.append((labels, offset))
            total = totals.setdefault(topic, [0, 0])
            total[0] += offset
            end = ends.get((topic, partition))
            if end is not None:
                lags.append((labels, max(0, end - offset)))
                total[1] += max(0, end - offset)
        for topic, (offset_sum, lag_sum) in totals.items():
            labels = f'{{{group},topic="{topic}"}}'
            sums.append((labels, offset_sum))
            lag_sums.append((labels, lag_sum))
    prefix = "kafka_consumergroup"
    return "".join(
        [
            _family(f"{prefix}_members", "gauge", "Members of the group.", members),
            _family(f"{prefix}_current_offset", "gauge", "Where the group goes on.", current),
            _family(f"{prefix}_current_offset_sum", "gauge", "The same over a topic.", sums),
            _family(f"{prefix}_lag", "gauge", "Records that the group has not dealt with.", lags),
            _family(f"{prefix}_lag_sum", "gauge", "The same over a topic.", lag_sums),
        ]
    )


def process_page(services: "Services") -> str:
    """What this process counted of itself."""
    metrics = services.metrics
    requests = [
        (f'{{method="{method}",status="{status}"}}', count) for (method, status), count in metrics.requests.items()
    ]
    times: list[Sample] = []
    for method, histogram in metrics.times.items():
        times += [
            (f'{{method="{method}",quantile="{one}"}}', quantile_us(histogram.counts, one) / 1e6) for one in _QUANTILES
        ]
    return (
        process_figures()
        + _family("penstock_http_requests_total", "counter", "Requests by method and status.", requests)
        + _family("penstock_http_request_seconds", "summary", "Seconds to the end of the answer.", times)
        + gauges(
            ("penstock_http_consumers", "HTTP consumers.", services.consumers.count),
            ("penstock_http_streams", "Open event streams.", services.tails),
        )
        + counters(
            ("penstock_http_records_produced_total", "Records taken over HTTP.", services.producing.records_total),
            ("penstock_http_records_failed_total", "Of these, not acknowledged.", services.producing.failures_total),
        )
    )


async def whole_page(services: "Services", cluster: ClusterMetrics) -> str:
    """A cluster that does not answer is a figure, too: kafka_up, and no others of the cluster."""
    try:
        of_cluster = await cluster.page()
        is_up = 1
    except ApiError:
        of_cluster, is_up = "", 0
    return (
        process_page(services)
        + _family("kafka_up", "gauge", "Whether the cluster answers.", [("", is_up)])
        + of_cluster
    )
