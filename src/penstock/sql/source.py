"""The rows of the three tables, asked of a cluster.

What disappears while it is being asked is left out: a table shows what was there, not what went wrong.
"""

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

REQUEST_TIMEOUT_S = 30.0

Row = tuple[Any, ...]
K = TypeVar("K")
T = TypeVar("T")


def topics(admin: AdminClient) -> list[Row]:
    """(id, name, partition_count, replication_factor, retention_ms)"""
    # All topics are asked for, because asking for one by name may create it.
    names = sorted(admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
    if not names:
        return []
    described = _results(admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S))
    resources = {ConfigResource(ResourceType.TOPIC, name): name for name in names}
    settings = {
        resources[resource]: found
        for resource, found in _results(
            admin.describe_configs(list(resources), request_timeout=REQUEST_TIMEOUT_S)
        ).items()
    }
    rows = []
    for name in names:
        topic = described.get(name)
        if topic is not None:
            retention = settings.get(name, {}).get("retention.ms")
            replicas = max((len(partition.replicas) for partition in topic.partitions), default=0)
            retention_ms = None if retention is None else int(retention.value)
            rows.append((_kafka_style(str(topic.topic_id)), name, len(topic.partitions), replicas, retention_ms))
    return rows


def groups(admin: AdminClient) -> list[Row]:
    """(id, group_id, protocol)

    Kafka gives groups no id beside their name. This one is made of the cluster's and the group's names, so it is the
    same each time and differs between clusters.
    """
    cluster_id = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result().cluster_id or ""
    rows = []
    for group_id, kind in _listed(admin).items():
        unique = uuid.uuid5(uuid.NAMESPACE_URL, f"kafka://{cluster_id}/group/{group_id}")
        rows.append((urlsafe_b64encode(unique.bytes).decode().rstrip("="), group_id, kind))
    return rows


def assignments(admin: AdminClient) -> list[Row]:
    """(group_id, topic, partition, consumer_id, offset)

    A row for each partition that a group reads or has committed an offset for: without the one, `consumer_id` is NULL,
    without the other, `offset`.
    """
    names = list(_listed(admin))
    if not names:
        return []
    asked = {}
    for name in names:
        question = [ConsumerGroupTopicPartitions(name)]
        asked.update(admin.list_consumer_group_offsets(question, request_timeout=REQUEST_TIMEOUT_S))
    described = _results(admin.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S))
    offsets = _results(asked)
    rows: list[Row] = []
    for name in names:
        readers = {
            (partition.topic, partition.partition): member.member_id
            for member in (described[name].members if name in described else ())
            for partition in member.assignment.topic_partitions
        }
        committed = {
            (partition.topic, partition.partition): partition.offset
            for partition in (offsets[name].topic_partitions if name in offsets else ())
            if partition.offset >= 0
        }
        rows += [
            (name, *key, readers.get(key), committed.get(key)) for key in sorted(readers.keys() | committed.keys())
        ]
    return rows


def _listed(admin: AdminClient) -> dict[str, str | None]:
    """The protocol of each group, by name."""
    listed = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
    if listed.errors:
        raise listed.errors[0]
    kinds = {ConsumerGroupType.CLASSIC: "classic", ConsumerGroupType.CONSUMER: "consumer"}
    found = {group.group_id: kinds.get(group.type) for group in listed.valid}
    return {name: found[name] for name in sorted(found)}


def _results(futures: "Mapping[K, Future[T]]") -> dict[K, T]:
    """Without what the cluster says is not there or not to be seen. Raises KafkaException when it says nothing."""
    found: dict[K, T] = {}
    for key, future in futures.items():
        try:
            found[key] = future.result()
        except KafkaException as exception:
            error = exception.args[0]
            if error.retriable() or error.code() < 0:
                raise
    return found


def _kafka_style(topic_id: str) -> str:
    """librdkafka writes ids in plain base64; Kafka in its URL-safe form."""
    return topic_id.replace("+", "-").replace("/", "_")
