"""The node's metrics in Prometheus' text format, under the names that dashboards for Kafka know.

Ten thousand partitions make a page of megabytes, so it is written in turns: after some hundred partitions others are
served before it goes on. Logs that nobody has used since the start are not opened for it: they have no size or offsets.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import Enum
from typing import TYPE_CHECKING

from penstock.base.metrics import bucket_bounds_us, quantile_us
from penstock.base.metrics_text import counters, family, gauges
from penstock.base.ports import DiskError
from penstock.broker.log_keeper import LogKeeper
from penstock.cluster.partition.partition import Partition
from penstock.process_figures import process_figures

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_PARTITIONS_PER_TURN = 250
_QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

_LOG_FAMILIES = (
    ("kafka_log_log_size", "Bytes of the log."),
    ("kafka_log_log_logstartoffset", "The first offset."),
    ("kafka_log_log_logendoffset", "The offset after the last."),
    ("penstock_log_dirty_ratio", "Of a compacted log: the share of it that came since it was last compacted."),
)
_PARTITION_FAMILIES = (
    ("kafka_cluster_partition_replicascount", "Replicas it should have."),
    ("kafka_cluster_partition_underminisr", "1 where fewer are in sync than min.insync.replicas asks for."),
    ("kafka_cluster_partition_atminisr", "1 where just as many are in sync as min.insync.replicas asks for."),
)
_OF_A_TOPIC = (
    ("messagesin", "Records taken."),
    ("bytesin", "Bytes taken."),
    ("bytesout", "Bytes given to consumers."),
    ("totalproducerequests", "Batches taken."),
    ("totalfetchrequests", "Reads of a partition."),
)


class Extent(Enum):
    """How much of single partitions: without, the page is small, and cheap to ask for often."""

    TOTALS = "nothing"
    LOGS = "what their logs hold"
    ALL = "all"


async def metrics_page(broker: "Broker", extent: Extent = Extent.ALL) -> AsyncIterator[str]:
    """The page, piece by piece."""
    yield process_figures()
    yield _of_requests(broker)
    lines = _PartitionLines()
    partitions = list(broker.hosting)
    for first in range(0, len(partitions), _PARTITIONS_PER_TURN):
        piece = partitions[first : first + _PARTITIONS_PER_TURN]
        lines.count(piece)
        if extent is not Extent.TOTALS:
            lines.add_logs(piece, broker.log_keeper)
        if extent is Extent.ALL:
            lines.add_replicas(piece)
        await asyncio.sleep(0)
    for (name, meaning), of_family in zip((*_LOG_FAMILIES, *_PARTITION_FAMILIES), lines.families, strict=True):
        yield family(name, "gauge", meaning, of_family)
    yield _of_topics(lines.topics)
    yield _of_failures(broker)
    yield _of_the_cleaner(broker.log_keeper)
    yield gauges(
        ("kafka_server_replicamanager_partitioncount", "Partitions on this node.", len(partitions)),
        ("kafka_server_replicamanager_underreplicatedpartitions", "Partitions out of sync.", lines.under_replicated),
        ("kafka_server_replicamanager_underminisrpartitioncount", "Below min.insync.replicas.", lines.under_min),
        ("kafka_server_replicamanager_atminisrpartitioncount", "At min.insync.replicas.", lines.at_min),
        ("penstock_log_bytes", "Bytes of all logs that were used since the start.", lines.log_bytes),
        *_of_the_cluster(broker),
    )
    yield counters(
        ("kafka_server_replicamanager_isrshrinks_total", "Replicas that fell out of sync.", broker.hosting.isr_shrinks),
        ("kafka_server_replicamanager_isrexpands_total", "Replicas that came back.", broker.hosting.isr_expands),
        (
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "Leaders that this node, as the controller, took from outside the ISR.",
            broker.controller.unclean_elections,
        ),
    )


class _PartitionLines:
    """Six lines for each partition, gathered by family; and what they add up to."""

    def __init__(self) -> None:
        self.families: tuple[list[str], ...] = tuple([] for _ in (*_LOG_FAMILIES, *_PARTITION_FAMILIES))
        self.topics: dict[str, list[int]] = {}
        self.under_replicated = self.under_min = self.at_min = self.log_bytes = 0

    def count(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            replicas, in_sync = len(partition.replicas), len(partition.isr)
            wanted = min(partition.config.min_insync_replicas, replicas)
            self.under_replicated += in_sync < replicas
            self.under_min += in_sync < wanted
            self.at_min += in_sync == wanted
            opened = partition.loaded_log
            if opened is not None:
                self.log_bytes += opened.size
            if partition.messages_in or partition.fetch_requests or partition.topic not in self.topics:
                totals = self.topics.setdefault(partition.topic, [0] * len(_OF_A_TOPIC))
                totals[0] += partition.messages_in
                totals[1] += partition.bytes_in
                totals[2] += partition.bytes_out
                totals[3] += partition.produce_requests
                totals[4] += partition.fetch_requests

    def add_logs(self, partitions: list[Partition], keeper: LogKeeper) -> None:
        sizes, starts, ends, dirty_ratios = self.families[: len(_LOG_FAMILIES)]
        for partition in partitions:
            opened = partition.loaded_log
            if opened is None:
                continue
            labels = f'{{topic="{partition.topic}",partition="{partition.index}"}}'
            sizes.append(f"kafka_log_log_size{labels} {opened.size}")
            starts.append(f"kafka_log_log_logstartoffset{labels} {opened.log_start_offset}")
            ends.append(f"kafka_log_log_logendoffset{labels} {opened.log_end_offset}")
            if partition.config.is_compacted and opened.is_loaded:
                with contextlib.suppress(DiskError):
                    dirtiness = keeper.dirtiness(partition)
                    ratio = 0.0 if dirtiness is None else dirtiness.ratio
                    dirty_ratios.append(f"penstock_log_dirty_ratio{labels} {ratio:.4g}")

    def add_replicas(self, partitions: list[Partition]) -> None:
        replica_counts, under_mins, at_mins = self.families[len(_LOG_FAMILIES) :]
        for partition in partitions:
            labels = f'{{topic="{partition.topic}",partition="{partition.index}"}}'
            replicas, in_sync = len(partition.replicas), len(partition.isr)
            wanted = min(partition.config.min_insync_replicas, replicas)
            replica_counts.append(f"kafka_cluster_partition_replicascount{labels} {replicas}")
            under_mins.append(f"kafka_cluster_partition_underminisr{labels} {int(in_sync < wanted)}")
            at_mins.append(f"kafka_cluster_partition_atminisr{labels} {int(in_sync == wanted)}")


def _of_topics(topics: dict[str, list[int]]) -> str:
    pieces = []
    for position, (short, meaning) in enumerate(_OF_A_TOPIC):
        name = f"kafka_server_brokertopicmetrics_{short}_total"
        lines = [f'{name}{{topic="{topic}"}} {totals[position]}' for topic, totals in topics.items()]
        pieces.append(family(name, "counter", meaning, lines))
    return "".join(pieces)


def _of_requests(broker: "Broker") -> str:
    name = "kafka_network_requestmetrics_totaltimems"
    quantiles, counts, sums = [], [], []
    for times in broker.metrics.times.values():
        total = sum(times.counts)
        if not total:
            continue
        recent = times.recent()
        for quantile in _QUANTILES:
            value = quantile_us(recent, quantile) / 1000
            quantiles.append(f'{name}{{request="{times.name}",quantile="{quantile}"}} {value:g}')
        counts.append(f'{name}_count{{request="{times.name}"}} {total}')
        sums.append(f'{name}_sum{{request="{times.name}"}} {times.sum_us / 1000:g}')
    requests = [line.replace(f"{name}_count", "kafka_network_requestmetrics_requests_total") for line in counts]
    return (
        family(name, "summary", "Milliseconds from request to answer, of the last minutes.", quantiles + counts + sums)
        + family("kafka_network_requestmetrics_requests_total", "counter", "Requests.", requests)
        + _of_the_loop(broker)
    )


def _of_failures(broker: "Broker") -> str:
    """By topic; those of topics that are not here have no label, since anybody can make up names."""
    pieces = []
    for short, meaning, failures in (
        ("failedproducerequests", "Batches that were refused.", broker.metrics.failed_produce_requests),
        ("failedfetchrequests", "Reads of a partition that were refused.", broker.metrics.failed_fetch_requests),
    ):
        name = f"kafka_server_brokertopicmetrics_{short}_total"
        lines = [
            f'{name}{{topic="{topic}"}} {count}' if topic else f"{name} {count}" for topic, count in failures.items()
        ]
        pieces.append(family(name, "counter", meaning, lines))
    return "".join(pieces)


def _of_the_cleaner(keeper: LogKeeper) -> str:
    """kafka_log_logcleaner_* where Kafka has the same."""
    totals = keeper.totals
    current = keeper.current_pass
    name = "penstock_log_cleaner_progress"
    progress = f"{name} 1"
    if current is not None:
        partition = current.partition
        progress = f'{name}{{topic="{partition.topic}",partition="{partition.index}"}} {current.progress:.4g}'
    return (
        family(name, "gauge", "The share of the pass of compaction that is done; 1 while none runs.", [progress])
        + counters(
            ("penstock_log_cleaner_passes_total", "Passes of compaction that were finished.", totals.passes),
            ("penstock_log_cleaner_bytes_read_total", "Read by compaction.", totals.bytes_read),
            ("penstock_log_cleaner_bytes_written_total", "Written by compaction.", totals.bytes_written),
            ("penstock_log_cleaner_bytes_freed_total", "Freed by compaction.", totals.bytes_freed),
            ("penstock_log_segments_deleted_total", "Segments that retention removed.", totals.segments_deleted),
        )
        + gauges(
            (
                "kafka_log_logcleanermanager_uncleanable_partitions_count",
                "Partitions that compaction has given up on; the log says why.",
                len(totals.uncleanable),
            ),
            (
                "kafka_log_logcleaner_max_buffer_utilization_percent",
                "How full the map of keys was in the last pass.",
                round(totals.map_utilization * 100, 1),
            ),
        )
    )


def _of_the_loop(broker: "Broker") -> str:
    lag = broker.metrics.loop_lag
    name = "penstock_event_loop_lag_seconds"
    lines = []
    seen = 0
    for bucket, count in enumerate(lag.counts):
        seen += count
        # One bound for each power of two is enough here.
        if bucket % 4 == 3 and 9 <= bucket // 4 <= 22:
            lines.append(f'{name}_bucket{{le="{bucket_bounds_us(bucket)[1] / 1e6:g}"}} {seen}')
    total = sum(lag.counts)
    lines += [f'{name}_bucket{{le="+Inf"}} {total}', f"{name}_sum {lag.sum_us / 1e6:g}", f"{name}_count {total}"]
    return family(name, "histogram", "How late the event loop was.", lines) + gauges(
        (
            "penstock_event_loop_lag_max_seconds",
            "The latest it was since the last scrape.",
            broker.metrics.take_loop_lag_max_us() / 1e6,
        )
    )


def _of_the_cluster(broker: "Broker") -> tuple[tuple[str, str, float], ...]:
    image, quorum = broker.image, broker.quorum
    states = [state for topic in image.topics.values() for state in topic.partitions.values()]
    offline = sum(1 for state in states if state.leader < 0)
    leaders = sum(1 for state in states if state.leader == broker.node_id)
    total_bytes, free_bytes = broker.disk_space()
    return (
        ("kafka_server_replicamanager_leadercount", "Partitions that this node leads.", leaders),
        (
            "kafka_controller_kafkacontroller_activecontrollercount",
            "1 on the active controller.",
            int(broker.controller.is_active),
        ),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.", offline),
        ("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.", len(image.topics)),
        ("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.", len(states)),
        ("kafka_controller_kafkacontroller_activebrokercount", "Brokers of the cluster.", len(image.brokers)),
        ("kafka_server_raftmetrics_high_watermark", "The committed end of the metadata.", broker.metadata_offset + 1),
        ("kafka_server_raftmetrics_log_end_offset", "The end of the metadata here.", quorum.next_offset),
        ("kafka_server_raftmetrics_current_leader", "The node that leads the metadata; -1: nobody.", quorum.leader_id),
        ("kafka_server_raftmetrics_current_epoch", "The epoch of the metadata's leader.", quorum.epoch),
        ("penstock_disk_total_bytes", "Of the volume that holds the data.", total_bytes),
        ("penstock_disk_free_bytes", "Of the volume that holds the data.", free_bytes),
    )
