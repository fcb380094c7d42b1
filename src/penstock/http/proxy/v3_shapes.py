"""REST proxy v3: the shapes. Everything has a kind, links to itself and to what belongs to it, by absolute URL."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock.http.administration import BrokerView, PartitionView

_SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}


class Shapes:
    """For one request: URLs begin as the client's did."""

    def __init__(self, request: "Request", cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._base = f"{str(request.base_url).rstrip('/')}/v3/clusters"

    def url(self, *path: object) -> str:
        return "/".join([self._base, self.cluster_id, *map(str, path)])

    def _related(self, *path: object) -> dict[str, str]:
        return {"related": self.url(*path)}

    def _thing(self, kind: str, path: Sequence[object], resource: str, /, **fields: Any) -> dict[str, Any]:
        metadata = {
            "self": self.url(*path),
            "resource_name": "/".join(["crn:", "", "", f"kafka={self.cluster_id}", resource]).rstrip("/"),
        }
        return {"kind": kind, "metadata": metadata, **fields}

    def items(self, kind: str, path: Sequence[object], data: list[dict[str, Any]]) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"self": self.url(*path), "next": None}, "data": data}

    def cluster(self, controller_id: int) -> dict[str, Any]:
        return self._thing(
            "KafkaCluster",
            (),
            "",
            cluster_id=self.cluster_id,
            controller=self._related("brokers", controller_id),
            acls=self._related("acls"),
            brokers=self._related("brokers"),
            broker_configs=self._related("broker-configs"),
            consumer_groups=self._related("consumer-groups"),
            topics=self._related("topics"),
            partition_reassignments=self._related("topics", "-", "partitions", "-", "reassignment"),
        )

    def broker(self, broker: "BrokerView", rack: str | None) -> dict[str, Any]:
        path = ("brokers", broker.broker_id)
        return self._thing(
            "KafkaBroker",
            path,
            f"broker={broker.broker_id}",
            cluster_id=self.cluster_id,
            broker_id=broker.broker_id,
            host=broker.host,
            port=broker.port,
            rack=rack,
            configs=self._related(*path, "configs"),
            partition_replicas=self._related(*path, "partition-replicas"),
        )

    def topic(self, name: str, partitions: "list[PartitionView]") -> dict[str, Any]:
        path = ("topics", name)
        return self._thing(
            "KafkaTopic",
            path,
            f"topic={name}",
            cluster_id=self.cluster_id,
            topic_name=name,
            is_internal=name in ("__consumer_offsets", "__transaction_state", "__share_group_state"),
            replication_factor=len(partitions[0].replicas) if partitions else 0,
            partitions_count=len(partitions),
            partitions=self._related(*path, "partitions"),
            configs=self._related(*path, "configs"),
            partition_reassignments=self._related(*path, "partitions", "-", "reassignment"),
        )

    def partition(self, topic: str, one: "PartitionView") -> dict[str, Any]:
        path = ("topics", topic, "partitions", one.partition)
        return self._thing(
            "KafkaPartition",
            path,
            f"topic={topic}/partition={one.partition}",
            cluster_id=self.cluster_id,
            topic_name=topic,
            partition_id=one.partition,
            leader=self._related(*path, "replicas", one.leader) if one.leader >= 0 else None,
            replicas=self._related(*path, "replicas"),
            reassignment=self._related(*path, "reassignment"),
        )

    def replica(self, topic: str, one: "PartitionView", broker_id: int) -> dict[str, Any]:
        return self._thing(
            "KafkaReplica",
            ("topics", topic, "partitions", one.partition, "replicas", broker_id),
            f"topic={topic}/partition={one.partition}/replica={broker_id}",
            cluster_id=self.cluster_id,
            topic_name=topic,
            partition_id=one.partition,
            broker_id=broker_id,
            is_leader=broker_id == one.leader,
            is_in_sync=broker_id in one.isr,
            broker=self._related("brokers", broker_id),
        )

    def config(self, kind: str, path: Sequence[object], entry: Any, **owner: Any) -> dict[str, Any]:
        return self._thing(
            kind,
            (*path, "configs", entry.name),
            "/".join(f"{key.removesuffix('_name').removesuffix('_id')}={value}" for key, value in owner.items())
            + f"/config={entry.name}",
            cluster_id=self.cluster_id,
            **owner,
            name=entry.name,
            value=None if entry.is_sensitive else entry.value,
            is_default=bool(entry.is_default),
            is_read_only=bool(entry.is_read_only),
            is_sensitive=bool(entry.is_sensitive),
            source=_SOURCES.get(entry.source, "UNKNOWN"),
            synonyms=[
                {"name": one.name, "value": one.value, "source": _SOURCES.get(one.source, "UNKNOWN")}
                for one in entry.synonyms.values()
            ],
        )

    def group(self, group: Any) -> dict[str, Any]:
        path = ("consumer-groups", group.group_id)
        return self._thing(
            "KafkaConsumerGroup",
            path,
            f"consumer-group={group.group_id}",
            cluster_id=self.cluster_id,
            consumer_group_id=group.group_id,
            is_simple=bool(group.is_simple_consumer_group),
            partition_assignor=group.partition_assignor or "",
            state=group.state.name,
            type=group.type.name,
            is_mixed_consumer_group=False,
            coordinator=self._related("brokers", group.coordinator.id),
            consumers=self._related(*path, "consumers"),
            lag_summary=self._related(*path, "lag-summary"),
        )

    def consumer(self, group: str, member: Any) -> dict[str, Any]:
        path = ("consumer-groups", group, "consumers", member.member_id)
        return self._thing(
            "KafkaConsumer",
            path,
            f"consumer-group={group}/consumer={member.member_id}",
            cluster_id=self.cluster_id,
            consumer_group_id=group,
            consumer_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            assignments=self._related(*path, "assignments"),
        )

    def assignment(self, group: str, member: str, topic: str, partition: int) -> dict[str, Any]:
        return self._thing(
            "KafkaConsumerAssignment",
            ("consumer-groups", group, "consumers", member, "assignments", topic, "partitions", partition),
            f"consumer-group={group}/consumer={member}/assignment={topic}-{partition}",
            cluster_id=self.cluster_id,
            consumer_group_id=group,
            consumer_id=member,
            topic_name=topic,
            partition_id=partition,
            partition=self._related("topics", topic, "partitions", partition),
            lag=self._related("consumer-groups", group, "lags", topic, "partitions", partition),
        )
