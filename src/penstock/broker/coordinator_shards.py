"""The coordinators of one kind on this node: a runner for each partition of their topic that it leads."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Generic

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.coordinator_runner import CoordinatorRunner, S, ShardKind
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.partition.partition import Partition

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


@lru_cache(maxsize=10_000)
def partition_of(key: str, partition_count: int) -> int:
    """Where Kafka puts a group or a transactional id: Java's hash, over UTF-16 code units, without its sign."""
    code = 0
    data = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        code = (31 * code + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partition_count


class CoordinatorShards(Generic[S]):
    def __init__(self, broker: "Broker", topic: str, kind_of: Callable[[Partition], ShardKind[S]]) -> None:
        self._broker = broker
        self._topic = topic
        self._kind_of = kind_of
        self._runners: dict[int, CoordinatorRunner[S]] = {}
        self._settled_version = -1

    def settle(self, *, anew: bool = False) -> None:
        """Loads what this node has come to lead, and lets go of what it no longer does. `anew`: also where the metadata
        is as it was."""
        image = self._image()
        if image is None or (image.version == self._settled_version and not anew):
            return
        self._settled_version = image.version
        hosted = self._broker.topics_by_name.get(self._topic.encode(), {})
        for index, runner in list(self._runners.items()):
            partition = hosted.get(index)
            if partition is not runner.partition or not partition.is_leading or runner.epoch != partition.leader_epoch:
                del self._runners[index]
                runner.resign()
        for index, partition in hosted.items():
            if partition.is_leading and index not in self._runners:
                self._runners[index] = CoordinatorRunner(self._broker, partition, self._kind_of(partition))

    def stop(self) -> None:
        for runner in self._runners.values():
            runner.stop()

    async def make_topic(self, topic: NewTopic) -> None:
        """If it is not there yet. Raises Refused."""
        if self._image() is not None:
            return
        (made,) = await self._broker.create_topics([topic])
        if made.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise Refused(ErrorCode.coordinator_not_available, made.error_message or f"there is no {self._topic}")

    def node_of(self, key: str) -> int:
        """The node that coordinates this group or transactional id. Raises Refused."""
        self._refuse_in_doubt()
        image = self._image()
        leader = -1
        if image is not None:
            leader = image.partitions[partition_of(key, len(image.partitions))].leader
        if leader < 0 or leader not in self._broker.image.brokers:
            raise Refused(ErrorCode.coordinator_not_available, "the coordinator is not there at the moment")
        return leader

    def runner_of(self, key: str) -> CoordinatorRunner[S]:
        """Raises Refused where this node does not coordinate it."""
        self._refuse_in_doubt()
        image = self._image()
        if image is None:
            raise Refused(
                ErrorCode.coordinator_not_available, "nothing is kept here yet: ask for the coordinator first"
            )
        runner = self._runners.get(partition_of(key, len(image.partitions)))
        if runner is None:
            raise Refused(ErrorCode.not_coordinator, "another node coordinates this")
        return runner

    def runner_at(self, index: int) -> CoordinatorRunner[S] | None:
        return self._runners.get(index)

    def all(self) -> list[CoordinatorRunner[S]]:
        return list(self._runners.values())

    def _refuse_in_doubt(self) -> None:
        """What is written needs the other replicas, who would not follow a coordinator of the past. What is only read,
        as committed offsets are, it could still tell."""
        if self._broker.life.is_in_doubt:
            raise Refused(ErrorCode.coordinator_not_available, "this node stood still: others may coordinate by now")

    def _image(self) -> TopicImage | None:
        return self._broker.image.topics.get(self._topic)
