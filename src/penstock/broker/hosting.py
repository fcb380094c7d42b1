"""The partitions that live on this node, kept as the metadata says: made, reconfigured, deleted; their logs opened on
first use; their checkpoints written.

Tables are keyed by the bytes that requests carry (topic name in UTF-8, 16 bytes of topic id), so that the hot path
makes no strings.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from uuid import UUID

from penstock.base.ports import Clock, Disk, DiskError, DiskFull, MissingFile
from penstock.broker.fetch.waiting import WAKE_BYTES
from penstock.cluster.metadata.image import RESOURCE_TOPIC, MetadataImage, PartitionImage, TopicImage
from penstock.cluster.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from penstock.cluster.partition.partition import Partition
from penstock.log.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    TopicPartition,
    format_offsets,
    parse_offsets,
    parse_partition_metadata,
)
from penstock.log.config import LogConfig
from penstock.log.log import Flush, Log

log = logging.getLogger("penstock.hosting")

_CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
_DELETED_SUFFIX = "-delete"
# What is none of ours and yet nobody's to delete, as Kafka names it.
_STRAY_SUFFIX = "-stray"
_NO_EPOCH = -1
_UNSYNCED_BYTES_MAX = 64 * 1024 * 1024
# Bringing a log up after a crash may take a while, and nobody is served meanwhile.
_SPACE_LOOK_SECONDS = 5.0


class Hosting:
    def __init__(
        self,
        node_id: int,
        disk: Disk,
        clock: Clock,
        image: MetadataImage,
        topic_config: Callable[[str], LogConfig],
        boot_id: str | None,
        *,
        assume_role: Callable[[Partition, PartitionImage, int], None],
        drop: Callable[[Partition], None],
        on_taken_up: Callable[[], None],
    ) -> None:
        """`assume_role` makes a partition lead or follow, as the image says, given the high watermark that was kept of
        it; `drop` ends that. `on_taken_up` is told of roles that had to wait for space, and are assumed now."""
        self.by_name: dict[bytes, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self._node_id = node_id
        self._disk = disk
        self._clock = clock
        self._image = image
        self._topic_config = topic_config
        self._recovery_points = self.read_offsets(RECOVERY_POINTS_FILE)
        self._log_start_offsets = self.read_offsets(LOG_START_OFFSETS_FILE)
        self._high_watermarks = self.read_offsets(HIGH_WATERMARKS_FILE)
        self._assume_role = assume_role
        self._drop = drop
        self._on_taken_up = on_taken_up
        # Whose logs could not be brought up for want of space.
        self._lacking_space: dict[Partition, None] = {}
        self._space_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        # What a start has found out must not be forgotten by the next one.
        self._lacks_something = False
        self._offsets_lock = asyncio.Lock()
        self._stale_offset_files: list[str] = []
        self._forgetting: asyncio.Task[None] | None = None
        self._synced_sizes: dict[TopicPartition, int] = {}
        self._boot_id = boot_id
        self.was_clean, self.previous_broker_epoch = self._read_clean_shutdown()
        self.isr_shrinks = 0
        self.isr_expands = 0
        # From here on a crash is a crash, until `close` says otherwise.
        disk.remove(_CLEAN_SHUTDOWN_FILE)

    def __iter__(self) -> Iterator[Partition]:
        for hosted in self.by_name.values():
            yield from hosted.values()

    # Following the metadata

    def load(self) -> None:
        """Takes over the image as it is, at start-up. After a crash every log is opened, which recovers it."""
        self._refuse_missing_directories()
        for topic in self._image.topics.values():
            self._host_topic(topic)
        for directory in self._disk.list(""):
            if directory.endswith(_DELETED_SUFFIX):
                self._disk.remove(directory)
        if not self.was_clean:
            for partition in self:
                if self._disk.exists(partition.name) and not partition.has_failed:
                    self._open_and_report(partition)

    def reconcile(self) -> None:
        """The image was replaced as a whole: follows what has become different."""
        gone = [topic_id for topic_id in self.by_id if UUID(bytes=topic_id) not in self._image.topics_by_id]
        for topic_id in gone:
            self._delete_topic(topic_id)
        # Before the roles, which go by them.
        for name in self.by_name:
            self._reconfigure(name)
        for topic in self._image.topics.values():
            self._host_topic(topic)

    def apply(self, record: MetadataRecord) -> None:
        """Follows one record that the image has just replayed."""
        match record:
            case PartitionRecord() | PartitionChangeRecord():
                topic = self._image.topics_by_id.get(record.topic_id)
                if topic is not None:
                    self._host_partition(topic, record.partition_id)
            case RemoveTopicRecord():
                self._delete_topic(record.topic_id.bytes)
            case ConfigRecord() if record.resource_type == RESOURCE_TOPIC:
                self._reconfigure(record.resource_name.encode())
            case ConfigRecord():
                # Topic defaults hang on broker settings.
                for name in self.by_name:
                    self._reconfigure(name)

    def _host_topic(self, topic: TopicImage) -> None:
        for index in range(len(topic.partitions)):
            self._host_partition(topic, index)

    def _host_partition(self, topic: TopicImage, index: int) -> None:
        state = topic.partitions[index]
        hosted = self.by_id.get(topic.id.bytes)
        partition = None if hosted is None else hosted.get(index)
        if self._node_id not in state.replicas:
            if partition is not None:
                self._evict(partition)
            return
        if hosted is None:
            hosted = self.by_id[topic.id.bytes] = self.by_name[topic.name.encode()] = {}
        if partition is None:
            # The partitions of a topic share one configuration object.
            sibling = next(iter(hosted.values()), None)
            partition = hosted[index] = Partition(
                topic.name,
                topic.id,
                index,
                self._topic_config(topic.name) if sibling is None else sibling.config,
                replicas=state.replicas,
                isr=state.isr,
                leader_epoch=state.leader_epoch,
                open_log=self._open_log,
            )
        self.isr_shrinks += len(state.isr) < len(partition.isr)
        self.isr_expands += len(state.isr) > len(partition.isr)
        partition.replicas = state.replicas
        partition.isr = state.isr
        if partition in self._lacking_space:
            # It takes up its role when its log is there.
            return
        try:
            known = self._high_watermarks.get((topic.name, index), 0)
            self._assume_role(partition, state, known)
        except DiskError as problem:
            self._give_up(partition, problem)

    def _evict(self, partition: Partition) -> None:
        """The partition lives on other nodes now."""
        del self.by_id[partition.topic_id.bytes][partition.index]
        self._remove_partition(partition)

    def _reconfigure(self, name: bytes) -> None:
        hosted = self.by_name.get(name)
        if hosted is None:
            return
        config = self._topic_config(name.decode())
        for partition in hosted.values():
            partition.reconfigure(config)

    def _delete_topic(self, topic_id: bytes) -> None:
        hosted = self.by_id.pop(topic_id, None)
        if hosted is None:
            return
        for partition in hosted.values():
            self.by_name.pop(partition.topic.encode(), None)
            self._remove_partition(partition)

    def _remove_partition(self, partition: Partition) -> None:
        self._drop(partition)
        self._lacking_space.pop(partition, None)
        self._forget_offsets((partition.topic, partition.index))
        for wake in tuple(partition.append_listeners or ()):
            wake(WAKE_BYTES)
        try:
            if self._disk.exists(partition.name):
                self.remove_later([partition.log.delete()], partition)
        except DiskError as problem:
            log.error("%s is deleted, but its files are still there: %s", partition.name, problem)

    def _forget_offsets(self, key: TopicPartition) -> None:
        """A topic of the same name must not inherit where this one began, or how much of it was on the disk."""
        self._synced_sizes.pop(key, None)
        for path, offsets in self._offset_files().items():
            if offsets.pop(key, None) is not None and path not in self._stale_offset_files:
                self._stale_offset_files.append(path)
        if self._stale_offset_files and self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().create_task(self._write_stale_offsets())

    def _offset_files(self) -> dict[str, dict[TopicPartition, int]]:
        return {
            LOG_START_OFFSETS_FILE: self._log_start_offsets,
            RECOVERY_POINTS_FILE: self._recovery_points,
            HIGH_WATERMARKS_FILE: self._high_watermarks,
        }

    async def _write_stale_offsets(self) -> None:
        # Many partitions go together: they are written once.
        while self._stale_offset_files:
            path = self._stale_offset_files.pop()
            try:
                await self.write_offsets(path, self._offset_files()[path])
            except DiskError as problem:
                log.error("%s still names deleted topics: %s", path, problem)
        self._forgetting = None

    def remove_later(self, paths: Sequence[str], partition: Partition) -> None:
        """What is out of the way already goes for good when answers under way have had time to finish."""
        delay_seconds = partition.config.file_delete_delay_ms / 1000
        asyncio.get_running_loop().call_later(delay_seconds, self._remove, paths)

    def _remove(self, paths: Sequence[str]) -> None:
        if self._is_closed:
            # The next start does it.
            return
        for path in paths:
            self._disk.open(path).close()
        asyncio.get_running_loop().run_in_executor(None, self._remove_in_thread, paths)

    def _remove_in_thread(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._disk.remove(path)
            except DiskError as problem:
                log.error("%s is not needed any more, but still there: %s", path, problem)

    # Logs

    def _open_log(self, partition: Partition) -> Log:
        key = (partition.topic, partition.index)
        self._refuse_foreign_directory(partition)
        return Log.open(
            self._disk,
            partition.name,
            partition.config,
            topic_id=partition.topic_id,
            recovery_point=self._recovery_points.get(key, 0),
            clean=self.was_clean,
            log_start_offset=self._log_start_offsets.get(key, 0),
            now_ms=self._clock.now_ms(),
        )

    def _refuse_missing_directories(self) -> None:
        """A replica that has lost its log must not come back as one that has everything: it might be elected, and the
        others would delete what it does not have. After a crash it need not be asked, for then it is in no ISR. Raises
        DiskError."""
        if not self.was_clean:
            return
        for topic, index in self._recovery_points.keys() | self._high_watermarks.keys():
            offset = max(offsets.get((topic, index), 0) for offsets in (self._recovery_points, self._high_watermarks))
            known = self._image.topics.get(topic)
            state = None if known is None else known.partitions.get(index)
            if not offset or state is None or self._node_id not in state.replicas:
                continue
            if not self._disk.exists(f"{topic}-{index}"):
                self._lacks_something = True
                raise DiskError(
                    f"the directory {topic}-{index} is missing, which had records up to {offset} when the node was "
                    "stopped. Put it back; or, if it is lost, start the node once more: it will come back as after a "
                    "crash, and copy the partition from the other replicas, if it has any"
                )

    def _refuse_foreign_directory(self, partition: Partition) -> None:
        """A directory of another topic id is what a crash left of a deleted topic of the same name, or a mistake. One
        whose id a power cut took may be that too; nothing in it was ever synced, since the id goes with the first sync.
        It is put aside, as in Kafka, for somebody to look at."""
        name = partition.name
        path = f"{name}/{PARTITION_METADATA_FILE}"
        try:
            found = parse_partition_metadata(self._disk.read_file(path), path)
        except MissingFile:
            if self._disk.list(name):
                aside = self._put_aside(partition, "unknown")
                log.error("%s does not say of which topic it is, and was never synced: it is kept as %s", name, aside)
            elif not self._disk.exists(name):
                # A crash came after a topic of this name was deleted, and before its offsets were.
                self._forget_offsets((partition.topic, partition.index))
            return
        if found != partition.topic_id:
            aside = self._put_aside(partition, found.hex)
            log.error(
                "%s is of another topic, with the id %s instead of %s: it is kept as %s. Delete it if nobody misses it",
                name,
                found,
                partition.topic_id,
                aside,
            )

    def _put_aside(self, partition: Partition, label: str) -> str:
        names = (f"{partition.name}.{label}{number or ''}{_STRAY_SUFFIX}" for number in count())
        aside = next(name for name in names if not self._disk.exists(name))
        self._disk.rename(partition.name, aside)
        self._forget_offsets((partition.topic, partition.index))
        return aside

    def _open_and_report(self, partition: Partition) -> None:
        try:
            for note in partition.log.recovery_notes:
                log.warning("%s: %s", partition.name, note)
        except DiskError as problem:
            self._give_up(partition, problem)

    def _give_up(self, partition: Partition, problem: DiskError) -> None:
        partition.has_failed = True
        if not isinstance(problem, DiskFull):
            log.error("%s cannot be used: %s", partition.name, problem)
            return
        log.error("%s cannot be used until there is space: %s", partition.name, problem)
        # Whoever asks next may find its log come up, and must not take all of it for committed.
        self._drop(partition)
        partition.await_leader(partition.leader_epoch)
        self._lacking_space[partition] = None
        if self._space_timer is None:
            self._space_timer = asyncio.get_running_loop().call_later(_SPACE_LOOK_SECONDS, self._look_for_space)

    def _look_for_space(self) -> None:
        self._space_timer = None
        waiting, self._lacking_space = self._lacking_space, {}
        while waiting and not self._lacking_space:
            partition, _ = waiting.popitem()
            partition.has_failed = False
            self._open_and_report(partition)
            topic = self._image.topics_by_id.get(partition.topic_id)
            if topic is not None and not partition.has_failed:
                self._host_partition(topic, partition.index)
            if not partition.has_failed:
                log.info("%s has the space that it needs", partition.name)
        # Where there is none for one, the others need not try.
        self._lacking_space.update(waiting)
        self._on_taken_up()

    async def advance_log_start(self, partition: Partition, offset: int) -> None:
        """Makes the records below `offset` unreachable, durably; whole segments go later. Raises DiskError."""
        doomed = partition.log.advance_log_start(offset)
        self._log_start_offsets[partition.topic, partition.index] = partition.log.log_start_offset
        await self.write_offsets(LOG_START_OFFSETS_FILE, self._log_start_offsets)
        self.remove_later(doomed, partition)

    # Checkpoints

    async def checkpoint(self) -> None:
        """Writes how far each log is known to be on the disk. Logs that have grown much since are synced first, so that
        recovery after a crash has little to check; in a thread of its own, so that no `acks=all` waits for it."""
        for partition in list(self):
            opened = partition.loaded_log
            if opened is None:
                continue
            key = (partition.topic, partition.index)
            # Retention and compaction make logs smaller.
            self._synced_sizes[key] = min(self._synced_sizes.get(key, 0), opened.size)
            if opened.size - self._synced_sizes[key] >= _UNSYNCED_BYTES_MAX:
                size, flush = opened.size, opened.flush()
                await asyncio.to_thread(sync_files, flush)
                opened.mark_flushed(flush)
                self._synced_sizes[key] = size
            self._recovery_points[key] = opened.recovery_point
            self._note_high_watermark(partition)
        await self.write_offsets(RECOVERY_POINTS_FILE, self._recovery_points)
        if self._high_watermarks:
            await self.write_offsets(HIGH_WATERMARKS_FILE, self._high_watermarks)

    async def write_offsets(self, path: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Durably, one after the other: what was asked for last is what stays. Raises DiskError."""
        async with self._offsets_lock:
            await asyncio.to_thread(self._disk.write_file, path, format_offsets(offsets))

    def _note_high_watermark(self, partition: Partition) -> None:
        """Alone, a replica's high watermark is the end of its log."""
        if partition.leader is not None or partition.follower is not None:
            self._high_watermarks[partition.topic, partition.index] = partition.high_watermark

    def close(self, *, is_clean: bool, broker_epoch: int) -> None:
        """Leaves everything so that the next start need not look at any log; if that cannot be done, the next start
        takes it for a crash. `broker_epoch` is as which the controller knows this broker, for the next start to tell.
        Blocks: nobody is served any more."""
        self._is_closed = True
        if self._space_timer is not None:
            self._space_timer.cancel()
        is_clean = is_clean and not self._lacks_something and not self._lacking_space
        for partition in self:
            opened = partition.loaded_log
            if opened is None:
                continue
            self._note_high_watermark(partition)
            if opened.may_lack_beginning and not partition.is_leading:
                # Its leader has not been heard yet: the next start must not trust it either.
                is_clean = False
            try:
                opened.close()
            except DiskError as problem:
                log.error("%s could not be closed properly, the next start will check it: %s", partition.name, problem)
                is_clean = False
            key = (partition.topic, partition.index)
            self._recovery_points[key] = opened.recovery_point
            if opened.log_start_offset:
                self._log_start_offsets[key] = opened.log_start_offset
        try:
            self._write_checkpoints(is_clean, broker_epoch)
        except DiskError as problem:
            log.error("checkpoints could not be written, the next start will check every log: %s", problem)

    def _write_checkpoints(self, is_clean: bool, broker_epoch: int) -> None:
        self._disk.write_file(RECOVERY_POINTS_FILE, format_offsets(self._recovery_points), durable=False)
        self._disk.write_file(LOG_START_OFFSETS_FILE, format_offsets(self._log_start_offsets), durable=False)
        if self._high_watermarks:
            self._disk.write_file(HIGH_WATERMARKS_FILE, format_offsets(self._high_watermarks), durable=False)
        if not is_clean:
            return
        marker: dict[str, object] = {"version": 0, "brokerEpoch": broker_epoch}
        if self._boot_id is None:
            self._disk.sync_all()
        else:
            # What is in the page cache outlives this process, though not the machine: so the marker counts only
            # until the next boot, and stopping need not wait for the disk.
            marker["bootId"] = self._boot_id
        self._disk.write_file(_CLEAN_SHUTDOWN_FILE, json.dumps(marker).encode())

    def _read_clean_shutdown(self) -> tuple[bool, int]:
        """Whether the last stop was clean, and the broker's epoch then."""
        try:
            marker = json.loads(self._disk.read_file(_CLEAN_SHUTDOWN_FILE))
        except (MissingFile, ValueError):
            return False, _NO_EPOCH
        if not isinstance(marker, dict) or marker.get("bootId", self._boot_id) != self._boot_id:
            return False, _NO_EPOCH
        epoch = marker.get("brokerEpoch", _NO_EPOCH)
        return True, epoch if isinstance(epoch, int) else _NO_EPOCH

    def read_offsets(self, path: str) -> dict[TopicPartition, int]:
        try:
            return parse_offsets(self._disk.read_file(path), path)
        except MissingFile:
            return {}


def sync_files(flush: Flush) -> None:
    """Blocks. Raises DiskError."""
    for file in flush.files:
        file.sync()
