"""A node keeps its logs in shape: on a simulated disk, at times that the test decides."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from uuid import UUID

import pytest

from penstock.base.ports import Disk
from penstock.base.settings import NodeSettings
from penstock.broker.broker import Broker, Identity
from penstock.broker.cleaner_helper import Report
from penstock.broker.ports import RealDisk, SystemRandom
from penstock.broker.router import Router
from penstock.cluster.metadata.configs import Change, ResourceChanges
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.partition.partition import Partition
from penstock.log.checkpoints import CLEANER_OFFSETS_FILE, LOG_START_OFFSETS_FILE
from penstock.log.compaction import CompactionJob
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.compacted import keyed, pairs_in

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
TOPIC_RESOURCE, SET = 2, 0


class HandClock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class World:
    # Of the topics it makes.
    partitions = 1

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.clock = HandClock()
        self.broker = self.make()

    def make(self) -> Broker:
        broker = Broker(
            Identity(1, "simulated", UUID(int=1 << 64)),
            data_directory="/",
            settings=NodeSettings({"node.id": "1"}),
            disk=self.disk,
            clock=self.clock,
            random=SystemRandom(),
        )
        # It asks itself through the router.
        Router(broker)
        return broker

    async def topic(self, name: str, **configs: str) -> Partition:
        settings = [(key.replace("_", "."), value) for key, value in configs.items()]
        topic = NewTopic(name, self.partitions, 1, configs=settings)
        (made,) = await self.broker.decide(lambda controller: controller.create_topics([topic]))
        assert made.error_code == 0, made
        return self.partition(name)

    async def alter(self, name: str, setting: str, value: str) -> None:
        changes = ResourceChanges(TOPIC_RESOURCE, name, [Change(setting, value, SET)])
        (altered,) = await self.broker.decide(lambda controller: controller.incremental_alter_configs([changes]))
        assert altered.error_code == 0, altered

    async def delete(self, name: str) -> None:
        (deleted,) = await self.broker.decide(lambda controller: controller.delete_topics([(name, None)]))
        assert deleted.error_code == 0, deleted

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.broker.topics_by_name[name.encode()][index]

    def put(self, partition: Partition, key: bytes, value: bytes = b"", size: int = 0) -> None:
        partition.append_own(keyed((key, value + bytes(size)), now_ms=self.clock.ms), self.clock.ms)

    async def restart(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.broker.stop()
        meanwhile()
        self.broker = self.make()
        self.broker.join_quorum("localhost", 1)
        await self.broker.start("localhost", 1)

    def names(self, directory: str) -> list[str]:
        return self.disk.list(directory)


async def until(condition: Callable[[], bool], pause_s: float = 0.01) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(pause_s)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.broker.join_quorum("localhost", 1)
    await world.broker.start("localhost", 1)
    yield world
    world.broker.stop()


async def test_segments_go_when_they_are_too_old(world: World) -> None:
    partition = await world.topic("t", retention_ms=str(HOUR_MS), segment_ms="1000")
    for _ in range(4):
        world.put(partition, b"k")
        world.clock.ms += HOUR_MS // 2
    await world.broker.log_keeper.drop_what_is_due()
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 4)
    assert world.broker.log_keeper.totals.segments_deleted == 2


async def test_the_last_segment_goes_too_and_the_log_keeps_its_end(world: World) -> None:
    partition = await world.topic("t", retention_ms=str(HOUR_MS))
    for _ in range(3):
        world.put(partition, b"k")
    world.clock.ms += HOUR_MS
    await world.broker.log_keeper.drop_what_is_due()
    assert partition.log.log_start_offset == 0
    world.clock.ms += 1
    await world.broker.log_keeper.drop_what_is_due()
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (3, 3)
    await world.restart()
    partition = world.partition("t")
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (3, 3)
    world.put(partition, b"k")
    assert partition.log.log_end_offset == 4


async def test_segments_go_when_there_is_too_much_of_them(world: World) -> None:
    # As in Kafka, never so much that less than retention.bytes is left.
    partition = await world.topic("t", retention_bytes="2500", internal_segment_bytes="1000")
    for _ in range(6):
        world.put(partition, b"k", size=800)
    await world.broker.log_keeper.drop_what_is_due()
    assert partition.log.size >= 2500
    assert partition.log.size - partition.log.segments.first.size < 2500
    assert partition.log.log_start_offset == 3


async def test_settings_count_from_when_they_are_altered(world: World) -> None:
    partition = await world.topic("t", segment_ms="1000")
    for _ in range(3):
        world.put(partition, b"k")
        world.clock.ms += HOUR_MS
    await world.broker.log_keeper.drop_what_is_due()
    assert partition.log.log_start_offset == 0
    await world.alter("t", "retention.ms", str(2 * HOUR_MS))
    await world.broker.log_keeper.drop_what_is_due()
    assert partition.log.log_start_offset == 1
    await world.alter("t", "cleanup.policy", "compact")
    world.clock.ms += 9 * HOUR_MS
    await world.broker.log_keeper.drop_what_is_due()
    assert partition.log.log_start_offset == 1


async def test_leaders_hear_of_settings_that_are_theirs_and_of_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.topic("t")
    told: list[str] = []
    monkeypatch.setattr(world.broker.replication, "reconfigure", lambda: told.append("replication"))
    monkeypatch.setattr(world.broker.throttling, "reconfigure", lambda _: told.append("throttling"))
    await world.alter("t", "retention.ms", "1234")
    assert told == []
    await world.alter("t", "min.insync.replicas", "2")
    assert told == ["replication"]
    await world.alter("t", "leader.replication.throttled.replicas", "0:1")
    assert told == ["replication", "throttling"]


async def test_a_log_that_nobody_uses_is_not_brought_up_until_something_is_due(world: World) -> None:
    partition = await world.topic("t", retention_ms=str(HOUR_MS))
    world.put(partition, b"k")
    await world.restart()
    keeper = world.broker.log_keeper
    await keeper.drop_what_is_due()
    world.clock.ms += HOUR_MS - 1
    await keeper.drop_what_is_due()
    opened = world.partition("t").loaded_log
    assert opened is None or not opened.is_loaded
    world.clock.ms += 2
    await keeper.drop_what_is_due()
    assert world.partition("t").log.log_start_offset == 1


async def test_files_stay_for_their_delay_and_readers_finish(world: World) -> None:
    partition = await world.topic("t", retention_ms=str(HOUR_MS), segment_ms="1000", file_delete_delay_ms="50")
    for number in range(3):
        world.put(partition, b"k%d" % number)
        world.clock.ms += HOUR_MS
    found = partition.log.read(0, 1 << 20, 3)
    assert found is not None
    before = found.file.read(found.position, found.length)
    await world.broker.log_keeper.drop_what_is_due()
    assert partition.log.log_start_offset == 2
    assert found.file.read(found.position, found.length) == before
    assert [name for name in world.names("t-0") if name.endswith(".deleted")]
    await until(lambda: not [name for name in world.names("t-0") if name.endswith(".deleted")])


async def compacted(world: World, name: str = "c", **configs: str) -> Partition:
    chosen = {"cleanup_policy": "compact", "internal_segment_bytes": "1000", "file_delete_delay_ms": "0"} | configs
    return await world.topic(name, **chosen)


async def test_compacted_topics_are_compacted_and_the_checkpoint_tells_up_to_where(world: World) -> None:
    partition = await compacted(world)
    for number in range(50):
        world.put(partition, b"k%d" % (number % 5), b"%d" % number, size=100)
    keeper = world.broker.log_keeper
    dirtiness = keeper.dirtiness(partition)
    assert dirtiness is not None
    assert dirtiness.ratio == 1.0
    await world.broker.log_keeper.compact_all()
    active_base = partition.log.segments.active.base_offset
    assert world.disk.read_file(CLEANER_OFFSETS_FILE) == b"0\n1\nc 0 %d\n" % active_base
    dirtiness = keeper.dirtiness(partition)
    assert dirtiness is not None
    assert (keeper.totals.passes, dirtiness.ratio, dirtiness.first_dirty_offset) == (1, 0.0, active_base)
    assert keeper.totals.bytes_freed > 3000
    below = {offset: pair for offset, pair in pairs_in(partition.log).items() if offset < active_base}
    assert len(below) == 5
    before = pairs_in(partition.log)
    await world.restart()
    assert pairs_in(world.partition("c").log) == before
    await world.broker.log_keeper.compact_all()
    assert world.broker.log_keeper.totals.passes == 0


async def test_a_log_is_compacted_only_when_it_is_dirty_enough_or_has_waited_too_long(world: World) -> None:
    partition = await compacted(world, min_cleanable_dirty_ratio="0.9")
    for number in range(30):
        world.put(partition, b"k%d" % number, size=100)
    await world.broker.log_keeper.compact_all()
    assert world.broker.log_keeper.totals.passes == 1
    for number in range(30):
        world.put(partition, b"k%d" % number, size=100)
    await world.broker.log_keeper.compact_all()
    assert world.broker.log_keeper.totals.passes == 1
    await world.alter("c", "max.compaction.lag.ms", str(HOUR_MS))
    await world.broker.log_keeper.compact_all()
    assert world.broker.log_keeper.totals.passes == 1
    world.clock.ms += HOUR_MS + 1
    await world.broker.log_keeper.compact_all()
    assert world.broker.log_keeper.totals.passes == 2


async def test_nothing_is_compacted_before_min_compaction_lag(world: World) -> None:
    partition = await compacted(world, min_compaction_lag_ms=str(HOUR_MS))
    for _ in range(30):
        world.put(partition, b"k", size=100)
    world.clock.ms += HOUR_MS - 1
    await world.broker.log_keeper.compact_all()
    assert world.broker.log_keeper.totals.passes == 0
    world.clock.ms += 1
    await world.broker.log_keeper.compact_all()
    assert world.broker.log_keeper.totals.passes == 1


async def test_a_damaged_log_is_left_alone_and_the_others_are_compacted(world: World) -> None:
    damaged = await compacted(world, "damaged")
    other = await compacted(world, "other")
    for number in range(30):
        world.put(damaged, b"k", b"%d" % number, size=100)
        world.put(other, b"k", b"%d" % number, size=100)
    assert isinstance(world.disk, SimDisk)
    world.disk.flip_bit("damaged-0/00000000000000000000.log", 150)
    await world.broker.log_keeper.compact_all()
    await world.broker.log_keeper.compact_all()
    totals = world.broker.log_keeper.totals
    assert list(totals.uncleanable) == ["damaged-0"]
    assert totals.passes == 1
    assert other.log.size < damaged.log.size
    await world.delete("damaged")
    await world.broker.log_keeper.compact_all()
    assert world.broker.log_keeper.totals.uncleanable == {}


async def test_a_topic_deleted_during_its_compaction_is_gone_and_its_name_begins_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await compacted(world)
    for number in range(60):
        world.put(partition, b"k%d" % number, b"old", size=100)
    keeper = world.broker.log_keeper
    is_deleted = asyncio.Event()
    compact = keeper._cleaner.run

    async def compact_slowly(job: CompactionJob, bytes_per_second_max: float) -> AsyncGenerator[Report, None]:
        async for report in compact(job, bytes_per_second_max):
            await is_deleted.wait()
            yield report

    monkeypatch.setattr(keeper._cleaner, "run", compact_slowly)
    running = asyncio.create_task(keeper.compact_all())
    await until(lambda: keeper.current_pass is not None, pause_s=0)
    await world.delete("c")
    again = await compacted(world)
    world.put(again, b"k", b"new")
    is_deleted.set()
    await running
    assert keeper.totals.passes == 0
    assert pairs_in(again.log) == {0: (b"k", b"new")}
    await until(lambda: not [name for name in world.names("") if name.endswith("-delete")])
    assert not [name for name in world.names("c-0") if name.endswith(".cleaned")]


async def test_a_pass_that_a_stop_breaks_off_leaves_no_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = await compacted(world)
    for number in range(60):
        world.put(partition, b"k%d" % (number % 5), b"old", size=100)
    keeper = world.broker.log_keeper
    compact = keeper._cleaner.run

    def unfinished() -> list[str]:
        return [name for name in world.names("c-0") if name.endswith(".cleaned")]

    async def compact_in_part(job: CompactionJob, bytes_per_second_max: float) -> AsyncGenerator[Report, None]:
        async for report in compact(job, bytes_per_second_max):
            if unfinished():
                await asyncio.Event().wait()
            yield report

    monkeypatch.setattr(keeper._cleaner, "run", compact_in_part)
    running = asyncio.create_task(keeper.compact_all())
    await until(lambda: bool(unfinished()))
    keeper.stop()
    assert not unfinished()
    running.cancel()
    await asyncio.wait([running])
    assert not unfinished()
    assert len(pairs_in(partition.log)) == 60


async def test_what_is_written_after_a_truncation_is_dirty_and_a_pass_under_way_comes_to_nothing(world: World) -> None:
    partition = await compacted(world)
    keeper = world.broker.log_keeper
    for number in range(60):
        world.put(partition, b"k%d" % number, b"old", size=100)
    await keeper.compact_all()
    for number in range(60):
        world.put(partition, b"x%d" % number, b"old", size=100)
    running = asyncio.create_task(keeper.compact_all())
    await until(lambda: keeper.current_pass is not None, pause_s=0)
    partition.log.truncate_to(20, world.clock.ms)
    keeper.note_truncation(partition, 20)
    for number in range(20, 60):
        world.put(partition, b"k", b"%d" % number, size=100)
    await running
    assert keeper.totals.passes == 1
    dirtiness = keeper.dirtiness(partition)
    assert dirtiness is not None
    assert dirtiness.first_dirty_offset == 20
    await keeper.compact_all()
    found = pairs_in(partition.log)
    active_base = partition.log.segments.active.base_offset
    assert [offset for offset in found if offset < 20] == list(range(20))
    assert [offset for offset in found if 20 <= offset < active_base] == [active_base - 1]


async def test_a_name_used_again_does_not_inherit_where_the_old_topic_began(world: World) -> None:
    partition = await world.topic("t")
    for _ in range(5):
        world.put(partition, b"k")
    await world.broker.advance_log_start(partition, 4)
    assert b"t 0 4" in world.disk.read_file(LOG_START_OFFSETS_FILE)
    await world.delete("t")
    await until(lambda: b"t 0 4" not in world.disk.read_file(LOG_START_OFFSETS_FILE))


@pytest.mark.parametrize(
    "is_left",
    [
        pytest.param(lambda name: True, id="all"),
        pytest.param(lambda name: name != "partition.metadata", id="all but the topic's id"),
        pytest.param(lambda name: False, id="nothing"),
    ],
)
async def test_a_name_used_again_does_not_inherit_what_a_crash_left_of_the_old_topic(
    world: World, is_left: Callable[[str], bool]
) -> None:
    partition = await world.topic("t")
    for _ in range(5):
        world.put(partition, b"k")
    await world.broker.advance_log_start(partition, 4)
    assert isinstance(world.disk, SimDisk)
    files = {path: data for path, data in world.disk.dump().items() if path.startswith("t-0/")}
    left = {path: data for path, data in files.items() if is_left(path.rpartition("/")[2])}
    left[LOG_START_OFFSETS_FILE] = world.disk.read_file(LOG_START_OFFSETS_FILE)
    await world.delete("t")

    def put_back() -> None:
        for path, data in left.items():
            world.disk.make_directory(path.rpartition("/")[0])
            world.disk.write_file(path, data)

    await world.restart(put_back)
    fresh = await world.topic("t")
    world.put(fresh, b"k")
    assert (fresh.log.log_start_offset, fresh.log.log_end_offset) == (0, 1)
    await until(lambda: b"t 0 4" not in world.disk.read_file(LOG_START_OFFSETS_FILE))


async def test_producers_that_were_silent_for_long_are_forgotten(world: World) -> None:
    partition = await world.topic("t")
    batch = keyed((b"k", b"v"), now_ms=world.clock.ms)
    batch[43:57] = (9).to_bytes(8, "big") + (0).to_bytes(2, "big") + (0).to_bytes(4, "big")
    partition.append_own(batch, world.clock.ms)
    assert list(partition.log.producers.producers) == [9]
    world.clock.ms += 24 * HOUR_MS - 1
    await world.broker.log_keeper.expire_producers()
    assert list(partition.log.producers.producers) == [9]
    world.clock.ms += 1
    await world.broker.log_keeper.expire_producers()
    assert list(partition.log.producers.producers) == []


async def test_looking_at_a_thousand_partitions_takes_little_of_the_loop(world: World) -> None:
    world.partitions = 1000
    await world.topic("many", segment_ms="1000")
    for partition in world.broker.topics_by_name[b"many"].values():
        world.put(partition, b"k")
        world.clock.ms += 2000
        world.put(partition, b"k")
    best_s = 9.0
    for _ in range(5):
        started_s = time.process_time()
        await world.broker.log_keeper.drop_what_is_due()
        best_s = min(best_s, time.process_time() - started_s)
    assert best_s < 0.05


async def test_a_node_on_real_files_compacts_in_another_process(tmp_path: object) -> None:
    world = World(RealDisk(str(tmp_path)))
    world.broker.join_quorum("localhost", 1)
    await world.broker.start("localhost", 1)
    partition = await compacted(world, file_delete_delay_ms="60000")
    for number in range(60):
        world.put(partition, b"k%d" % (number % 5), b"%d" % number, size=100)
    await world.broker.log_keeper.compact_all()
    totals = world.broker.log_keeper.totals
    assert (totals.passes, totals.uncleanable) == (1, {})
    active_base = partition.log.segments.active.base_offset
    assert len([offset for offset in pairs_in(partition.log) if offset < active_base]) == 5
    world.broker.stop()
