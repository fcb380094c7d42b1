"""A disk without space is no failure: a member waits, asks again, or leaves it to others."""

from typing import NoReturn

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskFull
from penstock.cluster.raft import Role, VoteState, rpc
from penstock.cluster.raft import effects as raft_effects
from penstock.cluster.raft.rpc import LeaderHint, OffsetAndEpoch
from tests.unit.raft.alone import NONE, Alone
from tests.unit.raft.cluster import CLUSTER_ID, batch_of, key


def without_space(*_: object) -> NoReturn:
    raise DiskFull("no space left")


def test_records_that_there_is_no_space_for_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Alone().lead()
    response = rpc.FetchResponse(NONE, LeaderHint(1, 1), 3, 0, records=leader.log.read(0, 1 << 20))
    follower = Alone(state=VoteState(1, 1), node_id=2)
    with monkeypatch.context() as full:
        full.setattr(follower.log, "append_as_follower", without_space)
        follower.respond(follower.sent(rpc.FetchRequest)[-1], response)
    assert any(isinstance(effect, raft_effects.Fault) for effect in follower.effects)
    assert (follower.log.end_offset, follower.quorum.high_watermark) == (0, 0)
    follower.wait(200)
    fetch = follower.sent(rpc.FetchRequest)[-1]
    assert isinstance(fetch.request, rpc.FetchRequest)
    assert fetch.request.fetch_offset == 0
    follower.respond(fetch, response)
    assert (follower.log.end_offset, follower.quorum.high_watermark) == (3, 3)


def test_a_follower_without_space_for_a_snapshot_asks_for_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Alone(state=VoteState(5, 2), epochs=(1,))
    snapshot_id = OffsetAndEpoch(9, 4)
    offer = rpc.FetchResponse(NONE, LeaderHint(2, 5), 9, 9, snapshot_id=snapshot_id)
    piece = rpc.FetchSnapshotResponse(NONE, LeaderHint(2, 5), snapshot_id, 8, 0, b"half")
    follower.respond(follower.sent(rpc.FetchRequest)[-1], offer)
    with monkeypatch.context() as full:
        full.setattr(follower.log, "receive_snapshot", without_space)
        follower.respond(follower.sent(rpc.FetchSnapshotRequest)[-1], piece)
    follower.wait(200)
    follower.respond(follower.sent(rpc.FetchRequest)[-1], offer)
    assert len(follower.sent(rpc.FetchSnapshotRequest)) == 2


def test_who_is_elected_and_has_no_space_leaves_it_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Alone()
    monkeypatch.setattr(member.log, "append", without_space)
    member.wait(2000)
    for _ in range(2):
        for send in member.sent(rpc.VoteRequest)[-2:]:
            member.respond(send, rpc.VoteResponse(NONE, LeaderHint(-1, member.quorum.epoch), True))
    assert (member.quorum.role, member.log.end_offset) == (Role.RESIGNED, 0)
    assert len(member.sent(rpc.EndQuorumEpochRequest)) == 2


def test_a_leader_without_space_resigns_unless_there_is_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    one_of_three, alone = Alone().lead(), Alone(voters=(1,))
    for member in (one_of_three, alone):
        with monkeypatch.context() as full:
            full.setattr(member.log, "append", without_space)
            with pytest.raises(DiskFull):
                member.quorum.propose(batch_of(b"value"), member.now_ms)
        member.wait(1)
    assert one_of_three.quorum.role is Role.RESIGNED
    assert alone.quorum.propose(batch_of(b"value"), alone.now_ms) == alone.log.end_offset


def test_voters_are_not_changed_where_there_is_no_space_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Alone().lead()
    monkeypatch.setattr(member.log, "append", without_space)
    removed = member.ask(rpc.RemoveVoterRequest(CLUSTER_ID, key(3)))
    assert removed.error is ErrorCode.kafka_storage_error
    assert member.quorum.voters.ids == [1, 2, 3]
