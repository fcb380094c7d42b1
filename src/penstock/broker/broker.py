"""The broker as handlers see it: this node's partitions, the cluster's metadata, and how to change either."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Clock, Disk, DiskError, Random
from penstock.base.settings import NodeSettings
from penstock.broker.fetch.sessions import SessionCache
from penstock.broker.group_commit import GroupCommit
from penstock.broker.group_coordinator import GroupCoordinator
from penstock.broker.hosting import Hosting
from penstock.broker.metadata_log import MetadataLog
from penstock.cluster.metadata.controller import Controller
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import ALL_BROKERS, RESOURCE_BROKER, MetadataImage
from penstock.cluster.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.cluster.partition.partition import Partition
from penstock.log.config import LogConfig

if TYPE_CHECKING:
    from penstock.broker.api import Api, HotApi, RequestContext

log = logging.getLogger("penstock.broker")

T = TypeVar("T")

_CHECKPOINT_SECONDS = 30


class Broker:
    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        data_directory: str,
        settings: NodeSettings,
        disk: Disk,
        clock: Clock,
        random: Random,
        boot_id: str | None = None,
    ) -> None:
        """`boot_id` changes when the machine starts anew; None where there is no telling."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.data_directory = data_directory
        self.settings = settings
        self.clock = clock
        self.random = random
        self.image = MetadataImage()
        self.group_commit = GroupCommit()
        self.hosting = Hosting(disk, clock, self.image, self._topic_config, boot_id)
        self.topics_by_name = self.hosting.by_name
        self.topics_by_id = self.hosting.by_id
        self.groups = GroupCoordinator(self)
        self.fetch_bytes_max: int = settings["fetch.max.bytes"]
        self.fetch_sessions = SessionCache(
            random,
            sessions_max=settings["max.incremental.fetch.session.cache.slots"],
            eviction_ms=120_000,
        )
        # What the router serves; it sets this.
        self.served_apis: Sequence[Api | HotApi] = ()
        self._controller = Controller(self.image, settings, random)
        self._metadata_log = MetadataLog(disk, clock, clean=self.hosting.was_clean)
        self._producer_ids = iter(range(0))
        self._producer_ids_lock = asyncio.Lock()
        self._checkpoints: asyncio.Task[None] | None = None

    # Life

    async def start(self, host: str, port: int) -> None:
        """Replays the metadata, takes over partitions, registers the node. Raises DiskError and Refused."""
        for note in self._metadata_log.notes:
            log.warning("metadata log: %s", note)
        for record in self._metadata_log.records():
            self.image.replay(record)
        self._use_broker_configs()
        self.hosting.load()
        await self.decide(
            lambda controller: controller.register_broker(
                self.node_id, host, port, self.settings["broker.rack"], self.clock.now_ms()
            )
        )
        self.groups.start()
        self._checkpoints = asyncio.create_task(self._write_checkpoints())

    def stop(self) -> None:
        """A clean end. Nothing may be served any more."""
        if self._checkpoints is not None:
            self._checkpoints.cancel()
        self.groups.stop()
        self.group_commit.stop()
        is_clean = True
        try:
            self._metadata_log.close()
        except DiskError as problem:
            log.error("the metadata log could not be closed properly, the next start will check it: %s", problem)
            is_clean = False
        self.hosting.close(is_clean=is_clean)

    async def _write_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(_CHECKPOINT_SECONDS)
            try:
                await self.hosting.checkpoint()
            except DiskError as problem:
                log.error("checkpoints could not be written, recovery after a crash would take longer: %s", problem)

    # Metadata

    @property
    def metadata_offset(self) -> int:
        return self._metadata_log.end_offset - 1

    async def decide(self, decide: Callable[[Controller], Decision[T]]) -> T:
        """Lets the controller decide, and answers once the decision is on the disk.

        The records are replayed as soon as they are in the log, so that the next decision sees them; the answer leaves
        when the log that it rests on is committed, also where it changed nothing itself. Raises Refused."""
        decision = decide(self._controller)
        metadata = self._metadata_log
        try:
            if decision.records:
                metadata.append(decision.records)
                for record in decision.records:
                    self._apply(record)
            if not metadata.is_synced:
                flush = metadata.flush()
                await self.group_commit.sync(flush.files)
                metadata.mark_flushed(flush)
        except DiskError as problem:
            log.error("a metadata change could not be kept: %s", problem)
            raise Refused(ErrorCode.kafka_storage_error, f"the change could not be kept: {problem}") from problem
        return decision.answer

    def _apply(self, record: MetadataRecord) -> None:
        self.image.replay(record)
        if isinstance(record, ConfigRecord) and record.resource_type == RESOURCE_BROKER:
            self._use_broker_configs()
        self.hosting.apply(record)
        if isinstance(record, TopicRecord | PartitionRecord | RemoveTopicRecord):
            self.groups.on_topics_changed()

    def _use_broker_configs(self) -> None:
        self.settings.use_dynamic(
            self.image.config_of(RESOURCE_BROKER, ALL_BROKERS),
            self.image.config_of(RESOURCE_BROKER, str(self.node_id)),
        )

    async def next_producer_id(self) -> int:
        """Unique in the cluster for ever: taken from a block that is recorded before it is used. Raises Refused."""
        async with self._producer_ids_lock:
            for producer_id in self._producer_ids:
                return producer_id
            block = await self.decide(lambda controller: controller.allocate_producer_ids(self.node_id))
            self._producer_ids = iter(block)
            return next(self._producer_ids)

    def endpoint_for(self, context: "RequestContext", broker_id: int) -> tuple[str, int, str | None]:
        """Host, port and rack to tell this client. For ourselves, unless `advertised.listeners` is set: the address by
        which the client has just reached us, which is one that works."""
        registered = self.image.brokers[broker_id]
        if broker_id == self.node_id and not self.settings["advertised.listeners"]:
            host, port = context.local_address
            return host, port, registered.rack
        return registered.host, registered.port, registered.rack

    def _topic_config(self, topic: str) -> LogConfig:
        return LogConfig.from_settings(self._controller.topic_settings(topic))

    # Partitions

    async def advance_log_start(self, partition: Partition, offset: int) -> None:
        await self.hosting.advance_log_start(partition, offset)

    def disk_space(self) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds the data."""
        try:
            usage = shutil.disk_usage(self.data_directory)
        except OSError:
            return -1, -1
        return usage.total, usage.free
