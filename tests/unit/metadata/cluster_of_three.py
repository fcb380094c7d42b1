"""A controller with several brokers, for tests: what happens to them is one call each."""

import uuid
from typing import Any

from penstock.cluster.metadata.alter_partition import AlteredPartition, IsrProposal
from penstock.cluster.metadata.brokers import Heartbeat, HeartbeatAnswer
from penstock.cluster.metadata.image import PartitionImage
from penstock.cluster.metadata.topics import NewTopic
from tests.unit.metadata.conftest import Cluster
from tests.unit.metadata.registering import registration


class Brokers(Cluster):
    """Three of them, in the racks given or in none."""

    def __init__(self, *racks: str | None, **overrides: str) -> None:
        super().__init__(*(racks or (None, None, None)), **overrides)
        self.now_ms = 0
        self.incarnations = dict.fromkeys(self.image.brokers, 1)
        for broker_id in self.image.brokers:
            self.beat(broker_id)

    def topic(self, name: str = "orders", *assignments: tuple[int, ...], **configs: str) -> uuid.UUID:
        """One partition on each of the replica lists, by default one partition on brokers 1, 2 and 3."""
        placed = list(enumerate(assignments or ((1, 2, 3),)))
        settings = [(key.replace("_", "."), value) for key, value in configs.items()]
        (created,) = self.do(self.controller.create_topics([NewTopic(name, assignments=placed, configs=settings)]))
        assert created.topic_id is not None, created
        return created.topic_id

    def partition(self, name: str = "orders", index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def state(self, name: str = "orders", index: int = 0) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Leader, ISR, ELR."""
        partition = self.partition(name, index)
        return partition.leader, partition.isr, partition.eligible_leader_replicas

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].epoch

    def beat(self, broker_id: int, *, offset: int | None = None, **wishes: Any) -> HeartbeatAnswer:
        read_up_to = self.image.end_offset - 1 if offset is None else offset
        heartbeat = Heartbeat(broker_id, self.epoch(broker_id), read_up_to, **wishes)
        return self.do(self.controller.heartbeat(heartbeat, self.now_ms))

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            assert self.do(self.controller.on_connection_lost(broker_id, self.epoch(broker_id)))

    def restart(self, broker_id: int, *, clean: bool) -> None:
        """Registers another incarnation, and lets it serve."""
        self.register_again(broker_id, clean=clean)
        self.beat(broker_id)

    def register_again(self, broker_id: int, *, clean: bool, **fields: Any) -> int:
        self.incarnations[broker_id] += 1
        one = registration(
            broker_id,
            self.incarnations[broker_id],
            previous_broker_epoch=self.epoch(broker_id) if clean else -1,
            **fields,
        )
        return self.do(self.controller.register_broker(one, self.now_ms, previous_is_gone=True))

    def propose(
        self, isr: tuple[int, ...], name: str = "orders", index: int = 0, by: int | None = None, **other: Any
    ) -> AlteredPartition:
        """The leader's proposal of another ISR, with the epochs it should have unless told otherwise."""
        partition = self.partition(name, index)
        fields: dict[str, Any] = {
            "topic_id": partition.topic_id,
            "partition_index": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "new_isr": [(one, self.epoch(one) if one in self.image.brokers else -1) for one in isr],
            **other,
        }
        broker_id = partition.leader if by is None else by
        (altered,) = self.do(
            self.controller.alter_partitions(broker_id, self.epoch(broker_id), [IsrProposal(**fields)])
        )
        return altered
