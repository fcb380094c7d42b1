"""The partitions that live on this node, kept as the metadata says: made, reconfigured, deleted; their logs opened on
first use; their checkpoints written.

Tables are keyed by the bytes that requests carry (topic name in UTF-8, 16 bytes of topic id), so that the hot path
makes no strings.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator

from penstock.base.ports import Clock, Disk, DiskError, MissingFile
from penstock.cluster.metadata.image import RESOURCE_TOPIC, MetadataImage, TopicImage
from penstock.cluster.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from penstock.cluster.partition.partition import Partition
from penstock.log.checkpoints import (
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
# Wakes any waiting fetch, whatever number of bytes it still misses.
_WAKE_BYTES = 1 << 62
_UNSYNCED_BYTES_MAX = 64 * 1024 * 1024


class Hosting:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        image: MetadataImage,
        topic_config: Callable[[str], LogConfig],
        boot_id: str | None,
    ) -> None:
        self.by_name: dict[bytes, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self._disk = disk
        self._clock = clock
        self._image = image
        self._topic_config = topic_config
        self._recovery_points = self._read_offsets(RECOVERY_POINTS_FILE)
        self._log_start_offsets = self._read_offsets(LOG_START_OFFSETS_FILE)
        self._synced_sizes: dict[TopicPartition, int] = {}
        self._boot_id = boot_id
        self.was_clean = self._read_clean_shutdown()
        # From here on a crash is a crash, until `close` says otherwise.
        disk.remove(_CLEAN_SHUTDOWN_FILE)

    def __iter__(self) -> Iterator[Partition]:
        for hosted in self.by_name.values():
            yield from hosted.values()

    # Following the metadata

    def load(self) -> None:
        """Takes over the image as it is, at start-up. After a crash every log is opened, which recovers it."""
        for topic in self._image.topics.values():
            self._host_topic(topic)
        for directory in self._disk.list(""):
            if directory.endswith(_DELETED_SUFFIX):
                self._disk.remove(directory)
        if not self.was_clean:
            for partition in self:
                if self._disk.exists(partition.name):
                    self._open_and_report(partition)

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
        if hosted is None:
            hosted = self.by_id[topic.id.bytes] = self.by_name[topic.name.encode()] = {}
        partition = hosted.get(index)
        if partition is None:
            # The partitions of a topic share one configuration object.
            sibling = next(iter(hosted.values()), None)
            hosted[index] = Partition(
                topic.name,
                topic.id,
                index,
                self._topic_config(topic.name) if sibling is None else sibling.config,
                replicas=state.replicas,
                isr=state.isr,
                leader_epoch=state.leader_epoch,
                open_log=self._open_log,
            )
        else:
            partition.replicas = state.replicas
            partition.isr = state.isr
            partition.leader_epoch = state.leader_epoch

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
            self._recovery_points.pop((partition.topic, partition.index), None)
            self._log_start_offsets.pop((partition.topic, partition.index), None)
            for wake in tuple(partition.append_listeners or ()):
                wake(_WAKE_BYTES)
            try:
                if self._disk.exists(partition.name):
                    self._remove_later(partition.log.delete(), partition)
            except DiskError as problem:
                log.error("%s is deleted, but its files are still there: %s", partition.name, problem)

    def _remove_later(self, path: str, partition: Partition) -> None:
        """What is out of the way already goes for good when answers under way have had time to finish."""
        loop = asyncio.get_running_loop()
        delay_seconds = partition.config.file_delete_delay_ms / 1000
        loop.call_later(delay_seconds, loop.run_in_executor, None, self._disk.remove, path)

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

    def _refuse_foreign_directory(self, partition: Partition) -> None:
        """A directory of another topic id is what a crash left of a deleted topic of the same name."""
        path = f"{partition.name}/{PARTITION_METADATA_FILE}"
        try:
            found = parse_partition_metadata(self._disk.read_file(path), path)
        except MissingFile:
            return
        if found != partition.topic_id:
            self._disk.rename(partition.name, f"{partition.name}.{found.hex}{_DELETED_SUFFIX}")

    def _open_and_report(self, partition: Partition) -> None:
        for note in partition.log.recovery_notes:
            log.warning("%s: %s", partition.name, note)

    async def advance_log_start(self, partition: Partition, offset: int) -> None:
        """Makes the records below `offset` unreachable, durably; whole segments go later. Raises DiskError."""
        doomed = partition.log.advance_log_start(offset)
        self._log_start_offsets[partition.topic, partition.index] = partition.log.log_start_offset
        await asyncio.to_thread(self._disk.write_file, LOG_START_OFFSETS_FILE, format_offsets(self._log_start_offsets))
        for path in doomed:
            self._remove_later(path, partition)

    # Checkpoints

    async def checkpoint(self) -> None:
        """Writes how far each log is known to be on the disk. Logs that have grown much since are synced first, so that
        recovery after a crash has little to check; in a thread of its own, so that no `acks=all` waits for it."""
        for partition in list(self):
            opened = partition.loaded_log
            if opened is None:
                continue
            key = (partition.topic, partition.index)
            if opened.size - self._synced_sizes.get(key, 0) >= _UNSYNCED_BYTES_MAX:
                size, flush = opened.size, opened.flush()
                await asyncio.to_thread(_sync, flush)
                opened.mark_flushed(flush)
                self._synced_sizes[key] = size
            self._recovery_points[key] = opened.recovery_point
        await asyncio.to_thread(self._disk.write_file, RECOVERY_POINTS_FILE, format_offsets(self._recovery_points))

    def close(self, *, is_clean: bool) -> None:
        """Leaves everything so that the next start need not look at any log; if that cannot be done, the next start
        takes it for a crash. Blocks: nobody is served any more."""
        for partition in self:
            opened = partition.loaded_log
            if opened is None:
                continue
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
            self._write_checkpoints(is_clean)
        except DiskError as problem:
            log.error("checkpoints could not be written, the next start will check every log: %s", problem)

    def _write_checkpoints(self, is_clean: bool) -> None:
        self._disk.write_file(RECOVERY_POINTS_FILE, format_offsets(self._recovery_points), durable=False)
        self._disk.write_file(LOG_START_OFFSETS_FILE, format_offsets(self._log_start_offsets), durable=False)
        if not is_clean:
            return
        marker: dict[str, object] = {"version": 0, "brokerEpoch": -1}
        if self._boot_id is None:
            self._disk.sync_all()
        else:
            # What is in the page cache outlives this process, though not the machine: so the marker counts only
            # until the next boot, and stopping need not wait for the disk.
            marker["bootId"] = self._boot_id
        self._disk.write_file(_CLEAN_SHUTDOWN_FILE, json.dumps(marker).encode())

    def _read_clean_shutdown(self) -> bool:
        try:
            marker = json.loads(self._disk.read_file(_CLEAN_SHUTDOWN_FILE))
        except (MissingFile, ValueError):
            return False
        return isinstance(marker, dict) and marker.get("bootId", self._boot_id) == self._boot_id

    def _read_offsets(self, path: str) -> dict[TopicPartition, int]:
        try:
            return parse_offsets(self._disk.read_file(path), path)
        except MissingFile:
            return {}


def _sync(flush: Flush) -> None:
    for file in flush.files:
        file.sync()
