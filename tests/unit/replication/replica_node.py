"""One broker of the replication simulation: the real cores and the real log on a disk in memory, with the smallest
shell around them. Its log is watched, so that a checker can compare replicas and see every truncation.
"""

import uuid
from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.alter_partition import AlteredPartition
from penstock.cluster.metadata.image import MetadataImage, PartitionImage
from penstock.cluster.metadata.records import MetadataRecord
from penstock.cluster.partition.follower import FetchedPartition, FetchPosition, Follower
from penstock.cluster.partition.replication import (
    Acknowledge,
    BeginEpoch,
    Effect,
    HighWatermarkAdvanced,
    Leader,
    ProposeIsr,
)
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.protocol.batch import read_header
from penstock.protocol.records import Record, build_batch, iterate_records
from penstock.testing.sim_disk import SimDisk

TOPIC = "orders"
LAG_MS_MAX = 1000
Entry = tuple[int, bytes]  # leader epoch, value


class WatchedLog(Log):
    """A log that remembers what is in it, and tells of truncations before they happen."""

    __slots__ = ("__dict__",)

    def watch(self, on_truncate: Callable[[int], None]) -> None:
        self.entries: list[Entry] = []
        self.on_truncate = on_truncate
        self._read_on()

    def truncate_to(self, offset: int, now_ms: int) -> list[str]:
        self.on_truncate(offset)
        doomed = super().truncate_to(offset, now_ms)
        del self.entries[self.log_end_offset :]
        return doomed

    def append(self, *arguments: Any) -> int:
        base_offset = super().append(*arguments)
        self._read_on()
        return base_offset

    def append_as_follower(self, data: bytes | memoryview, now_ms: int) -> None:
        super().append_as_follower(data, now_ms)
        self._read_on()

    def _read_on(self) -> None:
        while len(self.entries) < self.log_end_offset:
            found = self.read(len(self.entries), 1, self.log_end_offset)
            assert found is not None
            batch = found.file.read(found.position, found.length)
            header = read_header(batch)
            self.entries += [(header.leader_epoch, record.value or b"") for record in iterate_records(batch, header)]

    def bytes_from(self, offset: int) -> bytes:
        found = self.read(offset, 200, self.log_end_offset)
        return b"" if found is None else found.file.read(found.position, found.length)


