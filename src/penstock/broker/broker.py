"""The broker as handlers see it: this node's partitions, the cluster's metadata, and how to change either."""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Clock, Disk, DiskError, Random
from penstock.base.settings import NodeSettings
from penstock.broker import replication, throttling
from penstock.broker.absences import Absences
from penstock.broker.appending import Appending
from penstock.broker.broker_life import BrokerLife
from penstock.broker.commits import Commits
from penstock.broker.controller_channel import ControllerChannel
from penstock.broker.controller_runner import ControllerRunner
from penstock.broker.crowd import Crowd
from penstock.broker.fetch.nearest import RACK_AWARE
from penstock.broker.fetch.sessions import SessionCache
from penstock.broker.fetch.waiting import WAKE_BYTES
from penstock.broker.group_commit import GroupCommit
from penstock.broker.group_coordinator import GroupCoordinator
from penstock.broker.hosting import Hosting
from penstock.broker.links import Links
from penstock.broker.log_keeper import LogKeeper
from penstock.broker.metadata_following import RECORDS_OF_A_TURN, CommittedBatch
from penstock.broker.metadata_snapshots import SnapshotRules
from penstock.broker.metrics import BrokerMetrics
from penstock.broker.producer_ids import ProducerIdBlocks
from penstock.broker.quorum_runner import QuorumRunner
from penstock.broker.replication import Replication
from penstock.broker.throttling import Throttling
from penstock.broker.transaction_coordinator import TransactionCoordinator
from penstock.broker.transaction_markers import TransactionMarkers
from penstock.broker.transaction_verification import TransactionVerification
from penstock.cluster.metadata.controller import Controller
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.features import SUPPORTED_FEATURES
from penstock.cluster.metadata.image import ALL_BROKERS, RESOURCE_BROKER, MetadataImage
from penstock.cluster.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.cluster.metadata.snapshot import restore, snapshot_records
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.partition.partition import Partition
from penstock.cluster.raft.roles import QuorumConfig
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.voters import (
    KRAFT_VERSION_RECONFIGURABLE,
    KRAFT_VERSION_STATIC,
    Endpoint,
    Voter,
    VoterSet,
)
from penstock.log.config import LogConfig
from penstock.protocol.messages import Struct

if TYPE_CHECKING:
    from penstock.broker.api import Api, HotApi, RequestContext

log = logging.getLogger("penstock.broker")

T = TypeVar("T")

_CHECKPOINT_SECONDS = 30
_CREATE_TOPICS, _CREATE_TOPICS_VERSION = 19, 7
_ALLOCATE_PRODUCER_IDS = 67
_CONTROLLER_SECONDS_MAX = 10.0
_LEAVE_SECONDS_MAX = 10.0
_QUORUM_LISTENER = "CONTROLLER"


@dataclass(frozen=True)
class Identity:
    """Who this node is, and who decides with it."""

    node_id: int
    cluster_id: str
    directory_id: UUID
    # Id, host and port of every node of a metadata quorum that is fixed.
    voters: tuple[tuple[int, str, int], ...] = ()
    # Host and port of nodes of a cluster to join. Neither these nor voters: this node is a quorum of its own, which
    # others may join.
    bootstrap: tuple[tuple[str, int], ...] = ()


