"""`penstock.arrow.read`: from a topic to a pyarrow.Table.

table = penstock.arrow.read("orders", bootstrap_servers="127.0.0.1:9092", start="earliest", columns=["key", "value"])
table.to_pandas()
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from penstock.client.arrow_columns import TYPES, schema_of
from penstock.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition, config_from
from penstock.client.errors import ClientError
from penstock.client.fetching import FetchLimits
from penstock.client.reading import read_slice

COLUMNS = tuple(name for name in TYPES if name != "headers")

Position = int | str | datetime | Mapping[int, int]
"""Where to start or end, in every partition: an offset, "earliest" or "latest", a time, or offsets by partition. Times
are the first offset at or after them."""


def read(
    topic: str,
    *,
    bootstrap_servers: str,
    start: Position = "earliest",
    end: Position = "latest",
    columns: Sequence[str] = COLUMNS,
    partitions: Sequence[int] | None = None,
    read_committed: bool = True,
    properties: Mapping[str, str] | None = None,
) -> pa.Table:
    """The records from `start` up to and without `end`, partition after partition, in the order of their offsets.

    `columns` are any of key, value, topic, partition, offset, timestamp, timestampType, headers. `properties` are those
    of a Kafka consumer (security.protocol, sasl.*, ssl.*, fetch.max.bytes, ...). Raises ClientError of
    penstock.client.errors, and its kin; their messages are for people.
    """
    unknown = [name for name in columns if name not in TYPES]
    if unknown:
        raise ClientError(f"there is no column '{unknown[0]}'; there are {', '.join(TYPES)}")
    schema = schema_of(columns)
    given = {"bootstrap.servers": bootstrap_servers, **(properties or {})}
    limits = FetchLimits(read_committed=read_committed)
    if "fetch.max.bytes" in given:
        limits = limits._replace(bytes_max=int(given["fetch.max.bytes"]))
    batches: list[pa.RecordBatch] = []
    with Cluster(config_from(given)) as cluster:
        chosen = _chosen(cluster, topic, partitions)
        first = _resolved(cluster, chosen, start, read_committed)
        after_last = _resolved(cluster, chosen, end, read_committed)
        for partition in chosen:
            batches += read_slice(cluster, partition, first[partition], after_last[partition], schema, limits)
    return pa.Table.from_batches(batches, schema)


def _chosen(cluster: Cluster, topic: str, partitions: Sequence[int] | None) -> list[TopicPartition]:
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise ClientError(f"there is no topic '{topic}' at {cluster.config.bootstrap_servers}")
    for index in partitions or ():
        if index not in found.leaders:
            raise ClientError(f"topic '{topic}' has {len(found.leaders)} partitions; there is no partition {index}")
    return [TopicPartition(topic, index) for index in (found.leaders if partitions is None else partitions)]


def _resolved(
    cluster: Cluster, partitions: Sequence[TopicPartition], position: Position, read_committed: bool
) -> dict[TopicPartition, int]:
    """Offsets that are there: what lies before the first record or behind the last is moved to it."""
    lowest = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST), read_committed=read_committed)
    highest = cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    wanted: dict[TopicPartition, int]
    if position == "earliest":
        return lowest
    if position == "latest":
        return highest
    if isinstance(position, datetime):
        if position.tzinfo is None:
            raise ClientError("a time needs its zone: datetime(..., tzinfo=UTC), for example")
        at_ms = int(position.timestamp() * 1000)
        wanted = cluster.list_offsets(dict.fromkeys(partitions, at_ms), read_committed=read_committed)
        wanted = {each: highest[each] if offset < 0 else offset for each, offset in wanted.items()}
    elif isinstance(position, int):
        wanted = dict.fromkeys(partitions, position)
    elif isinstance(position, Mapping):
        missing = [each.partition for each in partitions if each.partition not in position]
        if missing:
            raise ClientError(f"no offset is given for partition {missing[0]}")
        wanted = {each: position[each.partition] for each in partitions}
    else:
        raise ClientError(f"'{position}' is no place in a log: give an offset, a time, 'earliest' or 'latest'")
    return {each: min(max(offset, lowest[each]), highest[each]) for each, offset in wanted.items()}