class ReplicaNode:
    follower_class: type[Follower] = Follower
    leader_class: type[Leader] = Leader

    def __init__(
        self,
        broker_id: int,
        isr_min: int,
        on_truncate: Callable[["ReplicaNode", int], None],
        on_commit: Callable[["ReplicaNode"], None],
    ) -> None:
        self.id = broker_id
        self.isr_min = isr_min
        self.disk = SimDisk()
        self.incarnation = 0
        self.is_running = False
        # The epoch that the controller gave this incarnation; None before that.
        self.epoch: int | None = None
        self.previous_epoch = -1
        # Whether it has lost records, of which the controller does not know yet.
        self.is_lossy = False
        self.high_watermark = 0
        self.outbox: list[ProposeIsr] = []
        self.acknowledged: list[tuple[Any, ErrorCode]] = []
        self._on_truncate = on_truncate
        self._on_commit = on_commit
        self.start(clean=True, now_ms=0)

    # Life

    def start(self, *, clean: bool, now_ms: int) -> None:
        self.is_running = True
        self.incarnation += 1
        self.epoch = None
        self.image = MetadataImage()
        self.applied = 0
        self.fetch_is_under_way = False
        self.unanswered: ProposeIsr | None = None
        self.log = WatchedLog.open(
            self.disk, f"{TOPIC}-0", LogConfig(), topic_id=None, recovery_point=0, clean=clean, log_start_offset=0,
            now_ms=now_ms,
        )  # fmt: skip
        self.log.watch(lambda offset: self._on_truncate(self, offset))
        self.high_watermark = 0
        self.leader = self.leader_class(self.id, self.image.brokers, lag_ms_max=LAG_MS_MAX, isr_min=self.isr_min)
        self.follower = self.follower_class(self.log, 0, backoff_ms=100)

    def stop(self, *, clean: bool) -> None:
        self.is_running = False
        self.previous_epoch = self.epoch if clean and self.epoch is not None else -1
        self.outbox.clear()
        if clean:
            self.log.close()

    # Metadata

    def apply(self, record: MetadataRecord, now_ms: int) -> None:
        self.image.replay(record)
        self.applied += 1
        # Before a broker has read of its own registration, what it reads is the past.
        if self.epoch is not None and self.applied > self.image_registration():
            self._take_role(now_ms)

    def image_registration(self) -> int:
        broker = self.image.brokers.get(self.id)
        return 1 << 62 if broker is None or broker.epoch != self.epoch else broker.must_know_offset

    def _take_role(self, now_ms: int) -> None:
        partition = self.partition
        if partition is None:
            return
        if partition.leader == self.id:
            self.perform(self.leader.lead(partition, self.log.log_end_offset, self.high_watermark, now_ms))
            return
        if self.leader.is_leading:
            self.high_watermark = self.leader.high_watermark
            self.perform(self.leader.resign())
        if self.follower.leader_epoch != partition.leader_epoch:
            self.become_follower(partition, now_ms)

    def become_follower(self, partition: PartitionImage, now_ms: int) -> None:
        self.follower.high_watermark = self.high_watermark
        self.follower.follow(partition.leader, partition.leader_epoch)
        self.fetch_is_under_way = False

    @property
    def partition(self) -> PartitionImage | None:
        topic = self.image.topics.get(TOPIC)
        return topic.partitions.get(0) if topic is not None else None

    # Leading

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case BeginEpoch(epoch, start_offset):
                    self.log.assign_epoch(epoch, start_offset)
                case HighWatermarkAdvanced(offset):
                    self.high_watermark = offset
                    self._on_commit(self)
                case Acknowledge(token, error):
                    self.acknowledged.append((token, error))
                case ProposeIsr():
                    self.outbox.append(effect)

    def produce(self, value: bytes, now_ms: int, *, wait_for_all: bool) -> None:
        if wait_for_all and self.leader.is_under_min_isr:
            return
        batch = build_batch([Record(0, now_ms, None, value)])
        offset = self.log.append(batch, read_header(batch), self.leader.leader_epoch, now_ms)
        self.perform(self.leader.on_append(self.log.log_end_offset, now_ms))
        if wait_for_all:
            self.perform(self.leader.acknowledge_at(offset + 1, (offset, value)))

    def serve(self, broker_id: int, broker_epoch: int, asked: FetchPosition, now_ms: int) -> FetchedPartition:
        error = self.leader.check_follower(broker_id, broker_epoch, asked.leader_epoch)
        if error:
            return FetchedPartition(error)
        if asked.last_fetched_epoch >= 0:
            epoch, end_offset = self.log.end_offset_for_epoch(asked.last_fetched_epoch)
            if epoch < 0:
                return FetchedPartition(ErrorCode.offset_out_of_range)
            if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
                return FetchedPartition(diverging_epoch=(epoch, end_offset), high_watermark=self.leader.high_watermark)
        if asked.fetch_offset > self.log.log_end_offset:
            return FetchedPartition(ErrorCode.offset_out_of_range)
        self.perform(self.leader.on_fetch(broker_id, broker_epoch, asked.fetch_offset, 0, now_ms))
        return FetchedPartition(
            high_watermark=self.leader.high_watermark,
            log_start_offset=0,
            records=self.log.bytes_from(asked.fetch_offset),
        )

    def altered(self, proposal: ProposeIsr, answer: AlteredPartition | ErrorCode, now_ms: int) -> None:
        self.perform(self.leader.on_altered(proposal, answer, now_ms))

    # Following

    def fetched(self, asked: FetchPosition, answer: FetchedPartition, now_ms: int) -> None:
        if self.leader.is_leading:
            return
        self.fetch_is_under_way = False
        self.follower.on_answer(asked, answer, now_ms, wall_ms=now_ms)
        self.high_watermark = self.follower.high_watermark
        if self.follower.wants_offsets:
            self.fetch_is_under_way = True

    @property
    def incarnation_id(self) -> uuid.UUID:
        return uuid.UUID(int=(self.id << 64) + self.incarnation)
