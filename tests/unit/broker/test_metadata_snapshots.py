"""Snapshots of the metadata: with the rest of the log they make the image that the whole log made, after any crash."""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ports import DiskError
from penstock.broker.group_commit import GroupCommit
from penstock.broker.metadata_following import CommittedBatch
from penstock.broker.metadata_snapshots import SnapshotRules, metadata_records
from penstock.broker.ports import SystemClock, SystemRandom
from penstock.broker.quorum_runner import QuorumRunner
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from penstock.cluster.metadata.snapshot import restore, snapshot_records
from penstock.cluster.raft.control_records import check_snapshot
from penstock.cluster.raft.roles import QuorumConfig
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.stored_log import DIRECTORY
from penstock.cluster.raft.voters import Endpoint, Voter, VoterSet
from penstock.protocol.batch import HEADER_BYTES, read_header
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk

NEVER = SnapshotRules(bytes_between=1 << 40, ms_between=0)
OFTEN = SnapshotRules(bytes_between=600, ms_between=0)


REGISTRATION = RegisterBrokerRecord(
    broker_id=7, incarnation_id=uuid.UUID(int=7), broker_epoch=1, end_points=(), features=(), rack="a"
)


class Follower:
    """Whoever follows the metadata: an image, and how it came to be."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.snapshots = 0
        self.batches = 0

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, records: Iterator[list[MetadataRecord]]) -> None:
        self.snapshots += 1
        restore(self.image, chain.from_iterable(records), snapshot_id.offset)

    def gather(self) -> Sequence[MetadataRecord] | None:
        return list(snapshot_records(self.image)) if self.image.is_whole else None

    def on_committed(self, batch: CommittedBatch) -> Iterator[None]:
        self.batches += 1
        self.image.end_offset = batch.base_offset
        for record in batch.records:
            self.image.replay(record)
        yield from ()

    def on_leader_changed(self, leader_id: int, epoch: int) -> None: ...
    def on_leading(self, epoch: int) -> None: ...
    def on_stopped_leading(self, epoch: int) -> None: ...

    @property
    def contents(self) -> set[str]:
        return {repr(record) for record in snapshot_records(self.image)}


class Run:
    """One life of a quorum of one."""

    def __init__(self, disk: SimDisk, rules: SnapshotRules) -> None:
        self.disk = disk
        self.follower = Follower()
        self.commit = GroupCommit()
        own = Voter(1, None, (Endpoint("CONTROLLER", "127.0.0.1", 9),))
        self.runner = QuorumRunner(
            QuorumConfig("cluster", listener="CONTROLLER"),
            own,
            VoterSet([own]),
            kraft_version=0,
            disk=disk,
            clock=SystemClock(),
            random=SystemRandom(),
            group_commit=self.commit,
            listener=self.follower,
            is_clean=False,
            snapshot_rules=rules,
            segment_bytes=1 << 30,
        )
        self.runner.start()

    async def __aenter__(self) -> "Run":
        await asyncio.wait_for(self.runner.applied(self.runner.next_offset), 30)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.runner.close()
        self.commit.stop()

    async def propose(self, *records: MetadataRecord) -> None:
        made = [Record(index, 0, None, encode_record(record)) for index, record in enumerate(records)]
        await asyncio.wait_for(self.runner.propose(build_batch(made)), 30)

    async def snapshot_written(self) -> None:
        """Waits for the one under way, if there is one."""
        task = self.runner._snapshots._task
        if task is not None:
            await asyncio.wait({task}, timeout=30)


def snapshots(disk: SimDisk) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if name.endswith(".checkpoint")]


def topic(number: int) -> list[MetadataRecord]:
    topic_id = uuid.UUID(int=number + 1)
    return [
        TopicRecord(name=f"topic-{number}", topic_id=topic_id),
        PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1, directories=(uuid.UUID(int=9),)
        ),
        ConfigRecord(resource_type=2, resource_name=f"topic-{number}", name="retention.ms", value=str(number)),
    ]


async def replayed(disk: SimDisk, rules: SnapshotRules = NEVER) -> Follower:
    async with Run(disk, rules) as run:
        return run.follower


def test_a_start_reads_the_snapshot_and_what_came_after_it() -> None:
    async def scenario() -> None:
        disk = SimDisk()
        async with Run(disk, OFTEN) as run:
            await run.propose(REGISTRATION)
            for number in range(40):
                await run.propose(*topic(number))
                await run.snapshot_written()
            await run.propose(RemoveTopicRecord(topic_id=uuid.UUID(int=1)))
            await run.snapshot_written()
            before = run.follower
        # The last two are kept, and each is whole.
        assert len(snapshots(disk)) == 2
        assert all(check_snapshot(disk.read_file(f"{DIRECTORY}/{name}")) is not None for name in snapshots(disk))
        again = await replayed(disk)
        assert again.contents == before.contents
        assert len(again.image.topics) == 39
        # It is fenced: nobody knows since when, but the snapshot tells of it.
        assert 1 < again.image.brokers[7].must_know_offset < again.image.end_offset
        assert again.snapshots == 1
        assert again.batches < 10 < before.batches
        assert again.image.end_offset == before.image.end_offset

    asyncio.run(scenario())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.floats(0, 1),
    st.booleans(),
    st.booleans(),
)
def test_after_a_power_cut_the_snapshot_and_the_rest_are_what_was_committed(
    numbers: list[int], kept: float, is_torn: bool, is_awaited: bool
) -> None:
    async def scenario() -> None:
        disk = SimDisk()
        async with Run(disk, OFTEN) as run:
            there: set[int] = set()
            for number in numbers:
                if number in there:
                    there.discard(number)
                    await run.propose(RemoveTopicRecord(topic_id=uuid.UUID(int=number + 1)))
                else:
                    there.add(number)
                    await run.propose(*topic(number))
                if is_awaited:
                    await run.snapshot_written()
            committed = run.follower.contents
            run.runner._snapshots.stop()
            disk.crash(lambda _, unsynced: int(unsynced * kept), torn=is_torn)
        again = await replayed(disk)
        assert again.contents == committed
        assert {int(name.removeprefix("topic-")) for name in again.image.topics} == there

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", ["append", "sync", "rename"])
def test_a_snapshot_that_cannot_be_written_is_tried_again_and_costs_nothing_else(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk = SimDisk()
        async with Run(disk, OFTEN) as run:
            disk.fail(operation, ".checkpoint.part")
            for number in range(12):
                await run.propose(*topic(number))
                await run.snapshot_written()
            assert len(run.follower.image.topics) == 12
        assert snapshots(disk)
        assert len((await replayed(disk)).image.topics) == 12

    asyncio.run(scenario())
    assert "it will be tried again" in caplog.text


def test_a_damaged_snapshot_stops_the_start_and_deletes_nothing() -> None:
    async def scenario() -> None:
        disk = SimDisk()
        async with Run(disk, OFTEN) as run:
            for number in range(12):
                await run.propose(*topic(number))
                await run.snapshot_written()
        latest = snapshots(disk)[-1]
        path = f"{DIRECTORY}/{latest}"
        files = disk.list(DIRECTORY)
        for position in range(0, len(disk.read_file(path)), 97):
            # The length and the leader epoch of a batch are not under its checksum; the epoch means nothing here.
            disk.flip_bit(path, position, 3)
            data = disk.read_file(path)
            if check_snapshot(data) is None:
                with pytest.raises(DiskError, match="is damaged"):
                    Run(disk, NEVER)
            disk.flip_bit(path, position, 3)
        assert disk.list(DIRECTORY) == files
        assert len((await replayed(disk)).image.topics) == 12

    asyncio.run(scenario())


def test_a_log_without_its_beginning_and_without_a_snapshot_stops_the_start() -> None:
    async def scenario() -> None:
        disk = SimDisk()
        async with Run(disk, OFTEN) as run:
            await run.propose(*topic(0))
            for filler in range(60):
                record = ConfigRecord(
                    resource_type=2, resource_name="topic-0", name="x", value=f"{filler:02d}" * 15_000
                )
                await run.propose(record)
                await run.snapshot_written()
        assert f"{0:020d}.log" not in disk.list(DIRECTORY), "the log was not trimmed"
        for name in snapshots(disk):
            disk.remove(f"{DIRECTORY}/{name}")
        with pytest.raises(DiskError, match="topics would seem to be deleted"):
            Run(disk, NEVER)

    asyncio.run(scenario())


def test_no_snapshot_cuts_a_metadata_transaction_in_two() -> None:
    async def scenario() -> None:
        disk = SimDisk()
        async with Run(disk, OFTEN) as run:
            await run.propose(BeginTransactionRecord(name="many"))
            for number in range(10):
                await run.propose(*topic(number))
                await run.snapshot_written()
            assert not snapshots(disk)
            await run.propose(EndTransactionRecord())
            await run.snapshot_written()
            assert len(snapshots(disk)) == 1
        assert len((await replayed(disk)).image.topics) == 10

    asyncio.run(scenario())


def test_a_snapshot_is_made_when_the_last_one_is_old_and_something_changed() -> None:
    async def scenario() -> None:
        disk = SimDisk()
        async with Run(disk, SnapshotRules(bytes_between=1 << 40, ms_between=1)) as run:
            await asyncio.sleep(0.01)
            await run.propose(*topic(0))
            await run.snapshot_written()
            assert int(snapshots(disk)[-1].partition("-")[0]) == run.runner.applied_offset

    asyncio.run(scenario())


def test_a_batch_of_the_log_that_is_damaged_is_not_applied() -> None:
    value = encode_record(TopicRecord(name="t", topic_id=uuid.UUID(int=5)))
    good = build_batch([Record(0, 0, None, value)])
    assert len(list(metadata_records(memoryview(good), read_header(good)))) == 1
    for position in range(HEADER_BYTES, len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 1
        with pytest.raises(DiskError, match="damaged"):
            list(metadata_records(memoryview(damaged), read_header(damaged)))
