"""penstock topic describe: what a topic is made of, how much is in it, and what was set on it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failures import Failed
from penstock.cli.options import (
    DEFAULT_BROKERS,
    DEFAULT_URL,
    NONE_GIVEN,
    Brokers,
    ClientProperties,
    HttpUrl,
    OutputOption,
)
from penstock.cli.printing import Output, human_bytes, note, print_json, print_pairs, print_rows, say

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster
    from penstock.cli.settings_requests import DescribedSetting

DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION = 35, 4
_PARTITION_COLUMNS = ["partition", "leader", "replicas", "isr", "start", "end", "records", "size"]
_COMPACTION_COLUMNS = ["dirty", "compacting"]
_HTTP_SECONDS_MAX = 3.0


@dataclass(frozen=True)
class DescribedTopic:
    name: str
    topic_id: str
    partitions: list[dict[str, Any]]
    settings: "list[DescribedSetting]"

    @property
    def is_compacted(self) -> bool:
        return any(one.name == "cleanup.policy" and "compact" in (one.value or "") for one in self.settings)

    def summary(self) -> dict[str, Any]:
        sizes = [row["size"] for row in self.partitions if row["size"] is not None]
        return {
            "name": self.name,
            "id": self.topic_id,
            "partitions": len(self.partitions),
            "replicas": max((len(row["replicas"]) for row in self.partitions), default=0),
            "records": sum(row["records"] or 0 for row in self.partitions),
            "size": sum(sizes) if sizes else None,
        }


def describe(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Topic names.", show_default=False)],
    all_settings: Annotated[bool, typer.Option("-c", "--configs", help="All settings, defaults included.")] = False,
    url: HttpUrl = DEFAULT_URL,
    brokers: Brokers = DEFAULT_BROKERS,
    extra: ClientProperties = NONE_GIVEN,
    output: OutputOption = Output.TEXT,
) -> None:
    """Describe topics: partitions with their leaders, offsets and sizes, and the settings.

    How much of a compacted topic is yet to be compacted, and how far that is, the protocol does not tell: the HTTP
    server does.
    """
    from penstock.cli.connection import connect

    cluster = connect(brokers, extra)
    topics = [_described(cluster, name) for name in names]
    for topic in topics:
        if topic.is_compacted:
            _add_compaction(cluster, topic, url)
    if output is Output.JSON:
        print_json([_as_json(topic, all_settings) for topic in topics])
        return
    for index, topic in enumerate(topics):
        if index:
            say()
        _print(topic, all_settings)


def _described(cluster: "Cluster", name: str) -> DescribedTopic:
    from confluent_kafka import TopicCollection, TopicPartition

    from penstock.cli.connection import end_offsets, first_offsets
    from penstock.cli.settings_requests import describe as describe_settings
    from penstock.cli.settings_requests import topic_resource

    cluster.partitions_of(name)
    topic = cluster.answer(cluster.admin().describe_topics(TopicCollection([name]))[name])
    led = [partition for partition in topic.partitions if partition.leader is not None]
    targets = [TopicPartition(name, partition.id) for partition in led]
    starts = dict(zip(targets, first_offsets(cluster, targets), strict=True))
    ends = dict(zip(targets, end_offsets(cluster, targets), strict=True))
    sizes = _sizes(cluster, name, [partition.id for partition in topic.partitions])
    rows = []
    for partition in sorted(topic.partitions, key=lambda each: each.id):
        target = TopicPartition(name, partition.id)
        start, end = starts.get(target), ends.get(target)
        leader = partition.leader.id if partition.leader is not None else None
        rows.append(
            {
                "partition": partition.id,
                "leader": leader,
                "replicas": [node.id for node in partition.replicas],
                "isr": [node.id for node in partition.isr],
                "start": start,
                "end": end,
                "records": None if start is None or end is None else end - start,
                "size": sizes.get((leader, partition.id)),
            }
        )
    settings = describe_settings(cluster, topic_resource(name))
    # librdkafka writes ids in plain base64; Kafka, and so the files, in its URL-safe form.
    topic_id = str(topic.topic_id).replace("+", "-").replace("/", "_")
    return DescribedTopic(name, topic_id, rows, settings)


def _sizes(cluster: "Cluster", name: str, partitions: list[int]) -> dict[tuple[int | None, int], int]:
    """Bytes on disk by (node, partition). A node that cannot say is left out: the rest is worth showing."""
    from penstock.cli.wire import request
    from penstock.protocol.messages import Struct

    sizes: dict[tuple[int | None, int], int] = {}
    body = Struct(topics=[Struct(topic=name, partitions=partitions)])
    for node_id, address in cluster.nodes().items():
        try:
            answer = request(cluster, address, DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION, body)
        except Failed as failure:
            note(f"no sizes from node {node_id}: {failure}")
            continue
        for directory in answer.results:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if topic.name == name and not partition.is_future_key:
                        sizes[node_id, partition.partition_index] = partition.partition_size
    return sizes


def _add_compaction(cluster: "Cluster", topic: DescribedTopic, url: str) -> None:
    """`dirty`: the share of the log that came since it was last compacted; `compacting`: how much is done of a pass
    that runs. Left out where there is no server, or one of another cluster."""
    url = url.rstrip("/")
    try:
        if _got(f"{url}/v3/clusters")["data"][0]["cluster_id"] != cluster.admin().list_topics(topic.name).cluster_id:
            raise OSError("it serves another cluster")
        found = {one["partition"]: one for one in _got(f"{url}/api/topics/{topic.name}")["partitions"]}
    except (OSError, ValueError, LookupError) as problem:
        note(f"how dirty {topic.name} is, is not known: {url}: {problem}. Name the HTTP server with --url.")
        return
    for row in topic.partitions:
        seen = found.get(row["partition"], {})
        row |= {"dirty": seen.get("dirty_ratio"), "compacting": seen.get("compaction_progress")}


def _got(url: str) -> Any:
    import json
    import urllib.request

    with urllib.request.urlopen(url, timeout=_HTTP_SECONDS_MAX) as answer:
        return json.load(answer)


def _as_json(topic: DescribedTopic, all_settings: bool) -> dict[str, Any]:
    settings = [
        {"name": setting.name, "value": setting.value, "source": setting.source}
        for setting in topic.settings
        if all_settings or setting.is_changed
    ]
    return topic.summary() | {"partition_details": topic.partitions, "settings": settings}


def _print(topic: DescribedTopic, all_settings: bool) -> None:
    print_pairs(_with_human_size(topic.summary()))
    say()
    rows = [_with_human_shares(_with_human_size(row)) for row in topic.partitions]
    columns = _PARTITION_COLUMNS + [one for one in _COMPACTION_COLUMNS if rows and one in rows[0]]
    print_rows(rows, columns, Output.TEXT)
    chosen = [setting for setting in topic.settings if all_settings or setting.is_changed]
    if chosen:
        say()
        rows = [{"setting": each.name, "value": each.value, "source": each.source} for each in chosen]
        print_rows(rows, ["setting", "value", "source"], Output.TEXT)


def _with_human_size(row: dict[str, Any]) -> dict[str, Any]:
    return row if row["size"] is None else row | {"size": human_bytes(row["size"])}


def _with_human_shares(row: dict[str, Any]) -> dict[str, Any]:
    shares = {name: row[name] for name in _COMPACTION_COLUMNS if name in row}
    return row | {name: "-" if share is None else f"{share:.0%}" for name, share in shares.items()}
