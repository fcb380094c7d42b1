"""One who comes too late: with a leader's, a broker's or a producer's epoch of the past, which must be refused."""

import contextlib
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.broker import Broker
from penstock.protocol.messages import Struct
from tests.simulation.client import FETCH, LIST_OFFSETS, SimClient, TopicPartition, Unavailable
from tests.simulation.cluster import SimCluster
from tests.simulation.history import Violation
from tests.simulation.workload_produce import Stop

_LATEST = -1
_OFFSET_FOR_LEADER_EPOCH, _ALTER_PARTITION, _BROKER_HEARTBEAT = 23, 56, 63
_REPLICA_FETCH_VERSION = 17


class LateComer:
    def __init__(self, cluster: SimCluster, stop: Stop, name: str, partitions: list[TopicPartition]) -> None:
        self.client = SimClient(cluster, name)
        self._cluster = cluster
        self._stop = stop
        self._partitions = partitions
        self.is_done = False
        self.refusals = 0
        self.client.run(self._run)

    async def _run(self) -> None:
        chance = self.client.random
        while not self._stop.is_set:
            with contextlib.suppress(Unavailable):
                await chance.choice((self._ask_late, self._fetch_late, self._report_late))()
            await self.client.pause(1.0)
        self.is_done = True

    def _refused(self, what: str, code: int) -> None:
        if not code:
            raise Violation(5, "fencing", f"{what} of the past was accepted")
        self.refusals += 1

    # Leaders' epochs

    async def _ask_late(self) -> None:
        """As a consumer that has missed an election."""
        key = self.client.random.choice(self._partitions)
        self.client.leaders.pop(key, None)
        leader_id = await self.client.leader_of(key)
        epoch = self.client.leader_epochs[key]
        starts = self._cluster.hosts[leader_id].starts
        # One who leads in this epoch never goes back to an earlier one, while it lives.
        if epoch < 1 or await self._list_offsets(leader_id, key, epoch):
            return
        ask = self.client.random.choice((self._list_offsets, self._offset_for_epoch, self._fetch))
        code = await ask(leader_id, key, epoch - 1)
        if self._cluster.hosts[leader_id].starts == starts:
            self._refused(
                f"{ask.__name__[1:]} of {key} at node {leader_id} with epoch {epoch - 1}, it is {epoch},", code
            )

    async def _list_offsets(self, leader_id: int, key: TopicPartition, epoch: int) -> int:
        partition = Struct(partition_index=key[1], current_leader_epoch=epoch, timestamp=_LATEST)
        body = Struct(replica_id=-1, isolation_level=0, topics=[Struct(name=key[0], partitions=[partition])])
        answer = await self.client.ask(leader_id, LIST_OFFSETS, body)
        return int(answer.topics[0].partitions[0].error_code)

    async def _offset_for_epoch(self, leader_id: int, key: TopicPartition, epoch: int) -> int:
        partition = Struct(partition=key[1], current_leader_epoch=epoch, leader_epoch=0)
        body = Struct(replica_id=-1, topics=[Struct(topic=key[0], partitions=[partition])])
        answer = await self.client.ask(leader_id, _OFFSET_FOR_LEADER_EPOCH, body, 4)
        return int(answer.topics[0].partitions[0].error_code)

    async def _fetch(self, leader_id: int, key: TopicPartition, epoch: int) -> int:
        self.client.leaders[key] = leader_id
        answer = await self.client.fetch(key, 0, max_wait_ms=0, leader_epoch=epoch)
        return int(answer.error_code)

    # Brokers' epochs

    def _past_epoch(self, broker: Broker) -> tuple[int, int]:
        """(broker, an epoch that it had, or would have had, before the one that `broker` knows of)"""
        known = broker.image.brokers
        node_id = self.client.random.choice([one for one in sorted(known) if one != broker.node_id])
        return node_id, known[node_id].epoch - 1

    async def _fetch_late(self) -> None:
        """As a follower whose request was held up while it was restarted; what it says that it has, it has lost."""
        chance = self.client.random
        led = [
            (broker, partition)
            for broker in self._cluster.brokers()
            for partition in broker.hosting
            if partition.leader is not None and partition.leader.is_leading
        ]
        if not led:
            return
        broker, partition = chance.choice(led)
        replica_id, past_epoch = self._past_epoch(broker)
        assert partition.leader is not None
        position = Struct(
            partition=partition.index,
            current_leader_epoch=partition.leader.leader_epoch,
            fetch_offset=partition.log.log_end_offset,
            last_fetched_epoch=-1,
            log_start_offset=0,
            partition_max_bytes=1000,
        )
        body = Struct(
            replica_state=Struct(replica_id=replica_id, replica_epoch=past_epoch),
            max_wait=0,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[Struct(topic_id=partition.topic_id, partitions=[position])],
            forgotten_topics_data=[],
            rack_id="",
        )
        answer = await self.client.ask(broker.node_id, FETCH, body, _REPLICA_FETCH_VERSION)
        code = answer.error_code or answer.responses[0].partitions[0].error_code
        self._refused(f"node {replica_id}'s fetch of {partition.name} with broker epoch {past_epoch}", code)

    async def _report_late(self) -> None:
        """As a broker that has registered anew since: that it lives, and that its partition has another ISR."""
        active = [broker for broker in self._cluster.brokers() if broker.controller.is_active]
        if not active:
            return
        broker = self.client.random.choice(active)
        node_id, past_epoch = self._past_epoch(broker)
        if self.client.random.random() < 0.5:
            version, body = (
                1,
                Struct(
                    broker_id=node_id,
                    broker_epoch=past_epoch,
                    current_metadata_offset=0,
                    want_fence=False,
                    want_shut_down=False,
                    offline_log_dirs=[],
                ),
            )
            answer: Any = await self.client.ask(broker.node_id, _BROKER_HEARTBEAT, body, version)
            self._refused(f"node {node_id}'s heartbeat with broker epoch {past_epoch}", answer.error_code)
            return
        led = [
            (topic.id, index, state)
            for topic in broker.image.topics.values()
            for index, state in topic.partitions.items()
            if state.leader == node_id
        ]
        if not led:
            return
        topic_id, index, state = self.client.random.choice(led)
        partition = Struct(
            partition_index=index,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[Struct(broker_id=node_id, broker_epoch=past_epoch)],
            leader_recovery_state=0,
            partition_epoch=state.partition_epoch,
        )
        body = Struct(
            broker_id=node_id, broker_epoch=past_epoch, topics=[Struct(topic_id=topic_id, partitions=[partition])]
        )
        answer = await self.client.ask(broker.node_id, _ALTER_PARTITION, body, 3)
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        self._refused(f"node {node_id}'s ISR with broker epoch {past_epoch}", code or ErrorCode.none)