class Broker:
    def __init__(
        self,
        identity: Identity,
        *,
        data_directory: str,
        settings: NodeSettings,
        disk: Disk,
        clock: Clock,
        random: Random,
        boot_id: str | None = None,
        sync_threads: Executor | None = None,
    ) -> None:
        """`boot_id` changes when the machine starts anew; None where there is no telling. Syncs run in
        `sync_threads`, of its own unless given."""
        self.identity = identity
        self.node_id = identity.node_id
        self.cluster_id = identity.cluster_id
        self.data_directory = data_directory
        self.settings = settings
        self.disk = disk
        self.clock = clock
        self.random = random
        self.metrics = BrokerMetrics(settings["slow.request.log.ms"])
        self.image = MetadataImage()
        self.absences = Absences(self.image, clock)
        self.group_commit = GroupCommit(sync_threads)
        self.throttling = Throttling(self.node_id, self.image)
        self.replication = Replication(self)
        self.hosting = Hosting(
            self.node_id,
            disk,
            clock,
            self.image,
            self._topic_config,
            boot_id,
            assume_role=self.replication.assume_role,
            drop=self.replication.drop,
            on_taken_up=lambda: self._settle_coordinators(anew=True),
        )
        self.log_keeper = LogKeeper(self.hosting, disk, clock, settings)
        self.topics_by_name = self.hosting.by_name
        self.topics_by_id = self.hosting.by_id
        self.commits = Commits(self)
        self.appending = Appending(self)
        self.links = Links(self)
        self.groups = GroupCoordinator(self)
        self.producer_ids = ProducerIdBlocks(self)
        self.transactions = TransactionCoordinator(self)
        self.markers = TransactionMarkers(self)
        self.verification = TransactionVerification(self)
        self.fetch_bytes_max: int = settings["fetch.max.bytes"]
        self.sends_to_own_rack = (settings["replica.selector.class"] or "").endswith(RACK_AWARE)
        self.fetch_sessions = SessionCache(
            random,
            sessions_max=settings["max.incremental.fetch.session.cache.slots"],
            eviction_ms=120_000,
        )
        # What the router serves to clients, and how it serves this node's own requests and those that another node
        # passes on; the router sets these.
        self.served_apis: Sequence[Api | HotApi] = ()
        self.ask_here: Callable[[int, int, Struct], Awaitable[Any]] = _no_router
        self.answer_frame: Callable[[bytes], Awaitable[bytes]] = _no_router
        # Otherwise it only controls: it votes, decides, and serves what Kafka's controllers do.
        self.hosts_partitions = "broker" in settings["process.roles"]
        self.crowd = Crowd()
        self.is_ready = asyncio.Event()
        self._is_hosting = False
        # Who waits for the metadata to become what he needs it to be.
        self._watchers: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._checkpoints: asyncio.Task[None] | None = None

    # Life

    def join_quorum(self, host: str, port: int) -> None:
        """Takes up this node's part in the metadata quorum. From here on peers must be able to reach it. Raises
        DiskError."""
        identity = self.identity
        if identity.voters:
            # A fixed quorum knows its voters by their node ids alone.
            kraft_version, directory_id = KRAFT_VERSION_STATIC, None
        else:
            kraft_version, directory_id = KRAFT_VERSION_RECONFIGURABLE, identity.directory_id
        own = _voter(self.node_id, host, port, directory_id)
        voters = [_voter(*voter) for voter in identity.voters] or ([] if identity.bootstrap else [own])
        self.quorum = QuorumRunner(
            QuorumConfig(
                self.cluster_id,
                listener=_QUORUM_LISTENER,
                election_timeout_ms=self.settings["controller.quorum.election.timeout.ms"],
                election_backoff_ms_max=self.settings["controller.quorum.election.backoff.max.ms"],
                fetch_timeout_ms=self.settings["controller.quorum.fetch.timeout.ms"],
                request_timeout_ms=self.settings["controller.quorum.request.timeout.ms"],
                # It may be made a voter at any time, and then counts with all it has.
                sync_as_observer=not identity.voters,
                bootstrap_servers=identity.bootstrap,
            ),
            own,
            VoterSet(voters),
            kraft_version=kraft_version,
            disk=self.disk,
            clock=self.clock,
            random=self.random,
            group_commit=self.group_commit,
            listener=self,
            is_clean=self.hosting.was_clean,
            snapshot_rules=SnapshotRules(
                bytes_between=self.settings["metadata.log.max.record.bytes.between.snapshots"],
                ms_between=self.settings["metadata.log.max.snapshot.interval.ms"],
            ),
            segment_bytes=self.settings["metadata.log.segment.bytes"],
        )
        self.controller = ControllerRunner(self.quorum, self.settings, self.clock, self.random, self.cluster_id)
        self.channel = ControllerChannel(
            self.node_id,
            lambda: self.quorum.leader_id,
            self.quorum.locate,
            lambda api_key, version, body: self.ask_here(api_key, version, body),
        )
        self.life = BrokerLife(
            self.channel,
            self.settings,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=UUID(bytes=self.random.random_bytes(16), version=4),
            log_directory_id=self.identity.directory_id,
            features=[
                Struct(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            applied_offset=lambda: self.quorum.applied_offset,
            known_epoch=lambda: self.image.brokers[self.node_id].epoch if self.node_id in self.image.brokers else -1,
            is_outcast=lambda: self.quorum.is_outcast,
        )
        if self.quorum.is_stranded:
            raise DiskError(
                "the metadata say that this node votes with another directory id than meta.properties has. Put the "
                "meta.properties back that were here when the node last ran"
            )
        self.quorum.start()

    async def start(self, host: str, port: int) -> None:
        """Registers with the controller, takes over partitions, and is ready when it may serve; a node that only
        controls, when there is a quorum. Raises DiskError and Refused."""
        if not self.hosts_partitions:
            await self.until(lambda: self.quorum.leader_id >= 0)
            self.is_ready.set()
            return
        await self.life.register(host, port, self.hosting.previous_broker_epoch)
        await self.quorum.applied(self.life.epoch + 1)
        self._use_broker_configs()
        self.throttling.reconfigure({})
        self.hosting.load()
        self._is_hosting = True
        self.life.start()
        await self.until(self._is_unfenced)
        self._settle_coordinators()
        self.log_keeper.start()
        self._checkpoints = asyncio.create_task(self._write_checkpoints())
        self.is_ready.set()

    async def take_leave(self) -> None:
        """Hands over what this node leads, so that nobody misses it. Called while it still serves."""
        if self.hosts_partitions and len(self.image.brokers) > 1:
            await self.life.take_leave(_LEAVE_SECONDS_MAX)
        await self.quorum.stop()

    def stop(self) -> None:
        """A clean end. Nothing may be served any more."""
        if self._checkpoints is not None:
            self._checkpoints.cancel()
        self.log_keeper.stop()
        self.life.stop()
        self.replication.stop()
        self.transactions.stop()
        self.producer_ids.stop()
        self.groups.shards.stop()
        self.links.stop()
        self.controller.deactivate()
        self.channel.close()
        self.group_commit.stop()
        is_clean = True
        try:
            self.quorum.close()
        except DiskError as problem:
            log.error("the metadata log could not be closed properly, the next start will check it: %s", problem)
            is_clean = False
        self.hosting.close(is_clean=is_clean, broker_epoch=self.life.epoch)

    def _is_unfenced(self) -> bool:
        known = self.image.brokers.get(self.node_id)
        return known is not None and known.epoch == self.life.epoch and not known.fenced

    async def _write_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(_CHECKPOINT_SECONDS)
            try:
                await self.hosting.checkpoint()
            except DiskError as problem:
                log.error("checkpoints could not be written, recovery after a crash would take longer: %s", problem)

    # Following the metadata

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, records: Iterator[list[MetadataRecord]]) -> None:
        restore(self.image, chain.from_iterable(records), snapshot_id.offset)
        if self._is_hosting:
            self._use_broker_configs()
            self.hosting.reconcile()
            self.replication.reconfigure()
            self.throttling.reconfigure(self.hosting.by_name)
            self.groups.on_topics_changed()
        self._settle_coordinators()
        self._tell_watchers()

    def gather(self) -> Sequence[MetadataRecord] | None:
        return list(snapshot_records(self.image)) if self.image.is_whole else None

    def on_committed(self, batch: CommittedBatch) -> Iterator[None]:
        # The quorum's own control batches are no records of the image.
        self.image.end_offset = batch.base_offset
        for record in batch.records:
            self.image.replay(record)
            self.absences.follow(record)
        if self._is_hosting:
            # After all of it is in the image: a partition's new ISR belongs together with that a broker is fenced.
            for number, record in enumerate(batch.records, 1):
                self._follow(record)
                if number % RECORDS_OF_A_TURN == 0:
                    # The image is whole: what is not hosted yet is refused like what has just moved away.
                    yield
            self._follow_settings({record.name for record in batch.records if isinstance(record, ConfigRecord)})
        self.replication.on_metadata_applied()
        self._settle_coordinators()
        self._tell_watchers()

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        log.info("epoch %d of the metadata quorum: %s leads", epoch, "nobody" if leader_id < 0 else f"node {leader_id}")
        self._tell_watchers()

    def on_leading(self, epoch: int) -> None:
        self.controller.activate(self.image)

    def on_stopped_leading(self, epoch: int) -> None:
        self.controller.deactivate()

    def _settle_coordinators(self, *, anew: bool = False) -> None:
        if self._is_hosting:
            self.groups.shards.settle(anew=anew)
            self.transactions.shards.settle(anew=anew)

    def _follow(self, record: MetadataRecord) -> None:
        if isinstance(record, ConfigRecord) and record.resource_type == RESOURCE_BROKER:
            self._use_broker_configs()
        self.hosting.apply(record)
        if isinstance(record, TopicRecord | PartitionRecord | RemoveTopicRecord):
            self.groups.on_topics_changed()

    def _follow_settings(self, names: Set[str]) -> None:
        """Once for a batch, and only where one of them matters: both look at everything that this node has."""
        if names & replication.SETTINGS:
            self.replication.reconfigure()
        if names & throttling.SETTINGS:
            self.throttling.reconfigure(self.hosting.by_name)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for the metadata to become so."""
        if condition():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append((condition, future))
        await future

    def _tell_watchers(self) -> None:
        still = []
        for condition, future in self._watchers:
            if future.done():
                continue
            if condition():
                future.set_result(None)
            else:
                still.append((condition, future))
        self._watchers = still

    @property
    def metadata_offset(self) -> int:
        return self.quorum.applied_offset - 1

    @property
    def controller_id(self) -> int:
        """Whom clients are told to ask. Any node passes requests on: ourselves, while nobody else is known to serve."""
        leader = self.image.brokers.get(self.quorum.leader_id)
        return self.node_id if leader is None or leader.fenced else leader.id

    # Changing the metadata

    async def decide(self, decide: Callable[[Controller], Decision[T]]) -> T:
        """Lets the controller decide, which must be this node's: handlers that say so are asked there only. The answer
        comes when the decision is committed. Raises Refused."""
        return await self.controller.decide(decide)

    async def create_topics(self, topics: Sequence[NewTopic]) -> Sequence[Any]:
        """What became of each: `name`, `error_code`, `error_message`. Those that were made are known here. Raises
        Refused."""
        body = Struct(
            topics=[
                Struct(
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[],
                    configs=[Struct(name=name, value=value) for name, value in topic.configs],
                )
                for topic in topics
            ],
            timeout=int(_CONTROLLER_SECONDS_MAX * 1000),
            validate_only=False,
        )
        answer = await self.channel.request(
            _CREATE_TOPICS, _CREATE_TOPICS_VERSION, body, seconds_max=_CONTROLLER_SECONDS_MAX
        )
        made = [topic.name for topic in answer.topics if topic.error_code == ErrorCode.none]
        await self.until(lambda: all(name in self.image.topics for name in made))
        results: Sequence[Any] = answer.topics
        return results

    async def allocate_producer_ids(self) -> range:
        """A block of ids that nobody else is given. Raises Refused."""
        body = Struct(broker_id=self.node_id, broker_epoch=self.life.epoch)
        answer = await self.channel.request(_ALLOCATE_PRODUCER_IDS, 0, body, seconds_max=_CONTROLLER_SECONDS_MAX)
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise Refused(code, f"the controller gives no producer ids: {code.name}")
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    def _use_broker_configs(self) -> None:
        self.settings.use_dynamic(
            self.image.config_of(RESOURCE_BROKER, ALL_BROKERS),
            self.image.config_of(RESOURCE_BROKER, str(self.node_id)),
        )

    def replicas_of_internal_topics(self, wanted: int) -> int:
        """As many as are wanted; in a cluster that is smaller by design, as many as it has nodes: one node needs
        no settings. Nodes that are yet to come are counted: a topic that was made with too few would stay so."""
        return min(wanted, max(len(self.image.brokers), self.quorum.voter_count, 1))

    def endpoint_for(self, context: "RequestContext", broker_id: int) -> tuple[str, int, str | None]:
        """Host, port and rack to tell this client. For ourselves, unless `advertised.listeners` is set: the address by
        which the client has just reached us, which is one that works."""
        registered = self.image.brokers[broker_id]
        if broker_id == self.node_id and not self.settings["advertised.listeners"]:
            host, port = context.local_address
            return host, port, registered.rack
        return registered.host, registered.port, registered.rack

    def _topic_config(self, topic: str) -> LogConfig:
        return LogConfig.from_settings(self.settings.topic_values(self.image.topic_configs(topic)))

    # Partitions

    async def advance_log_start(self, partition: Partition, offset: int) -> None:
        await self.hosting.advance_log_start(partition, offset)
        partition.tell_replicas(WAKE_BYTES)

    def disk_space(self) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds the data."""
        try:
            usage = shutil.disk_usage(self.data_directory)
        except OSError:
            return -1, -1
        return usage.total, usage.free


def _voter(node_id: int, host: str, port: int, directory_id: UUID | None = None) -> Voter:
    return Voter(node_id, directory_id, (Endpoint(_QUORUM_LISTENER, host, port),))


def _no_router(*_: Any) -> Awaitable[Any]:
    raise AssertionError("a broker without a router cannot ask itself")
