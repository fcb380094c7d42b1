"""The node's metrics in Prometheus' text format, under the names that dashboards for Kafka know.

Ten thousand partitions make a page of megabytes, so it is written in turns: after some hundred partitions others are
served before it goes on. Logs that nobody has used since the start are not opened for it: they have no size or offsets.
"""

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from penstock.base.metrics import bucket_bounds_us, quantile_us
from penstock.cluster.partition.partition import Partition

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_PARTITIONS_PER_TURN = 250
_QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_STARTED_S = time.time()

_LOG_FAMILIES = (
    ("kafka_log_log_size", "Bytes of the log."),
    ("kafka_log_log_logstartoffset", "The first offset."),
    ("kafka_log_log_logendoffset", "The offset after the last."),
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
)


async def metrics_page(broker: "Broker", *, with_partitions: bool = True) -> AsyncIterator[str]:
    """The page, piece by piece; without the lines of single partitions it is small, and cheap to ask for often."""
    yield _of_the_process()
    yield _of_requests(broker)
    lines = _PartitionLines()
    partitions = list(broker.hosting)
    for first in range(0, len(partitions), _PARTITIONS_PER_TURN):
        piece = partitions[first : first + _PARTITIONS_PER_TURN]
        lines.count(piece)
        if with_partitions:
            lines.add(piece)
        await asyncio.sleep(0)
    for (name, meaning), family in zip((*_LOG_FAMILIES, *_PARTITION_FAMILIES), lines.families, strict=True):
        yield _family(name, "gauge", meaning, family)
    yield _of_topics(lines.topics)
    yield _gauges(
        ("kafka_server_replicamanager_partitioncount", "Partitions on this node.", len(partitions)),
        ("kafka_server_replicamanager_underreplicatedpartitions", "Partitions out of sync.", lines.under_replicated),
        ("kafka_server_replicamanager_underminisrpartitioncount", "Below min.insync.replicas.", lines.under_min),
        ("kafka_server_replicamanager_atminisrpartitioncount", "At min.insync.replicas.", lines.at_min),
        ("penstock_log_bytes", "Bytes of all logs that were used since the start.", lines.log_bytes),
        *_of_the_cluster(broker),
    )
    yield _counters(
        ("kafka_server_replicamanager_isrshrinks_total", "Replicas that fell out of sync.", broker.hosting.isr_shrinks),
        ("kafka_server_replicamanager_isrexpands_total", "Replicas that came back.", broker.hosting.isr_expands),
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
            if partition.messages_in or partition.bytes_out or partition.topic not in self.topics:
                totals = self.topics.setdefault(partition.topic, [0] * len(_OF_A_TOPIC))
                totals[0] += partition.messages_in
                totals[1] += partition.bytes_in
                totals[2] += partition.bytes_out
                totals[3] += partition.produce_requests

    def add(self, partitions: list[Partition]) -> None:
        sizes, starts, ends, replica_counts, under_mins, at_mins = self.families
        for partition in partitions:
            labels = f'{{topic="{partition.topic}",partition="{partition.index}"}}'
            opened = partition.loaded_log
            if opened is not None:
                sizes.append(f"kafka_log_log_size{labels} {opened.size}")
                starts.append(f"kafka_log_log_logstartoffset{labels} {opened.log_start_offset}")
                ends.append(f"kafka_log_log_logendoffset{labels} {opened.log_end_offset}")
            replicas, in_sync = len(partition.replicas), len(partition.isr)
            wanted = min(partition.config.min_insync_replicas, replicas)
            replica_counts.append(f"kafka_cluster_partition_replicascount{labels} {replicas}")
            under_mins.append(f"kafka_cluster_partition_underminisr{labels} {int(in_sync < wanted)}")
            at_mins.append(f"kafka_cluster_partition_atminisr{labels} {int(in_sync == wanted)}")


def _family(name: str, kind: str, meaning: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n{body}\n" if body else ""


def _gauges(*metrics: tuple[str, str, float]) -> str:
    return "".join(_family(name, "gauge", meaning, [f"{name} {value}"]) for name, meaning, value in metrics)


def _counters(*metrics: tuple[str, str, float]) -> str:
    return "".join(_family(name, "counter", meaning, [f"{name} {value}"]) for name, meaning, value in metrics)


def _of_topics(topics: dict[str, list[int]]) -> str:
    pieces = []
    for position, (short, meaning) in enumerate(_OF_A_TOPIC):
        name = f"kafka_server_brokertopicmetrics_{short}_total"
        lines = [f'{name}{{topic="{topic}"}} {totals[position]}' for topic, totals in topics.items()]
        pieces.append(_family(name, "counter", meaning, lines))
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
        _family(name, "summary", "Milliseconds from request to answer, of the last minutes.", quantiles + counts + sums)
        + _family("kafka_network_requestmetrics_requests_total", "counter", "Requests.", requests)
        + _counters(
            (
                "kafka_server_brokertopicmetrics_failedproducerequests_total",
                "Batches that were refused.",
                broker.metrics.failed_produce_requests,
            )
        )
        + _of_the_loop(broker)
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
    return _family(name, "histogram", "How late the event loop was.", lines) + _gauges(
        (
            "penstock_event_loop_lag_max_seconds",
            "The latest it was since the last scrape.",
            broker.metrics.take_loop_lag_max_us() / 1e6,
        )
    )


def _of_the_cluster(broker: "Broker") -> tuple[tuple[str, str, float], ...]:
    image = broker.image
    states = [state for topic in image.topics.values() for state in topic.partitions.values()]
    offline = sum(1 for state in states if state.leader < 0)
    leaders = sum(1 for state in states if state.leader == broker.node_id)
    total_bytes, free_bytes = broker.disk_space()
    return (
        ("kafka_server_replicamanager_leadercount", "Partitions that this node leads.", leaders),
        ("kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller.", 1),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.", offline),
        ("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.", len(image.topics)),
        ("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.", len(states)),
        ("kafka_controller_kafkacontroller_activebrokercount", "Brokers of the cluster.", len(image.brokers)),
        ("kafka_server_raftmetrics_high_watermark", "The committed end of the metadata.", broker.metadata_offset + 1),
        ("kafka_server_raftmetrics_log_end_offset", "The end of the metadata.", broker.metadata_offset + 1),
        ("penstock_disk_total_bytes", "Of the volume that holds the data.", total_bytes),
        ("penstock_disk_free_bytes", "Of the volume that holds the data.", free_bytes),
    )


def _of_the_process() -> str:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return _counters(
        ("process_cpu_seconds_total", "User and system time.", round(usage.ru_utime + usage.ru_stime, 3))
    ) + _gauges(
        ("process_resident_memory_bytes", "Memory in use.", resident_bytes()),
        ("process_open_fds", "Open files and sockets.", open_descriptors()),
        ("process_start_time_seconds", "When it started.", round(_STARTED_S, 3)),
    )


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        # No /proc: the largest it ever was, in the unit of this system.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return -1
