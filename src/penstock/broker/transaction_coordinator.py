"""The transaction coordinator of this node: one runner for each partition of `__transaction_state` that it leads."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.coordinator_runner import CoordinatorRunner, ShardKind
from penstock.broker.coordinator_shards import CoordinatorShards
from penstock.broker.links import LinkBroken
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.partition.partition import Partition
from penstock.coordinator.transaction.records import TRANSACTIONS_V2, decode_record, encode_record
from penstock.coordinator.transaction.requests import Addition, TopicPartition, WriteMarkers
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.protocol.messages import Struct

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.transactions")

STATE_TOPIC = "__transaction_state"

TransactionRunner = CoordinatorRunner[TransactionShard]

_ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS_VERSION = 24, 5
_RETRY_SECONDS_MIN = 0.02
_RETRY_SECONDS_MAX = 1.0


class TransactionCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.shards = CoordinatorShards[TransactionShard](broker, STATE_TOPIC, self._kind)
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        self.shards.stop()

    async def make_topic(self) -> None:
        """`__transaction_state`, if it is not there yet. Raises Refused."""
        settings = self._broker.settings
        replication_factor = self._broker.replicas_of_internal_topics(
            settings["transaction.state.log.replication.factor"]
        )
        topic = NewTopic(
            STATE_TOPIC,
            num_partitions=settings["transaction.state.log.num.partitions"],
            replication_factor=replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(min(settings["transaction.state.log.min.isr"], replication_factor))),
                ("segment.bytes", str(settings["transaction.state.log.segment.bytes"])),
                ("unclean.leader.election.enable", "false"),
            ),
        )
        await self.shards.make_topic(topic)

    async def add_partitions(self, addition: Addition) -> dict[TopicPartition, ErrorCode]:
        """Makes the partitions part of the producer's transaction, or says which of them are; the error of each. Only
        where this node coordinates it: what a client sent to the wrong one may be long out of date."""
        try:
            runner = self.shards.runner_of(addition.transactional_id)
            answer = await runner.handle(lambda shard, token, now_ms: shard.add_partitions(token, addition, now_ms))
        except Refused as refused:
            return dict.fromkeys(addition.partitions, refused.code)
        errors: dict[TopicPartition, ErrorCode] = answer.errors
        return errors

    async def add_written(self, addition: Addition) -> dict[TopicPartition, ErrorCode]:
        """As `add_partitions`, of partitions here that are about to be written to: by the coordinator, wherever it
        is."""
        try:
            node_id = self.shards.node_of(addition.transactional_id)
        except Refused as refused:
            return dict.fromkeys(addition.partitions, refused.code)
        if node_id != self._broker.node_id:
            return await self._add_elsewhere(node_id, addition)
        return await self.add_partitions(addition)

    def verified_at_once(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """What `add_partitions` would say to `verify_only`; None where that takes time."""
        addition = Addition(transactional_id, producer_id, producer_epoch, frozenset(partitions), True, TRANSACTIONS_V2)
        try:
            shard = self.shards.runner_of(transactional_id).committed_shard
        except Refused:
            return None
        return None if shard is None else shard.verified(addition, self._broker.clock.now_ms())

    async def _add_elsewhere(self, node_id: int, addition: Addition) -> dict[TopicPartition, ErrorCode]:
        """Asks the coordinator on another node."""
        topics: dict[str, list[int]] = {}
        for topic, index in addition.partitions:
            topics.setdefault(topic, []).append(index)
        body = Struct(
            transactions=[
                Struct(
                    transactional_id=addition.transactional_id,
                    producer_id=addition.producer_id,
                    producer_epoch=addition.producer_epoch,
                    verify_only=addition.verify_only,
                    topics=[Struct(name=topic, partitions=indexes) for topic, indexes in topics.items()],
                )
            ]
        )
        try:
            answer = await self._broker.links.request(node_id, _ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS_VERSION, body)
        except LinkBroken:
            return dict.fromkeys(addition.partitions, ErrorCode.coordinator_not_available)
        if answer.error_code:
            return dict.fromkeys(addition.partitions, ErrorCode(answer.error_code))
        return {
            (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
            for transaction in answer.results_by_transaction
            for topic in transaction.topic_results
            for one in topic.results_by_partition
        }

    def _kind(self, partition: Partition) -> ShardKind[TransactionShard]:
        broker = self._broker
        return ShardKind(
            make=lambda: TransactionShard(broker.settings, broker.producer_ids, partition.leader_epoch),
            encode=encode_record,
            decode=decode_record,
            send=self._send,
        )

    # Markers

    def _send(self, runner: TransactionRunner, markers: WriteMarkers) -> None:
        shard = runner.shard
        if shard is not None:
            self._write(runner, shard, markers, _RETRY_SECONDS_MIN)

    def _write(
        self, runner: TransactionRunner, shard: TransactionShard, markers: WriteMarkers, retry_seconds: float
    ) -> None:
        self._broker.markers.write(
            markers, lambda outcome: self._written(runner, shard, markers, retry_seconds, outcome)
        )

    def _written(
        self,
        runner: TransactionRunner,
        shard: TransactionShard,
        markers: WriteMarkers,
        retry_seconds: float,
        outcome: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        if self._is_stopped or runner.shard is not shard:
            # The coordinator was loaded anew, and has sent what it found to be sent.
            return
        missing = {one: error for one, error in outcome.items() if error and not self._is_gone(one)}
        runner.tell(
            lambda shard, now_ms: shard.markers_written(
                markers.transactional_id,
                markers.producer_id,
                markers.producer_epoch,
                outcome.keys() - missing.keys(),
                now_ms,
            )
        )
        if not missing:
            return
        if ErrorCode.transaction_coordinator_fenced in missing.values():
            log.warning("%s is coordinated elsewhere by now, its end is left to that", markers.transactional_id)
            return
        if retry_seconds >= _RETRY_SECONDS_MAX:
            named = ", ".join(f"{topic}-{index}: {error.name}" for (topic, index), error in sorted(missing.items()))
            log.warning("the end of transaction %s could not be written yet to %s", markers.transactional_id, named)
        asyncio.get_running_loop().call_later(retry_seconds, self._write_again, runner, shard, markers, retry_seconds)

    def _write_again(
        self, runner: TransactionRunner, shard: TransactionShard, markers: WriteMarkers, retry_seconds: float
    ) -> None:
        if self._is_stopped or runner.shard is not shard:
            return
        partitions = shard.unmarked(markers)
        if partitions:
            remaining = markers._replace(partitions=partitions)
            self._write(runner, shard, remaining, min(2 * retry_seconds, _RETRY_SECONDS_MAX))

    def _is_gone(self, partition: TopicPartition) -> bool:
        """Whether the partition is in no topic any more: what was written to it is gone, and so is its end."""
        topic, index = partition
        known = self._broker.image.topics.get(topic)
        return known is None or index not in known.partitions
