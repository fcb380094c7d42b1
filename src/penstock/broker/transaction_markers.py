"""Writing the markers that end transactions, by the leaders of their partitions.

Markers survive before anybody is told that they are there: the coordinator forgets a transaction once all of them are,
and nobody would write a lost one again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.broker.group_coordinator import OFFSETS_TOPIC
from penstock.broker.links import LinkBroken
from penstock.cluster.partition.partition import Partition
from penstock.coordinator.transaction.requests import TopicPartition, WriteMarkers
from penstock.log.end_marker import EndMarker
from penstock.protocol.messages import Struct

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_WRITE_TXN_MARKERS, _WRITE_TXN_MARKERS_VERSION = 27, 2
_NO_LEADER = -1
# The coordinator tries again.
_TIMEOUT_MS = 5000

Outcome = Mapping[TopicPartition, ErrorCode]


class TransactionMarkers:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # asyncio keeps only weak references to tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, markers: WriteMarkers, done: Callable[[Outcome], None]) -> None:
        """Has each marker written by the leader of its partition. Calls `done` once, when all of them that could be
        written are committed; perhaps at once."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in markers.partitions:
            by_leader.setdefault(self._leader_of(key), []).append(key)
        if by_leader.keys() <= {self._broker.node_id, _NO_LEADER}:
            self.write_here(markers, done)
            return
        outcome: dict[TopicPartition, ErrorCode] = {}
        waiting = set(by_leader)

        def finished(leader: int, part: Outcome) -> None:
            outcome.update(part)
            waiting.discard(leader)
            if not waiting:
                done(outcome)

        for leader, keys in list(by_leader.items()):
            share = markers._replace(partitions=tuple(keys))
            if leader in (self._broker.node_id, _NO_LEADER):
                self.write_here(share, lambda part, leader=leader: finished(leader, part))  # type: ignore[misc]
            else:
                self._run(self._write_there(leader, share, finished))

    def _leader_of(self, key: TopicPartition) -> int:
        topic = self._broker.image.topics.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        return _NO_LEADER if partition is None else partition.leader

    async def _write_there(self, leader: int, markers: WriteMarkers, finished: Callable[[int, Outcome], None]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in markers.partitions:
            topics.setdefault(topic, []).append(index)
        body = Struct(
            markers=[
                Struct(
                    producer_id=markers.producer_id,
                    producer_epoch=markers.producer_epoch,
                    transaction_result=markers.is_commit,
                    topics=[Struct(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()],
                    coordinator_epoch=markers.coordinator_epoch,
                    transaction_version=markers.transaction_version,
                )
            ]
        )
        try:
            answer = await self._broker.links.request(leader, _WRITE_TXN_MARKERS, _WRITE_TXN_MARKERS_VERSION, body)
            outcome = {
                (topic.name, one.partition_index): ErrorCode(one.error_code)
                for marker in answer.markers
                for topic in marker.topics
                for one in topic.partitions
            }
        except LinkBroken:
            outcome = dict.fromkeys(markers.partitions, ErrorCode.not_leader_or_follower)
        finished(leader, outcome)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def write_here(self, markers: WriteMarkers, done: Callable[[Outcome], None]) -> None:
        """The same for what this node leads."""
        outcome: dict[TopicPartition, ErrorCode] = {}
        uncommitted: dict[TopicPartition, Partition] = {}
        for key in markers.partitions:
            topic, index = key
            partition = self._broker.topics_by_name.get(topic.encode(), {}).get(index)
            if partition is None:
                is_known = index in getattr(self._broker.image.topics.get(topic), "partitions", ())
                outcome[key] = ErrorCode.not_leader_or_follower if is_known else ErrorCode.unknown_topic_or_partition
                continue
            try:
                outcome[key] = self._append(partition, markers)
                if not outcome[key] and self._broker.commits.is_due(partition):
                    uncommitted[key] = partition
            except DiskError:
                outcome[key] = ErrorCode.kafka_storage_error
        if not uncommitted:
            done(outcome)
            return

        def committed(errors: dict[Partition, ErrorCode]) -> None:
            outcome.update({key: errors[partition] for key, partition in uncommitted.items()})
            done(outcome)

        self._broker.commits.when_committed(list(uncommitted.values()), _TIMEOUT_MS, committed)

    def _append(self, partition: Partition, markers: WriteMarkers) -> ErrorCode:
        marker = EndMarker(not markers.is_commit, markers.coordinator_epoch)
        ending = (marker, markers.producer_id, markers.producer_epoch, markers.transaction_version)
        if partition.topic != OFFSETS_TOPIC:
            return partition.append_marker(*ending, self._broker.clock.now_ms())
        runner = self._broker.groups.shards.runner_at(partition.index)
        # The group coordinator has to be up to take the offsets of the transaction over, or to drop them.
        return ErrorCode.not_leader_or_follower if runner is None else runner.end_transaction(*ending)
