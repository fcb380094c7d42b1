"""The shell around the quorum: what is told was kept before."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker import quorum_runner
from penstock.broker.group_commit import GroupCommit
from penstock.broker.metadata_snapshots import SnapshotRules
from penstock.broker.ports import SystemClock, SystemRandom
from penstock.broker.quorum_runner import CommittedBatch, QuorumRunner
from penstock.cluster.metadata.records import MetadataRecord
from penstock.cluster.raft import rpc
from penstock.cluster.raft.roles import QuorumConfig
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.stored_log import QUORUM_STATE_FILE, parse_quorum_state
from penstock.cluster.raft.voters import Endpoint, Voter, VoterSet
from penstock.testing.sim_disk import SimDisk


class Nobody:
    """Who is told, and does nothing."""

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, records: Iterator[list[MetadataRecord]]) -> None: ...
    def gather(self) -> Sequence[MetadataRecord] | None: ...
    def on_committed(self, batch: CommittedBatch) -> None: ...
    def on_leader_changed(self, leader_id: int, epoch: int) -> None: ...
    def on_leading(self, epoch: int) -> None: ...
    def on_stopped_leading(self, epoch: int) -> None: ...


def a_voter(node_id: int) -> Voter:
    return Voter(node_id, None, (Endpoint("CONTROLLER", "127.0.0.1", 9),))


async def test_a_vote_waits_until_there_is_space_to_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_runner, "_SPACE_LOOK_SECONDS", 0.01)
    disk, commit = SimDisk(), GroupCommit()
    runner = QuorumRunner(
        QuorumConfig("cluster", listener="CONTROLLER"),
        a_voter(1),
        VoterSet(map(a_voter, (1, 2, 3))),
        kraft_version=0,
        disk=disk,
        clock=SystemClock(),
        random=SystemRandom(),
        group_commit=commit,
        listener=Nobody(),
        is_clean=False,
        snapshot_rules=SnapshotRules(bytes_between=1 << 40, ms_between=0),
        segment_bytes=1 << 30,
    )
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
