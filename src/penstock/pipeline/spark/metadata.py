"""The cluster itself as tables: `spark.read.format("penstock.metadata").option("table", "lag")`."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from penstock.client.cluster import ClientConfig, Cluster

Rows = Iterator[tuple[Any, ...]]

SCHEMAS: Mapping[str, str] = {
    "topics": "topic STRING, partitions INT, replication_factor INT, is_internal BOOLEAN",
    "partitions": "topic STRING, partition INT, leader INT, replicas ARRAY<INT>, in_sync_replicas ARRAY<INT>, "
    "first_offset LONG, end_offset LONG",
    "groups": "group_id STRING, protocol_type STRING, state STRING, type STRING, coordinator INT",
    "lag": "group_id STRING, topic STRING, partition INT, committed_offset LONG, end_offset LONG, lag LONG",
}


class MetadataDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock.metadata"

    def _table(self) -> str:
        from penstock.pipeline.spark.offsets import BadOption

        table = str(self.options.get("table", "")).lower()
        if table not in SCHEMAS:
            raise BadOption(f"option table is one of {', '.join(SCHEMAS)}; got '{table}'")
        return table

    def schema(self) -> str:
        return SCHEMAS[self._table()]

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.pipeline.spark.options import client_config, client_properties

        given = {name.lower(): value for name, value in self.options.items()}
        return MetadataReader(self._table(), client_config(client_properties(given)))


class MetadataReader(DataSourceReader):
    def __init__(self, table: str, client: "ClientConfig") -> None:
        self._table = table
        self._client = client

    def read(self, partition: InputPartition) -> Rows:
        from penstock.client.cluster import Cluster

        with Cluster(self._client) as cluster:
            yield from _ROWS[self._table](cluster)


def _topics(cluster: "Cluster") -> Rows:
    for name, topic in sorted(cluster.topics().items()):
        replicas = max((len(each) for each in topic.replicas.values()), default=0)
        yield name, len(topic.leaders), replicas, topic.is_internal


def _partitions(cluster: "Cluster") -> Rows:
    from penstock.client.cluster import EARLIEST, LATEST, TopicPartition

    topics = cluster.topics()
    everything = [TopicPartition(name, index) for name in sorted(topics) for index in topics[name].leaders]
    # One without a leader has no offsets to tell.
    led = [each for each in everything if topics[each.topic].leaders[each.partition] >= 0]
    first = cluster.list_offsets(dict.fromkeys(led, EARLIEST))
    end = cluster.list_offsets(dict.fromkeys(led, LATEST))
    for each in everything:
        topic = topics[each.topic]
        replicas, in_sync = topic.replicas[each.partition], topic.in_sync[each.partition]
        leader = topic.leaders[each.partition]
        yield each.topic, each.partition, leader, list(replicas), list(in_sync), first.get(each), end.get(each)


def _groups(cluster: "Cluster") -> Rows:
    from penstock.client.groups import list_groups

    return iter([tuple(group) for group in list_groups(cluster)])


def _lag(cluster: "Cluster") -> Rows:
    from penstock.client.cluster import LATEST, TopicPartition
    from penstock.client.groups import committed_offsets, list_groups

    for group in list_groups(cluster):
        committed = {TopicPartition(*key): at for key, at in committed_offsets(cluster, group.group_id).items()}
        topics = cluster.topics({each.topic for each in committed})
        there = [each for each in committed if each.topic in topics and each.partition in topics[each.topic].leaders]
        end: dict[TopicPartition, int] = cluster.list_offsets(dict.fromkeys(there, LATEST))
        for each in sorted(there):
            lag = max(0, end[each] - committed[each])
            yield group.group_id, each.topic, each.partition, committed[each], end[each], lag


_ROWS: Mapping[str, Callable[["Cluster"], Rows]] = {
    "topics": _topics,
    "partitions": _partitions,
    "groups": _groups,
    "lag": _lag,
}
