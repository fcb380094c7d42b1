"""The brokers' own metrics, fetched from their small ports: passed on, and read for what the console shows."""

import asyncio
import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.http.errors import BROKER_NOT_FOUND, ApiError

_SECONDS_MAX = 10.0
_PAGE_BYTES_MAX = 256 * 1024 * 1024
_OF_A_PARTITION = re.compile(r'\{topic="([^"]*)",partition="(\d+)"\} (\d+)')
_SHARE_OF_A_PARTITION = re.compile(r'\{topic="([^"]*)",partition="(\d+)"\} ([\d.e-]+)')
_OF_A_TOPIC = re.compile(r'\{topic="([^"]*)"\} (\S+)')
_PLAIN = re.compile(r"^([a-z_]+) ([0-9.e+-]+)$", re.MULTILINE)


class BrokerFigures(NamedTuple):
    """Plain figures by name; of partitions that were used since the start, sizes, offsets, how much of a compacted log
    is dirty, and how far a pass of compaction is; traffic by topic."""

    plain: dict[str, float]
    sizes: dict[tuple[str, int], int]
    starts: dict[tuple[str, int], int]
    ends: dict[tuple[str, int], int]
    topics: dict[str, dict[str, float]]
    dirty_ratios: dict[tuple[str, int], float]
    compaction_progress: dict[tuple[str, int], float]


class BrokerMetricsPages:
    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = dict(addresses)

    @property
    def brokers(self) -> list[int]:
        return sorted(int(one) for one in self._addresses)

    async def page(self, broker_id: int, path: str = "/metrics") -> bytes:
        """Raises ApiError."""
        address = self._addresses.get(str(broker_id))
        if address is None:
            raise ApiError(
                BROKER_NOT_FOUND,
                f"it is not known where broker {broker_id} serves its metrics",
                "Name it: penstock http --broker-metrics NODE=HOST:PORT.",
            )
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n".encode())
                    answer = await _read_all(reader)
                finally:
                    writer.close()
        except (OSError, TimeoutError) as problem:
            raise ApiError(50301, f"broker {broker_id} does not give its metrics", "Is it running?") from problem
        return answer.partition(b"\r\n\r\n")[2]

    async def totals(self) -> dict[int, BrokerFigures]:
        """Without single partitions: cheap."""
        return await self.figures("/metrics/totals")

    async def figures(self, path: str = "/metrics/logs") -> dict[int, BrokerFigures]:
        """Of those brokers that answer."""
        found = {}
        for broker_id in self.brokers:
            try:
                page = await self.page(broker_id, path)
            except ApiError:
                continue
            found[broker_id] = await asyncio.to_thread(read_figures, page.decode())
        return found


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    size = 0
    while piece := await reader.read(1 << 18):
        pieces.append(piece)
        size += len(piece)
        if size > _PAGE_BYTES_MAX:
            raise OSError("the page is too large")
    return b"".join(pieces)


def read_figures(page: str) -> BrokerFigures:
    """A page has most of its lines in families that are of no interest here: they are skipped as a whole."""
    figures = BrokerFigures({}, {}, {}, {}, {}, {}, {})
    of_partitions = {
        "kafka_log_log_size": figures.sizes,
        "kafka_log_log_logstartoffset": figures.starts,
        "kafka_log_log_logendoffset": figures.ends,
    }
    shares_of_partitions = {
        "penstock_log_dirty_ratio": figures.dirty_ratios,
        "penstock_log_cleaner_progress": figures.compaction_progress,
    }
    for family in page.split("# HELP ")[1:]:
        name = family.partition(" ")[0]
        if name in of_partitions:
            found = of_partitions[name]
            for topic, partition, value in _OF_A_PARTITION.findall(family):
                found[topic, int(partition)] = int(value)
        elif name in shares_of_partitions:
            shares = shares_of_partitions[name]
            for topic, partition, value in _SHARE_OF_A_PARTITION.findall(family):
                shares[topic, int(partition)] = float(value)
        elif name.startswith("kafka_server_brokertopicmetrics_"):
            for topic, value in _OF_A_TOPIC.findall(family):
                figures.topics.setdefault(topic, {})[name] = float(value)
        if not name.startswith(("kafka_log_", "kafka_cluster_")):
            for plain, value in _PLAIN.findall(family):
                figures.plain[plain] = float(value)
    return figures
