"""The shell around the quorum: what is told was kept before."""

import asyncio
from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker import quorum_runner
from penstock.broker.group_commit import GroupCommit
from penstock.broker.metadata_following import CommittedBatch
from penstock.broker.metadata_snapshots import SnapshotRules
from penstock.broker.ports import SystemClock, SystemRandom
from penstock.broker.quorum_runner import QuorumRunner
from penstock.cluster.metadata.records import MetadataRecord, TopicRecord, encode_record
from penstock.cluster.raft import rpc
from penstock.cluster.raft.roles import QuorumConfig
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.stored_log import QUORUM_STATE_FILE, parse_quorum_state
from penstock.cluster.raft.voters import Endpoint, Voter, VoterSet
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk


class Nobody:
    """Who is told, and does nothing."""

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, records: Iterator[list[MetadataRecord]]) -> None: ...
    def gather(self) -> Sequence[MetadataRecord] | None: ...
    def on_committed(self, batch: CommittedBatch) -> Iterator[None]:
        return iter(())

    def on_leader_changed(self, leader_id: int, epoch: int) -> None: ...
    def on_leading(self, epoch: int) -> None: ...
    def on_stopped_leading(self, epoch: int) -> None: ...


def a_voter(node_id: int) -> Voter:
    return Voter(node_id, None, (Endpoint("CONTROLLER", "127.0.0.1", 9),))


def a_runner(disk: SimDisk, commit: GroupCommit, voters: list[int], listener: Nobody) -> QuorumRunner:
    return QuorumRunner(
        QuorumConfig("cluster", listener="CONTROLLER"),
        a_voter(1),
        VoterSet(map(a_voter, voters)),
        kraft_version=0,
        disk=disk,
        clock=SystemClock(),
        random=SystemRandom(),
        group_commit=commit,
        listener=listener,
        is_clean=False,
        snapshot_rules=SnapshotRules(bytes_between=1 << 40, ms_between=0),
        segment_bytes=1 << 30,
    )


async def test_a_vote_waits_until_there_is_space_to_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_runner, "_SPACE_LOOK_SECONDS", 0.01)
    disk, commit = SimDisk(), GroupCommit()
    runner = a_runner(disk, commit, [1, 2, 3], Nobody())
    runner.start()
    vote = rpc.VoteRequest("cluster", a_voter(1).key, a_voter(2).key, 7, OffsetAndEpoch(0, 0), False)
    disk.capacity_bytes = 0
    answer = asyncio.create_task(runner.ask(vote))
    await asyncio.sleep(0.05)
    assert not answer.done()
    with pytest.raises(Refused) as refused:
        await runner.ask(vote)
    assert refused.value.code is ErrorCode.kafka_storage_error

    disk.capacity_bytes = None
    response = await asyncio.wait_for(answer, 10)
    assert isinstance(response, rpc.VoteResponse)
    assert response.vote_granted
    assert parse_quorum_state(disk.read_file(QUORUM_STATE_FILE)).epoch == 7
    assert isinstance(await runner.ask(vote), rpc.VoteResponse)
    runner.close()
    commit.stop()


class Slow(Nobody):
    """Takes three turns for each batch."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_committed(self, batch: CommittedBatch) -> Iterator[None]:
        for step in ("begins", "goes on", "ends"):
            self.told.append(f"{batch.base_offset} {step}")
            if step != "ends":
                yield


async def test_others_have_a_turn_while_much_is_applied_and_the_order_is_the_same() -> None:
    commit, listener = GroupCommit(), Slow()
    runner = a_runner(SimDisk(), commit, [1], listener)
    runner.start()
    await asyncio.wait_for(runner.applied(runner.next_offset), 10)
    first = runner.next_offset
    is_over = False
    turns: list[int] = []

    async def somebody_else() -> None:
        while not is_over:
            turns.append(len(listener.told))
            await asyncio.sleep(0)

    other = asyncio.create_task(somebody_else())
    record = encode_record(TopicRecord(name="a", topic_id=UUID(int=1)))
    proposed = [runner.propose(build_batch([Record(0, 0, None, record)])) for _ in range(2)]
    await asyncio.wait_for(proposed[0], 10)
    await asyncio.wait_for(proposed[1], 10)
    is_over = True
    await other
    assert listener.told == [
        f"{offset} {step}" for offset in (first, first + 1) for step in ("begins", "goes on", "ends")
    ]
    assert not {1, 2, 4, 5}.isdisjoint(turns)
    runner.close()
    commit.stop()
