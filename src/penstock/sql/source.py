"""The rows of the three tables, asked of a cluster.

What disappears while it is being asked is left out: a table shows what was there, not what went wrong.
"""

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import ConsumerGroupType, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from penstock.client.cluster import Cluster, config_from
from penstock.client.errors import ClientError, Refusal
from penstock.client.groups import committed_offsets

REQUEST_TIMEOUT_S = 30.0

Row = tuple[Any, ...]
K = TypeVar("K")
T = TypeVar("T")


class Asked(NamedTuple):
    """A cluster, by librdkafka's client and, for what that does not survive, its properties."""

    admin: AdminClient
    properties: Mapping[str, Any]


def topics(asked: Asked) -> list[Row]:
    """(id, name, partition_count, replication_factor, retention_ms)"""
    admin = asked.admin
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


def groups(asked: Asked) -> list[Row]:
    """(id, group_id, protocol)

    Kafka gives groups no id beside their name. This one is made of the cluster's and the group's names, so it is the
    same each time and differs between clusters.
    """
    admin = asked.admin
    cluster_id = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result().cluster_id or ""
    rows = []
    for group_id, kind in _listed(admin).items():
        unique = uuid.uuid5(uuid.NAMESPACE_URL, f"kafka://{cluster_id}/group/{group_id}")
        rows.append((urlsafe_b64encode(unique.bytes).decode().rstrip("="), group_id, kind))
    return rows


def assignments(asked: Asked) -> list[Row]:
    """(group_id, topic, partition, consumer_id, offset)

    A row for each partition that a group reads or has committed an offset for: without the one, `consumer_id` is NULL,
    without the other, `offset`.
    """
    names = list(_listed(asked.admin))
    if not names:
        return []
    described = _results(asked.admin.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S))
    offsets = _committed(names, asked.properties)
    rows: list[Row] = []
    for name in names:
        readers = {
            (partition.topic, partition.partition): member.member_id
            for member in (described[name].members if name in described else ())
            for partition in member.assignment.topic_partitions
        }
        committed = offsets.get(name, {})
        rows += [
            (name, *key, readers.get(key), committed.get(key)) for key in sorted(readers.keys() | committed.keys())
        ]
    return rows


def _committed(names: Iterable[str], properties: Mapping[str, Any]) -> dict[str, dict[tuple[str, int], int]]:
    """By group; without those that the cluster says are not to be seen. Raises KafkaException when it says nothing."""
    found = {}
    try:
        config = config_from({name: str(value) for name, value in properties.items()})
        with Cluster(config._replace(patience_ms=int(REQUEST_TIMEOUT_S * 1000))) as cluster:
            for name in names:
                with suppress(Refusal):
                    found[name] = committed_offsets(cluster, name)
    except ClientError as problem:
        raise KafkaException(KafkaError(KafkaError._FAIL, str(problem))) from problem
    return found


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
