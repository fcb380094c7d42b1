"""The cluster as administrators see it: topics, partitions, configs, groups, offsets.

confluent-kafka's AdminClient answers with one future for each thing asked for. They are waited for in a thread, all of
one question together: an event loop that is woken ten thousand times for one answer has no time for others.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.http.errors import BROKER_NOT_FOUND, GROUP_NOT_FOUND, ApiError, from_kafka, no_partition, no_topic

if TYPE_CHECKING:
    from penstock.client.cluster import ClientConfig

T = TypeVar("T")
TopicPartition = tuple[str, int]

_REQUEST_SECONDS_MAX = 10.0
_METADATA_SECONDS_MAX = 5.0
_OFFSETS_PER_REQUEST = 250


class PartitionView(NamedTuple):
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]


class BrokerView(NamedTuple):
    broker_id: int
    host: str
    port: int


class ClusterView(NamedTuple):
    """The metadata of a moment."""

    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerView]
    topics: dict[str, list[PartitionView]]

    def partitions_of(self, topic: str) -> list[PartitionView]:
        """Raises ApiError."""
        found = self.topics.get(topic)
        if found is None:
            raise no_topic(topic)
        return found

    def broker(self, broker_id: int) -> BrokerView:
        """Raises ApiError."""
        found = self.brokers.get(broker_id)
        if found is None:
            raise ApiError(
                BROKER_NOT_FOUND, f"there is no broker {broker_id}", f"The brokers are {sorted(self.brokers)}."
            )
        return found


class Administration:
    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        from confluent_kafka.admin import AdminClient

        self._properties = {"client.id": "penstock-http", **properties, "bootstrap.servers": bootstrap}
        self._admin = AdminClient({"log_level": 0, **self._properties})

    # Asking

    async def in_thread(self, ask: Callable[[], T]) -> T:
        """A blocking call, in a thread. Raises ApiError."""
        from confluent_kafka import KafkaException

        from penstock.client.errors import ClientError

        try:
            return await asyncio.to_thread(ask)
        except KafkaException as problem:
            raise from_kafka(problem.args[0]) from problem
        except ClientError as problem:
            raise ApiError(50301, f"{problem}", "Try again in a moment.") from problem
        except ValueError as problem:
            raise ApiError(422, f"{problem}", "Check the values of the request.") from problem
        except TimeoutError as problem:
            raise ApiError(50301, "the cluster did not answer in time", "Try again in a moment.") from problem

    async def _all(self, ask: Callable[[], Mapping[Any, Any]]) -> dict[Any, Any]:
        """Every answer by what it is about: a value, or a KafkaError."""
        from confluent_kafka import KafkaException

        def wait() -> dict[Any, Any]:
            answers = {}
            for about, future in ask().items():
                try:
                    answers[about] = future.result(_REQUEST_SECONDS_MAX)
                except KafkaException as problem:
                    answers[about] = problem.args[0]
            return answers

        return await self.in_thread(wait)

    async def _one(self, ask: Callable[[], Mapping[Any, Any]]) -> Any:
        """Where one thing is asked for. Raises ApiError."""
        (answer,) = (await self._all(ask)).values()
        return _good(answer)

    # The cluster

    async def cluster(self) -> ClusterView:
        """Of all topics, because asking for one by name may create it."""
        return await self.in_thread(self.cluster_now)

    def cluster_now(self) -> ClusterView:
        """Blocks. Raises KafkaException."""
        metadata = self._admin.list_topics(timeout=_METADATA_SECONDS_MAX)
        return ClusterView(
            metadata.cluster_id or "",
            metadata.controller_id,
            {one.id: BrokerView(one.id, str(one.host), one.port) for one in metadata.brokers.values()},
            {name: _partition_views(topic) for name, topic in sorted(metadata.topics.items())},
        )

    async def check_partition(self, topic: str, partition: int) -> None:
        """Raises ApiError."""
        count = len((await self.cluster()).partitions_of(topic))
        if partition >= count:
            raise no_partition(topic, partition, count)

    async def racks(self) -> dict[int, str | None]:
        described: Any = await self.in_thread(
            lambda: self._admin.describe_cluster(request_timeout=_REQUEST_SECONDS_MAX).result(_REQUEST_SECONDS_MAX)
        )
        return {node.id: node.rack for node in described.nodes}

    # Topics

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        validate_only: bool = False,
    ) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        # librdkafka takes -1 as the cluster's default.
        topic = NewTopic(name, partitions, replication_factor, config=dict(config))
        await self._one(lambda: self._admin.create_topics([topic], validate_only=validate_only))

    async def delete_topic(self, name: str) -> None:
        await self._one(lambda: self._admin.delete_topics([name]))

    async def add_partitions(self, name: str, count: int) -> None:
        from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

        await self._one(lambda: self._admin.create_partitions([NewPartitions(name, count)]))

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        from confluent_kafka import TopicPartition as Partition

        wanted = [Partition(*one, offset) for one, offset in before.items()]
        answers = await self._all(lambda: self._admin.delete_records(wanted))
        return {(one.topic, one.partition): _good(answer).low_watermark for one, answer in answers.items()}

    # Settings

    async def configs(self, kind: str, names: Sequence[str]) -> dict[str, list[Any]]:
        """ConfigEntry objects of topics, brokers or groups, by the name of the resource. Raises ApiError."""
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

        resources = [ConfigResource(kind, name) for name in names]
        answers = await self._all(lambda: self._admin.describe_configs(resources, request_timeout=_REQUEST_SECONDS_MAX))
        return {
            resource.name: sorted(_good(answer).values(), key=lambda entry: entry.name)
            for resource, answer in answers.items()
        }

    async def alter_configs(self, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
        """None takes the setting away."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

        entries = [
            ConfigEntry(
                setting,
                value if value is not None else "",
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for setting, value in changes.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        await self._one(lambda: self._admin.incremental_alter_configs([resource]))

    # Offsets

    async def offsets(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """-2 for the first, -1 for the end; a time for the first at or after it, which is -1 where there is none.
        Partitions that have no leader now are left out."""
        wanted = list(partitions)
        return await self.in_thread(lambda: self.offsets_now(wanted, timestamp_ms)) if wanted else {}

    def offsets_now(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Blocks. Raises KafkaException."""
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Partition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        if timestamp_ms == -2:
            spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        elif timestamp_ms == -1:
            spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        else:
            spec = OffsetSpec.for_timestamp(timestamp_ms)
        wanted = [Partition(*one) for one in partitions]
        found = {}
        # In pieces: a broker that is asked for thousands at once has no time for others meanwhile.
        for first in range(0, len(wanted), _OFFSETS_PER_REQUEST):
            piece = dict.fromkeys(wanted[first : first + _OFFSETS_PER_REQUEST], spec)
            for one, future in self._admin.list_offsets(piece, request_timeout=_REQUEST_SECONDS_MAX).items():
                try:
                    found[one.topic, one.partition] = future.result(_REQUEST_SECONDS_MAX).offset
                except KafkaException:
                    continue
        return found

    # Groups

    async def groups(self) -> list[Any]:
        """ConsumerGroupListing objects, by name."""
        return await self.in_thread(self.groups_now)

    def groups_now(self) -> list[Any]:
        answer = self._admin.list_consumer_groups(request_timeout=_REQUEST_SECONDS_MAX).result(_REQUEST_SECONDS_MAX)
        return sorted(answer.valid, key=lambda one: one.group_id)

    async def describe_groups(self, names: Sequence[str]) -> dict[str, Any]:
        """ConsumerGroupDescription objects; groups that cannot be described are left out."""
        return await self.in_thread(lambda: self.describe_groups_now(names)) if names else {}

    def describe_groups_now(self, names: Sequence[str]) -> dict[str, Any]:
        from confluent_kafka import KafkaException

        found = {}
        asked = self._admin.describe_consumer_groups(list(names), request_timeout=_REQUEST_SECONDS_MAX)
        for name, future in asked.items():
            try:
                found[name] = future.result(_REQUEST_SECONDS_MAX)
            except KafkaException:
                continue
        return found

    async def describe_group(self, name: str) -> Any:
        """Raises ApiError."""
        if name not in {one.group_id for one in await self.groups()}:
            raise ApiError(GROUP_NOT_FOUND, f"there is no group '{name}'", "See the list of groups.")
        return await self._one(
            lambda: self._admin.describe_consumer_groups([name], request_timeout=_REQUEST_SECONDS_MAX)
        )

    async def group_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Raises ApiError."""
        from penstock.client.cluster import Cluster
        from penstock.client.groups import committed_offsets

        def ask() -> dict[TopicPartition, int]:
            with Cluster(self._client_config()) as cluster:
                return committed_offsets(cluster, name)

        return await self.in_thread(ask)

    def offsets_of_groups_now(self, names: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
        """Without groups whose coordinator does not answer. Blocks. Raises ClientError."""
        from penstock.client.groups import offsets_of_groups

        return offsets_of_groups(self._client_config(), names)

    def _client_config(self) -> "ClientConfig":
        """Raises ClientError for what only librdkafka can do."""
        from penstock.client.cluster import config_from

        timeout_ms = int(_REQUEST_SECONDS_MAX * 1000)
        return config_from(self._properties)._replace(request_timeout_ms=timeout_ms, patience_ms=timeout_ms)

    async def set_group_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of a group without members. Raises ApiError."""
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka import TopicPartition as Partition

        wanted = [Partition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        answer = await self._one(
            lambda: self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name, wanted)], request_timeout=_REQUEST_SECONDS_MAX
            )
        )
        for one in answer.topic_partitions:
            if one.error is not None:
                raise from_kafka(one.error, f"partition {one.partition} of '{one.topic}'")
        return dict(offsets)

    async def delete_group(self, name: str) -> None:
        await self._one(lambda: self._admin.delete_consumer_groups([name], request_timeout=_REQUEST_SECONDS_MAX))


def _good(answer: Any) -> Any:
    """Raises ApiError where the answer is an error."""
    from confluent_kafka import KafkaError

    if isinstance(answer, KafkaError):
        raise from_kafka(answer)
    return answer


def _partition_views(topic: Any) -> list[PartitionView]:
    return [
        PartitionView(one.id, one.leader, list(one.replicas), list(one.isrs))
        for _, one in sorted(topic.partitions.items())
    ]
