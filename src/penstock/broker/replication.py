"""The shell around the replication of this node's partitions: roles as the metadata gives them, effects of leaders,
proposals of in-sync replicas to the controller, and the fetchers of what it follows.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.fetch.waiting import WAKE_BYTES
from penstock.broker.replica_fetcher import ReplicaFetcher
from penstock.cluster.metadata.alter_partition import AlteredPartition
from penstock.cluster.metadata.image import PartitionImage
from penstock.cluster.partition.follower import Follower
from penstock.cluster.partition.partition import LONG_AGO_MS, Partition
from penstock.cluster.partition.replication import (
    Acknowledge,
    BeginEpoch,
    Effect,
    HighWatermarkAdvanced,
    Leader,
    ProposeIsr,
)
from penstock.protocol.messages import Struct

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.replication")

# What `reconfigure` is for.
SETTINGS = frozenset({"min.insync.replicas", "replica.lag.time.max.ms"})
_ALTER_PARTITION, _ALTER_PARTITION_VERSION = 56, 3
_PROPOSAL_SECONDS_MAX = 10.0
_RETRY_SECONDS = 0.1
_ANY_EPOCH = -1

# Told whether what was appended is committed.
Done = Callable[[ErrorCode], None]


class Replication:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._fetchers: dict[int, ReplicaFetcher] = {}
        # In the order in which they came to be led.
        self._led: dict[Partition, None] = {}
        # When each broker last fetched anything from us.
        self._contacts: dict[int, int] = {}
        # What a broker fetches without being in sync there, by its id.
        self._outside: dict[int, dict[Partition, None]] = {}
        # Who waits for all living replicas to begin at an offset.
        self._beginning: dict[Partition, list[tuple[int, asyncio.Future[None]]]] = {}
        self._proposals: dict[Partition, ProposeIsr] = {}
        self._proposing: asyncio.Task[None] | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.stop()
        if self._proposing is not None:
            self._proposing.cancel()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    # Roles

    def assume_role(self, partition: Partition, state: PartitionImage, known_high_watermark: int) -> None:
        """As the metadata has it now. Raises DiskError."""
        is_leading = state.leader == self._broker.node_id
        if is_leading and len(state.replicas) == 1:
            self._stop_following(partition)
            self._resign(partition)
            is_only_node = len(self._broker.image.brokers) == 1
            partition.lead_alone(state.leader_epoch, LONG_AGO_MS if is_only_node else self._broker.clock.now_ms())
        elif is_leading:
            self._lead(partition, state, known_high_watermark)
        elif state.leader < 0 and partition.leader is None and partition.follower is None:
            # There is nobody to follow, and no need to open the log, for now.
            partition.await_leader(state.leader_epoch)
        else:
            self._follow(partition, state, known_high_watermark)

    def drop(self, partition: Partition) -> None:
        """It is no longer here."""
        self._stop_following(partition)
        self._resign(partition)

    def _lead(self, partition: Partition, state: PartitionImage, known_high_watermark: int) -> None:
        leader = partition.leader
        if leader is None:
            if partition.follower is not None:
                known_high_watermark = partition.follower.high_watermark
            self._stop_following(partition)
            leader = Leader(
                self._broker.node_id,
                self._broker.image.brokers,
                lag_ms_max=self._broker.settings["replica.lag.time.max.ms"],
                isr_min=partition.config.min_insync_replicas,
                contacts=self._contacts,
            )
            self._led[partition] = None
            self._sweep_later()
        partition.lead(leader, state.leader_epoch, self._on_appended, self._broker.clock.now_ms())
        leader.must_sync = partition.must_sync
        leader.isr_min = partition.config.min_insync_replicas
        now_ms = self._broker.clock.monotonic_ms()
        self._perform(partition, leader.lead(state, partition.log.log_end_offset, known_high_watermark, now_ms))
        for broker_id in leader.followers:
            if broker_id not in leader.isr:
                # It may have all there is, and so no reason to name the partition when it fetches again.
                self._outside.setdefault(broker_id, {})[partition] = None
        if leader.must_sync:
            self._sync(partition, leader)

    def _resign(self, partition: Partition) -> None:
        leader = partition.leader
        if leader is None:
            return
        self._led.pop(partition, None)
        self._proposals.pop(partition, None)
        effects = leader.resign()
        # Before anybody is told of anything: those who are woken look at once.
        partition.resign()
        self._perform(partition, effects)
        # Those who wait learn that they must look for the leader again.
        partition.tell_readers(WAKE_BYTES)
        partition.tell_replicas(WAKE_BYTES)

    def _follow(self, partition: Partition, state: PartitionImage, known_high_watermark: int) -> None:
        follower = partition.follower
        if follower is None:
            if partition.leader is not None:
                known_high_watermark = partition.leader.high_watermark
            elif partition.is_leading and partition.loaded_log is not None:
                known_high_watermark = partition.log.log_end_offset
            self._resign(partition)
            follower = Follower(
                partition.log, known_high_watermark, backoff_ms=self._broker.settings["replica.fetch.backoff.ms"]
            )
            follower.is_throttled = self._broker.throttling.follower.covers(partition)
        previous_leader = follower.leader_id
        partition.follow(follower, state.leader_epoch)
        follower.follow(state.leader, state.leader_epoch)
        if previous_leader != follower.leader_id and previous_leader in self._fetchers:
            self._fetchers[previous_leader].remove(partition)
        if follower.leader_id >= 0:
            self._fetcher_of(follower.leader_id).add(partition)

    def _stop_following(self, partition: Partition) -> None:
        follower = partition.follower
        if follower is not None:
            fetcher = self._fetchers.get(follower.leader_id)
            if fetcher is not None:
                fetcher.remove(partition)
            partition.follower = None

    def _fetcher_of(self, leader_id: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(self._broker, leader_id)
        return fetcher

    # Leading

    def reconfigure(self) -> None:
        """Settings may have changed, of a topic or of all."""
        now_ms = self._broker.clock.monotonic_ms()
        lag_ms_max = self._broker.settings["replica.lag.time.max.ms"]
        for partition in tuple(self._led):
            leader = partition.leader
            if leader is not None:
                isr_min = partition.config.min_insync_replicas
                self._perform(partition, leader.reconfigure(lag_ms_max=lag_ms_max, isr_min=isr_min, now_ms=now_ms))

    def _on_appended(self, partition: Partition) -> None:
        leader = partition.leader
        assert leader is not None
        leader.must_sync = partition.must_sync
        self._perform(partition, leader.on_append(partition.log.log_end_offset, self._broker.clock.monotonic_ms()))
        if leader.must_sync:
            self._sync(partition, leader)

    def _sync(self, partition: Partition, leader: Leader) -> None:
        flush = partition.log.flush()
        leader_epoch = leader.leader_epoch

        def synced(problem: DiskError | None) -> None:
            if partition.leader is not leader or leader.leader_epoch != leader_epoch:
                # As a follower it may have cut the log meanwhile.
                return
            if problem is not None:
                log.error("%s cannot be synced: %s", partition.name, problem)
                partition.has_failed = True
                return
            partition.log.mark_flushed(flush)
            self._perform(partition, leader.on_synced(flush.end_offset, self._broker.clock.monotonic_ms()))

        self._broker.group_commit.submit(flush.files, synced)

    def on_follower_fetch(
        self, partition: Partition, broker_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> None:
        leader = partition.leader
        if leader is not None:
            now_ms = self._broker.clock.monotonic_ms()
            self._perform(partition, leader.on_fetch(broker_id, broker_epoch, fetch_offset, log_start_offset, now_ms))
            if partition in self._beginning:
                self._tell_beginnings(partition)
            if broker_id not in leader.isr:
                self._outside.setdefault(broker_id, {})[partition] = None

    def outside(self, broker_id: int) -> Iterable[Partition]:
        """What the broker follows here without being in sync."""
        return self._outside.get(broker_id, ())

    def on_follower_contact(self, broker_id: int, broker_epoch: int) -> None:
        """A broker fetches. It need not name partitions where nothing has changed for it; but where it is not in sync,
        it may be let in now though it could not the last time."""
        registered = self._broker.image.brokers.get(broker_id)
        if registered is None or broker_epoch not in (registered.epoch, _ANY_EPOCH):
            return
        self._contacts[broker_id] = self._broker.clock.monotonic_ms()
        outside = self._outside.get(broker_id)
        for partition in tuple(outside or ()):
            leader = partition.leader
            if leader is not None and broker_id in leader.followers and broker_id not in leader.isr:
                self._perform(partition, leader.let_join(broker_id))
            elif outside is not None:
                del outside[partition]

    def when_replicated(self, partition: Partition, done: Done) -> None:
        """Calls `done` when all replicas in sync have what was appended so far."""
        leader = partition.leader
        if leader is None:
            done(ErrorCode.none if partition.is_leading else ErrorCode.not_leader_or_follower)
            return
        self._perform(partition, leader.acknowledge_at(partition.log.log_end_offset, done))

    async def until_all_begin_at(self, partition: Partition, offset: int, seconds_max: float) -> None:
        """Waits until no living replica has anything before `offset`, this node leads no more, or the time is up."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._beginning.setdefault(partition, []).append((offset, future))
        self._tell_beginnings(partition)
        timer = self._loop.call_later(seconds_max, _settle, future)
        await future
        timer.cancel()

    def on_metadata_applied(self) -> None:
        """Brokers may have come and gone."""
        for partition in tuple(self._beginning):
            self._tell_beginnings(partition)

    def _tell_beginnings(self, partition: Partition) -> None:
        low_watermark = partition.low_watermark if partition.is_leading else None
        still = []
        for offset, future in self._beginning.pop(partition):
            if low_watermark is None or low_watermark >= offset:
                _settle(future)
            elif not future.done():
                still.append((offset, future))
        if still:
            self._beginning[partition] = still

    def _perform(self, partition: Partition, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced():
                    # How many bytes that are, looking tells.
                    partition.tell_readers(WAKE_BYTES - 1)
                    # Followers learn it with what they are told next.
                    partition.tell_replicas(0)
                case Acknowledge():
                    effect.token(effect.error_code)
                case ProposeIsr():
                    self._propose(partition, effect)
                case BeginEpoch():
                    partition.log.assign_epoch(effect.leader_epoch, effect.start_offset)

    # The in-sync replicas

    def _sweep_later(self) -> None:
        if self._sweep_timer is None:
            seconds = self._broker.settings["replica.lag.time.max.ms"] / 2000
            self._sweep_timer = self._loop.call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """Looks for followers that have fallen behind."""
        self._sweep_timer = None
        now_ms = self._broker.clock.monotonic_ms()
        for partition in tuple(self._led):
            if partition.leader is not None:
                self._perform(partition, partition.leader.on_tick(now_ms))
        if self._led:
            self._sweep_later()

    def _propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        self._proposals[partition] = proposal
        if self._proposing is None:
            self._proposing = self._loop.create_task(self._send_proposals())

    async def _send_proposals(self) -> None:
        """All there are in one request; those that come meanwhile, and those to be tried again, in the next one."""
        try:
            while self._proposals:
                proposals, self._proposals = self._proposals, {}
                answers = await self._ask_controller(proposals)
                now_ms = self._broker.clock.monotonic_ms()
                is_refused = False
                for partition, proposal in proposals.items():
                    answer = answers.get((partition.topic_id, partition.index), ErrorCode.request_timed_out)
                    is_refused = is_refused or isinstance(answer, ErrorCode) or bool(answer.error_code)
                    if partition.leader is not None:
                        self._perform(partition, partition.leader.on_altered(proposal, answer, now_ms))
                if is_refused:
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._proposing = None

    async def _ask_controller(
        self, proposals: dict[Partition, ProposeIsr]
    ) -> dict[tuple[UUID, int], AlteredPartition | ErrorCode]:
        by_topic: dict[UUID, list[Struct]] = {}
        for partition, proposal in proposals.items():
            by_topic.setdefault(partition.topic_id, []).append(
                Struct(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        Struct(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in proposal.new_isr
                    ],
                    leader_recovery_state=proposal.leader_recovery_state,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        body = Struct(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.life.epoch,
            topics=[Struct(topic_id=topic_id, partitions=listed) for topic_id, listed in by_topic.items()],
        )
        try:
            answer = await self._broker.channel.request(
                _ALTER_PARTITION, _ALTER_PARTITION_VERSION, body, seconds_max=_PROPOSAL_SECONDS_MAX
            )
        except Refused as problem:
            log.warning("in-sync replicas could not be proposed: %s", problem.message)
            return {}
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            return {(one.topic_id, one.index): code for one in proposals}
        return {
            (topic.topic_id, one.partition_index): AlteredPartition(
                topic.topic_id,
                one.partition_index,
                ErrorCode(one.error_code),
                leader_id=one.leader_id,
                leader_epoch=one.leader_epoch,
                isr=tuple(one.isr),
                leader_recovery_state=one.leader_recovery_state,
                partition_epoch=one.partition_epoch,
            )
            for topic in answer.topics
            for one in topic.partitions
        }


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
