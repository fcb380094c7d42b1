"""The shell around the group coordinator: one runner for each partition of `__consumer_offsets` that this node leads.

A runner replays its partition's log into a GroupShard, hands it requests and the passing of time, and performs the
effects in order. Records are replayed at once and appended at the end of the event loop's turn, all that came in it as
one batch; answers leave when the log that they rest on is committed. If an append fails, the shard is thrown away and
loaded anew; whoever waits is told to look for the coordinator again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.log_reader import read_batches
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.partition.partition import Partition
from penstock.coordinator.effects import Answer, Append, CoordinatorRecord, Effect
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.group.shard import GroupShard
from penstock.log.log import Flush
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record, build_batch, iterate_records

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.groups")

OFFSETS_TOPIC = "__consumer_offsets"
_BATCHES_PER_TURN = 200
_RELOAD_SECONDS = 1.0

# What a request asks of its shard, with the token of its answer and the time.
Invoke = Callable[[GroupShard, int, int], list[Effect]]


def partition_of(group_id: str, partition_count: int) -> int:
    """Where Kafka puts a group: Java's hash of the id, over UTF-16 code units, without its sign."""
    code = 0
    data = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        code = (31 * code + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partition_count


class ImageTopics:
    """The topics that coordinators see: those of the metadata image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.version = 0

    def partition_count(self, topic_name: str) -> int | None:
        topic = self._image.topics.get(topic_name)
        return None if topic is None else len(topic.partitions)

    def topic_id(self, topic_name: str) -> UUID | None:
        topic = self._image.topics.get(topic_name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return self._image.topics

    def partition_racks(self, topic_name: str) -> Sequence[frozenset[str]]:
        brokers = self._image.brokers
        topic = self._image.topics.get(topic_name)
        if topic is None or all(broker.rack is None for broker in brokers.values()):
            return ()
        return [
            frozenset(rack for replica in state.replicas if (rack := brokers[replica].rack) is not None)
            for state in topic.partitions.values()
        ]


class ShardRunner:
    def __init__(self, broker: "Broker", partition: Partition, topics: ImageTopics) -> None:
        self._broker = broker
        self._partition = partition
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        # None while it is being loaded.
        self._shard: GroupShard | None = None
        self._tokens = count()
        self._waiting: dict[int, asyncio.Future[Struct]] = {}
        # Of this turn of the loop: replayed but not yet in the log, and the answers that rest on them.
        self._unwritten: list[CoordinatorRecord] = []
        self._unanswered: list[Answer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ms: int | None = None
        self._loading = self._loop.create_task(self._load())

    def handle(self, invoke: Invoke) -> "asyncio.Future[Struct]":
        """The answer, once it is committed. Raises Refused, and so may the future."""
        shard = self._shard
        if shard is None:
            raise Refused(ErrorCode.coordinator_load_in_progress, "the coordinator is reading its log")
        token = next(self._tokens)
        future: asyncio.Future[Struct] = self._loop.create_future()
        self._waiting[token] = future
        self._perform(invoke(shard, token, self._broker.clock.now_ms()))
        return future

    def on_topics_changed(self) -> None:
        if self._shard is not None:
            self._perform(self._shard.on_topics_changed(self._broker.clock.now_ms()))

    @property
    def shard(self) -> GroupShard | None:
        return self._shard

    def stop(self) -> None:
        self._loading.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _load(self) -> None:
        shard = GroupShard(self._broker.settings, self._topics, self._broker.random)
        try:
            for turn, records in enumerate(_read_records(self._partition)):
                for record in records:
                    shard.replay(record)
                if turn % _BATCHES_PER_TURN == 0:
                    # Others are served while a long log is read.
                    await asyncio.sleep(0)
        except DiskError as problem:
            log.error("%s cannot be read, its groups have no coordinator: %s", self._partition.name, problem)
            self._timer = self._loop.call_later(_RELOAD_SECONDS, self._reload)
            return
        self._shard = shard
        self._perform(shard.on_loaded(self._broker.clock.now_ms()))

    def _reload(self) -> None:
        self._loading = self._loop.create_task(self._load())

    def _perform(self, effects: list[Effect]) -> None:
        shard = self._shard
        assert shard is not None
        if effects and not self._unwritten and not self._unanswered:
            self._loop.call_soon(self._write)
        for effect in effects:
            if isinstance(effect, Append):
                for record in effect.records:
                    shard.replay(record)
                self._unwritten += effect.records
            else:
                self._unanswered.append(effect)
        self._schedule()

    def _write(self) -> None:
        """Ends the turn: one batch of all its records, and its answers on their way."""
        records, self._unwritten = self._unwritten, []
        answers, self._unanswered = self._unanswered, []
        if records:
            now_ms = self._broker.clock.now_ms()
            try:
                self._partition.append_own(_batch_of(records, now_ms), now_ms)
            except DiskError as problem:
                self._fail(problem)
                return
        if not answers:
            return
        partition_log = self._partition.log
        if not self._partition.must_sync or partition_log.recovery_point >= partition_log.log_end_offset:
            self._release(answers)
            return
        flush = partition_log.flush()
        self._broker.group_commit.submit(flush.files, lambda problem: self._synced(problem, flush, answers))

    def _synced(self, problem: DiskError | None, flush: Flush, answers: list[Answer]) -> None:
        if problem is not None:
            self._partition.has_failed = True
            self._fail(problem)
            return
        self._partition.log.mark_flushed(flush)
        self._release(answers)

    def _release(self, answers: list[Answer]) -> None:
        for token, body in answers:
            future = self._waiting.pop(token, None)
            if future is not None and not future.done():
                future.set_result(body)

    def _fail(self, problem: DiskError) -> None:
        log.error("%s cannot be written, its groups are loaded anew: %s", self._partition.name, problem)
        self._shard = None
        self._unwritten, self._unanswered = [], []
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(
                    Refused(ErrorCode.coordinator_not_available, "the coordinator could not keep its state")
                )
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_RELOAD_SECONDS, self._reload)

    def _schedule(self) -> None:
        assert self._shard is not None
        deadline_ms = self._shard.next_deadline_ms()
        if self._timer is not None:
            if deadline_ms == self._timer_deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_deadline_ms = deadline_ms
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._broker.clock.now_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._shard is not None:
            self._perform(self._shard.tick(self._broker.clock.now_ms()))


def _batch_of(records: list[CoordinatorRecord], now_ms: int) -> bytearray:
    return build_batch([Record(delta, now_ms, *encode_record(record)) for delta, record in enumerate(records)])


def _read_records(partition: Partition) -> Iterator[list[CoordinatorRecord]]:
    for header, batch in read_batches(partition.log):
        if header.is_control:
            continue
        records = []
        for record in iterate_records(batch, header):
            decoded = None if record.key is None else decode_record(record.key, record.value)
            if decoded is not None:
                records.append(decoded)
        yield records


class GroupCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._topics = ImageTopics(broker.image)
        self._runners: dict[int, ShardRunner] = {}
        self._is_change_pending = False

    def start(self) -> None:
        """Begins to load what there is."""
        for index, partition in self._partitions().items():
            self._runners[index] = ShardRunner(self._broker, partition, self._topics)

    def stop(self) -> None:
        for runner in self._runners.values():
            runner.stop()

    async def make_topic(self) -> None:
        """`__consumer_offsets`, if it is not there yet. Raises Refused."""
        if self._partitions():
            return
        settings = self._broker.settings
        brokers = sum(broker.is_active for broker in self._broker.image.brokers.values())
        topic = NewTopic(
            OFFSETS_TOPIC,
            num_partitions=settings["offsets.topic.num.partitions"],
            # With fewer nodes than replicas wanted, as many as there are: a first group must not wait for more nodes.
            replication_factor=min(settings["offsets.topic.replication.factor"], brokers),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(settings["offsets.topic.segment.bytes"])),
            ),
        )
        (made,) = await self._broker.decide(lambda controller: controller.create_topics([topic]))
        if made.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise Refused(ErrorCode.coordinator_not_available, made.error_message or "no offsets topic")
        if not self._runners:
            self.start()

    def runner_of(self, group_id: str) -> ShardRunner:
        """Raises Refused where this node does not coordinate the group."""
        partitions = self._partitions()
        if not partitions:
            raise Refused(ErrorCode.coordinator_not_available, "there are no groups yet: ask for the coordinator first")
        runner = self._runners.get(partition_of(group_id, len(partitions)))
        if runner is None:
            # It was made this very moment.
            raise Refused(ErrorCode.coordinator_load_in_progress, "the coordinator is about to start")
        return runner

    def runners(self) -> list[ShardRunner]:
        return list(self._runners.values())

    def on_topics_changed(self) -> None:
        """Topics came, went or grew. Many such records come together; the shards are told once."""
        self._topics.version += 1
        if self._runners and not self._is_change_pending:
            self._is_change_pending = True
            asyncio.get_running_loop().call_soon(self._tell_of_topics)

    def _tell_of_topics(self) -> None:
        self._is_change_pending = False
        for runner in self._runners.values():
            runner.on_topics_changed()

    def _partitions(self) -> dict[int, Partition]:
        return self._broker.topics_by_name.get(OFFSETS_TOPIC.encode(), {})
