"""One member at a time: what it answers, what it persists, what it refuses. Kafka's error codes."""

from random import Random
from typing import Any
from uuid import UUID

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.cluster.raft import Quorum, QuorumConfig, Role, VoteState, rpc
from penstock.cluster.raft import effects as raft_effects
from penstock.cluster.raft.rpc import LeaderHint, OffsetAndEpoch
from penstock.cluster.raft.voters import Endpoint, ReplicaKey, VoterSet
from tests.unit.raft.alone import NONE, Alone
from tests.unit.raft.cluster import CLUSTER_ID, LISTENER, SeededRandom, batch_of, key, voter
from tests.unit.raft.memory_log import MemoryLog


def vote(epoch: int, last: tuple[int, int] = (0, 0), candidate: int = 2, *, pre: bool = False) -> rpc.VoteRequest:
    return rpc.VoteRequest(CLUSTER_ID, key(1), key(candidate), epoch, OffsetAndEpoch(*last), pre)


# Votes


def test_a_vote_is_persisted_before_it_is_answered() -> None:
    member = Alone()
    member.effects.clear()
    assert member.ask(vote(3)).vote_granted
    kinds = [type(effect) for effect in member.effects]
    assert kinds.index(raft_effects.Persist) < kinds.index(raft_effects.Answer)
    assert raft_effects.Persist(VoteState(3, -1, 2, UUID(int=2))) in member.effects


def test_a_vote_is_given_once_per_epoch_also_after_a_restart() -> None:
    member = Alone()
    assert member.ask(vote(3, candidate=2)).vote_granted
    assert not member.ask(vote(3, candidate=3)).vote_granted
    assert member.ask(vote(3, candidate=2)).vote_granted
    again = Alone(state=member.quorum.vote_state)
    assert not again.ask(vote(3, candidate=3)).vote_granted
    assert again.ask(vote(4, candidate=3)).vote_granted


@pytest.mark.parametrize(
    ("last", "is_granted"), [((2, 3), True), ((3, 2), False), ((1, 3), False), ((1, 4), True), ((9, 1), False)]
)
def test_only_a_log_that_is_as_good_gets_a_vote(last: tuple[int, int], is_granted: bool) -> None:
    """Raft 5.4.1: the later last epoch, then the longer log. Ours is of epochs 1 and 3."""
    assert Alone(epochs=(1, 3)).ask(vote(9, last)).vote_granted == is_granted
    assert Alone(epochs=(1, 3)).ask(vote(9, last, pre=True)).vote_granted == is_granted


def test_a_pre_vote_changes_nothing() -> None:
    member = Alone(state=VoteState(4))
    member.effects.clear()
    assert member.ask(vote(4, pre=True, candidate=2)).vote_granted
    assert member.ask(vote(4, pre=True, candidate=3)).vote_granted
    assert not any(isinstance(effect, raft_effects.Persist) for effect in member.effects)


def test_who_hears_its_leader_grants_no_pre_vote_until_it_does_not() -> None:
    """KIP-996."""
    member = Alone(state=VoteState(4, 2))
    assert member.quorum.role is Role.FOLLOWER
    fetch = member.sent(rpc.FetchRequest)[-1]
    assert member.ask(vote(4, pre=True, candidate=3)).vote_granted
    member.respond(fetch, rpc.FetchResponse(NONE, LeaderHint(2, 4)))
    assert not member.ask(vote(4, pre=True, candidate=3)).vote_granted
    member.ask(rpc.EndQuorumEpochRequest(CLUSTER_ID, 2, 4, (key(3), key(1)), ()))
    assert member.ask(vote(4, pre=True, candidate=3)).vote_granted


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(2), ErrorCode.fenced_leader_epoch),
        (vote(5, (0, 5)), ErrorCode.invalid_request),
        (vote(5, (0, 6), pre=True), ErrorCode.invalid_request),
        (vote(5, (-1, 1)), ErrorCode.invalid_request),
        (vote(5)._replace(replica=ReplicaKey(-1)), ErrorCode.invalid_request),
        (vote(5)._replace(voter=ReplicaKey(1, UUID(int=99))), ErrorCode.invalid_voter_key),
        (vote(5)._replace(voter=key(2)), ErrorCode.invalid_voter_key),
        (vote(5)._replace(cluster_id="another"), ErrorCode.inconsistent_cluster_id),
        (rpc.BeginQuorumEpochRequest(CLUSTER_ID, key(1), 2, 2, ()), ErrorCode.fenced_leader_epoch),
        (rpc.BeginQuorumEpochRequest(CLUSTER_ID, key(3), 2, 5, ()), ErrorCode.invalid_voter_key),
        (rpc.BeginQuorumEpochRequest("another", key(1), 2, 5, ()), ErrorCode.inconsistent_cluster_id),
        (rpc.EndQuorumEpochRequest(CLUSTER_ID, 2, 2, (), ()), ErrorCode.fenced_leader_epoch),
        (rpc.EndQuorumEpochRequest("another", 2, 5, (), ()), ErrorCode.inconsistent_cluster_id),
        (rpc.FetchRequest(CLUSTER_ID, key(2), 0, 1, 4, 0, 0), ErrorCode.not_leader_or_follower),
        (rpc.FetchRequest(CLUSTER_ID, key(2), 0, 1, 3, 0, 0), ErrorCode.fenced_leader_epoch),
        (rpc.FetchRequest(CLUSTER_ID, key(2), 0, 1, 5, 0, 0), ErrorCode.unknown_leader_epoch),
        (rpc.FetchRequest(CLUSTER_ID, key(2), 0, 1, 4, -1, 0), ErrorCode.invalid_request),
        (rpc.FetchRequest(CLUSTER_ID, key(2), 0, 1, 4, 0, 5), ErrorCode.invalid_request),
        (rpc.FetchRequest(CLUSTER_ID, key(2), -1, 1, 4, 0, 0), ErrorCode.invalid_request),
        (rpc.FetchSnapshotRequest(CLUSTER_ID, key(2), 1, 4, OffsetAndEpoch(1, 1), 0), ErrorCode.not_leader_or_follower),
        (rpc.FetchSnapshotRequest(CLUSTER_ID, key(2), 1, 9, OffsetAndEpoch(1, 1), 0), ErrorCode.unknown_leader_epoch),
        (rpc.AddVoterRequest(CLUSTER_ID, key(4), voter(4).endpoints), ErrorCode.not_leader_or_follower),
        (rpc.RemoveVoterRequest(CLUSTER_ID, key(2)), ErrorCode.not_leader_or_follower),
        (rpc.RemoveVoterRequest("another", key(2)), ErrorCode.inconsistent_cluster_id),
        (rpc.UpdateVoterRequest(CLUSTER_ID, 4, key(2), voter(2).endpoints, 0, 1), ErrorCode.not_leader_or_follower),
        (rpc.DescribeQuorumRequest(), ErrorCode.not_leader_or_follower),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_cannot_be_is_refused_with_kafkas_error(request_: rpc.Request, error: ErrorCode) -> None:
    assert Alone(state=VoteState(4)).ask(request_).error is error


# Leading


def test_a_leader_serves_only_after_an_entry_of_its_own_epoch_is_on_a_majority() -> None:
    member = Alone(epochs=(1, 1))
    member.wait(2000)
    for _ in range(2):
        for send in member.sent(rpc.VoteRequest)[-2:]:
            member.respond(send, rpc.VoteResponse(NONE, LeaderHint(-1, member.quorum.epoch), True))
    assert member.quorum.role is Role.LEADER
    member.fetch(2, 2, 1)
    assert member.quorum.high_watermark == 0
    assert member.quorum.propose(batch_of(b"early"), member.now_ms) is None
    member.fetch(2, 5)
    assert member.quorum.high_watermark == 5
    assert raft_effects.Leading(member.quorum.epoch) in member.effects
    assert member.quorum.propose(batch_of(b"now"), member.now_ms) == 6


def test_a_leader_does_not_count_itself_before_it_has_synced() -> None:
    member = Alone().lead()
    end_offset = member.quorum.propose(batch_of(b"value"), member.now_ms)
    assert end_offset is not None
    sync = next(effect for effect in member.quorum.take_effects() if isinstance(effect, raft_effects.Sync))
    member.fetch(2, end_offset)
    assert member.quorum.high_watermark < end_offset
    member.quorum.synced(sync, member.now_ms)
    assert member.quorum.high_watermark == end_offset


def test_proposals_made_during_a_sync_share_the_next_one() -> None:
    member = Alone((1,))
    offsets = [member.quorum.propose(batch_of(b"value"), 0) for _ in range(5)]
    first = [effect for effect in member.quorum.take_effects() if isinstance(effect, raft_effects.Sync)]
    assert [sync.end_offset for sync in first] == offsets[:1]
    member.quorum.synced(first[0], 0)
    second = [effect for effect in member.quorum.take_effects() if isinstance(effect, raft_effects.Sync)]
    assert [sync.end_offset for sync in second] == offsets[-1:]
    member.quorum.synced(second[0], 0)
    assert raft_effects.Committed(offsets[-1] or 0) in member.quorum.take_effects()


def test_a_waiting_fetch_ends_with_records_with_a_new_high_watermark_or_with_its_time() -> None:
    member = Alone().lead()
    end = member.log.end_offset
    told = {"wait_ms_max": 500, "high_watermark": member.quorum.high_watermark}
    assert member.fetch(2, end, **told) is None
    member.quorum.propose(batch_of(b"value"), member.now_ms)
    member.perform()
    answers = [one for one in member.effects if isinstance(one, raft_effects.Answer)]
    assert isinstance(answers[-1].response, rpc.FetchResponse)
    assert answers[-1].response.records
    # KIP-1166: who tells its high watermark hears of a new one without records.
    assert member.fetch(3, end + 1, wait_ms_max=500) is None
    answer = member.fetch(2, end + 1, **told)
    assert (answer.records, answer.high_watermark) == (b"", end + 1)
    before = len(member.effects)
    member.wait(500)
    assert sum(isinstance(one, raft_effects.Answer) for one in member.effects[before:]) == 1


def test_a_follower_that_is_told_of_by_nobody_is_told_again_who_leads() -> None:
    member = Alone().lead()
    assert [send.node.id for send in member.sent(rpc.BeginQuorumEpochRequest)] == [2, 3]
    for send in member.sent(rpc.BeginQuorumEpochRequest):
        member.respond(send, rpc.BeginQuorumEpochResponse(NONE, LeaderHint(1, member.quorum.epoch)))
    member.wait(500)
    member.fetch(2, member.log.end_offset)
    member.wait(500)
    assert [send.node.id for send in member.sent(rpc.BeginQuorumEpochRequest)] == [2, 3, 3]


def test_a_leader_of_a_larger_epoch_unseats_and_what_waits_is_called_off() -> None:
    member = Alone().lead()
    epoch = member.quorum.epoch
    assert member.fetch(2, member.log.end_offset, wait_ms_max=500) is None
    member.ask(rpc.BeginQuorumEpochRequest(CLUSTER_ID, key(1), 3, epoch + 1, ()))
    assert (member.quorum.role, member.quorum.leader_id) == (Role.FOLLOWER, 3)
    assert raft_effects.StoppedLeading(epoch) in member.effects
    refused = [one.response for one in member.effects if isinstance(one, raft_effects.Answer)]
    assert ErrorCode.not_leader_or_follower in [one.error for one in refused]


def test_snapshots_are_given_out_in_pieces_and_only_those_there_are() -> None:
    member = Alone().lead()
    snapshot_id = OffsetAndEpoch(member.quorum.high_watermark, member.quorum.epoch)
    member.log.write_snapshot(snapshot_id, b"0123456789")

    def fetch(position: int, wanted: OffsetAndEpoch = snapshot_id) -> Any:
        return member.ask(rpc.FetchSnapshotRequest(CLUSTER_ID, key(2), 4, member.quorum.epoch, wanted, position))

    assert (fetch(0).data, fetch(4).data, fetch(8).data) == (b"0123", b"4567", b"89")
    assert fetch(0).size == 10
    assert fetch(10).error is ErrorCode.position_out_of_range
    assert fetch(-1).error is ErrorCode.position_out_of_range
    assert fetch(0, OffsetAndEpoch(1, 1)).error is ErrorCode.snapshot_not_found
    assert fetch(0, OffsetAndEpoch(0, 0)).error is ErrorCode.snapshot_not_found


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (rpc.AddVoterRequest(CLUSTER_ID, ReplicaKey(4), voter(4).endpoints), ErrorCode.invalid_request),
        (rpc.AddVoterRequest(CLUSTER_ID, key(4), ()), ErrorCode.invalid_request),
        (rpc.AddVoterRequest(CLUSTER_ID, key(4), (Endpoint("OTHER", "h", 1),)), ErrorCode.invalid_request),
        (rpc.AddVoterRequest(CLUSTER_ID, key(3), voter(3).endpoints), ErrorCode.duplicate_voter),
        (rpc.RemoveVoterRequest(CLUSTER_ID, ReplicaKey(3)), ErrorCode.invalid_request),
        (rpc.RemoveVoterRequest(CLUSTER_ID, ReplicaKey(3, UUID(int=9))), ErrorCode.voter_not_found),
        (rpc.UpdateVoterRequest(CLUSTER_ID, 1, key(4), voter(4).endpoints, 0, 1), ErrorCode.voter_not_found),
        (rpc.UpdateVoterRequest(CLUSTER_ID, 1, key(3), (), 0, 1), ErrorCode.invalid_request),
        (rpc.UpdateVoterRequest(CLUSTER_ID, 1, key(3), voter(3).endpoints, 1, 0), ErrorCode.invalid_request),
        (rpc.UpdateVoterRequest(CLUSTER_ID, 1, key(3), voter(3).endpoints, 0, 0), ErrorCode.invalid_request),
        (rpc.UpdateVoterRequest(CLUSTER_ID, 0, key(3), voter(3).endpoints, 0, 1), ErrorCode.fenced_leader_epoch),
    ],
)
def test_changes_of_voters_that_cannot_be_are_refused(request_: rpc.Request, error: ErrorCode) -> None:
    member = Alone().lead()
    assert member.quorum.epoch == 1
    assert member.ask(request_).error is error


def test_the_last_voter_cannot_be_removed() -> None:
    member = Alone((1,))
    assert member.ask(rpc.RemoveVoterRequest(CLUSTER_ID, key(1))).error is ErrorCode.invalid_request


def add_voter(member: Alone, response: rpc.ApiVersionsResponse) -> Any:
    before = len(member.effects)
    assert member.ask(rpc.AddVoterRequest(CLUSTER_ID, key(4), voter(4).endpoints)) is None
    member.respond(member.sent(rpc.ApiVersionsRequest)[-1], response)
    answers = [one.response for one in member.effects[before:] if isinstance(one, raft_effects.Answer)]
    return answers[-1].error if answers else None


def test_a_new_voter_must_know_reconfiguration_and_have_the_log() -> None:
    member = Alone().lead()
    assert add_voter(member, rpc.ApiVersionsResponse(NONE, 0, 0)) is ErrorCode.invalid_request
    assert add_voter(member, rpc.ApiVersionsResponse(ErrorCode.unsupported_version)) is ErrorCode.request_timed_out
    assert add_voter(member, rpc.ApiVersionsResponse(NONE, 0, 1)) is ErrorCode.request_timed_out
    member.fetch(4, member.log.end_offset)
    assert add_voter(member, rpc.ApiVersionsResponse(NONE, 0, 1)) is None
    assert member.quorum.voters.ids == [1, 2, 3, 4]
    # Two of three are no majority of four.
    member.fetch(2, member.log.end_offset)
    assert member.quorum.high_watermark < member.log.end_offset
    member.fetch(4, member.log.end_offset)
    assert member.quorum.high_watermark == member.log.end_offset
    answers = [one.response for one in member.effects if isinstance(one, raft_effects.Answer)]
    assert rpc.AddVoterResponse(NONE) in answers


def test_a_change_of_voters_that_is_not_committed_in_time_is_answered_as_undecided() -> None:
    member = Alone().lead()
    before = len(member.effects)
    assert member.ask(rpc.RemoveVoterRequest(CLUSTER_ID, key(3))) is None
    for _ in range(4):
        member.wait(500)
        member.fetch(2, 0, 0)
    answers = [one.response for one in member.effects[before:] if isinstance(one, raft_effects.Answer)]
    assert ErrorCode.request_timed_out in [one.error for one in answers if isinstance(one, rpc.RemoveVoterResponse)]


# Following


def test_a_follower_fetches_on_only_when_what_it_has_is_synced() -> None:
    leader = Alone().lead()
    records = leader.log.read(0, 1 << 20)
    follower = Alone(state=VoteState(1, 1), node_id=2)
    fetch = follower.sent(rpc.FetchRequest)[-1]
    follower.quorum.response(
        1, fetch.correlation_id, rpc.FetchResponse(NONE, LeaderHint(1, 1), 3, 0, records=records), 5
    )
    effects = follower.quorum.take_effects()
    assert effects == [raft_effects.Sync(3, 0), raft_effects.Committed(3)]
    follower.quorum.synced(raft_effects.Sync(3, 0), 6)
    (sent,) = follower.quorum.take_effects()
    assert isinstance(sent, raft_effects.Send)
    assert isinstance(sent.request, rpc.FetchRequest)
    assert (sent.request.fetch_offset, sent.request.last_fetched_epoch, sent.request.high_watermark) == (3, 1, 3)


def test_an_observer_that_never_votes_need_not_sync() -> None:
    leader = Alone().lead()
    observer = Alone(state=VoteState(1, 1), node_id=9)
    fetch = observer.sent(rpc.FetchRequest)[-1]
    response = rpc.FetchResponse(NONE, LeaderHint(1, 1), 3, 0, records=leader.log.read(0, 1 << 20))
    observer.effects.clear()
    observer.respond(fetch, response)
    assert [type(effect) for effect in observer.effects] == [raft_effects.Committed, raft_effects.Send]


def test_a_follower_never_cuts_what_is_committed() -> None:
    follower = Alone(state=VoteState(5, 2), epochs=(1, 1, 1))
    follower.respond(follower.sent(rpc.FetchRequest)[-1], rpc.FetchResponse(NONE, LeaderHint(2, 5), 3))
    assert follower.quorum.high_watermark == 3
    diverging = rpc.FetchResponse(NONE, LeaderHint(2, 5), 3, diverging=OffsetAndEpoch(1, 1))
    follower.respond(follower.sent(rpc.FetchRequest)[-1], diverging)
    assert follower.log.end_offset == 3
    assert any(isinstance(effect, raft_effects.Fault) for effect in follower.effects)


def test_damaged_records_are_not_taken_over() -> None:
    follower = Alone(state=VoteState(1, 2))
    records = bytearray(Alone((1,)).log.read(0, 1 << 20))
    records[-1] ^= 1
    response = rpc.FetchResponse(NONE, LeaderHint(2, 1), 3, 0, records=bytes(records))
    follower.respond(follower.sent(rpc.FetchRequest)[-1], response)
    assert follower.log.end_offset == 0
    assert any(isinstance(effect, raft_effects.Fault) for effect in follower.effects)


def test_a_damaged_snapshot_never_takes_the_place_of_the_log() -> None:
    follower = Alone(state=VoteState(5, 2), epochs=(1,))
    snapshot_id = OffsetAndEpoch(9, 4)
    offer = rpc.FetchResponse(NONE, LeaderHint(2, 5), 9, 9, snapshot_id=snapshot_id)
    follower.respond(follower.sent(rpc.FetchRequest)[-1], offer)
    piece = rpc.FetchSnapshotResponse(NONE, LeaderHint(2, 5), snapshot_id, 8, 0, b"nonsense")
    follower.respond(follower.sent(rpc.FetchSnapshotRequest)[-1], piece)
    assert not any(isinstance(effect, raft_effects.StoreSnapshot) for effect in follower.effects)
    assert (follower.log.end_offset, follower.log.latest_snapshot()) == (1, None)


def test_a_node_whose_snapshot_is_damaged_does_not_start() -> None:
    log = MemoryLog()
    log.write_snapshot(OffsetAndEpoch(9, 4), b"nonsense")
    with pytest.raises(DiskError, match="damaged"):
        Quorum(QuorumConfig(CLUSTER_ID), voter(1), log, SeededRandom(Random(1)), VoteState(), VoterSet([voter(1)]))


def test_a_response_counts_once_and_only_for_what_was_asked_last() -> None:
    member = Alone()
    member.wait(2000)
    (first, second) = member.sent(rpc.VoteRequest)
    yes = rpc.VoteResponse(NONE, LeaderHint(-1, 0), True)
    member.quorum.response(first.node.id, 999, yes, member.now_ms)
    assert member.quorum.role.value == "prospective"
    member.respond(first, yes)
    assert member.quorum.role.value == "candidate"
    member.respond(second, yes)
    assert member.quorum.role.value == "candidate"


def test_who_led_before_a_restart_does_not_lead_that_epoch_again() -> None:
    member = Alone(state=VoteState(3, 1, 1, UUID(int=1)))
    assert member.quorum.role is Role.RESIGNED
    assert {send.node.id for send in member.sent(rpc.EndQuorumEpochRequest)} == {2, 3}
    member.wait(2000)
    assert (member.quorum.role, member.quorum.epoch) == (Role.UNATTACHED, 4)


def test_who_led_its_own_removal_before_a_restart_does_not_say_that_it_leads() -> None:
    """As Kafka's QuorumState: who led this epoch comes back as resigned, whether it votes or not."""
    member = Alone(voters=(2, 3), state=VoteState(4, 1, 1, UUID(int=1)), epochs=(4,))
    assert (member.quorum.role, member.quorum.leader_id) == (Role.RESIGNED, -1)
    assert member.ask(rpc.FetchRequest(CLUSTER_ID, key(2), 0, 1, 4, 0, 0)).leader.leader_id == -1
    member.wait(2000)
    assert (member.quorum.role, member.quorum.epoch, member.quorum.leader_id) == (Role.UNATTACHED, 5, -1)


def test_the_epoch_of_the_log_counts_where_the_vote_file_is_older() -> None:
    assert Alone(state=VoteState(2, 3), epochs=(1, 5)).quorum.epoch == 5


def test_an_observer_finds_the_leader_by_a_bootstrap_server() -> None:
    observer = Alone((), node_id=9, bootstrap_servers=(("host-7", 9093),))
    (fetch,) = observer.sent(rpc.FetchRequest)
    assert (fetch.node.id, fetch.node.host) == (-2, "host-7")
    leader = LeaderHint(2, 6, voter(2).node(LISTENER))
    observer.respond(fetch, rpc.FetchResponse(ErrorCode.fenced_leader_epoch, leader))
    assert (observer.quorum.role, observer.quorum.leader_id, observer.quorum.is_observer) == (Role.FOLLOWER, 2, True)
    assert observer.sent(rpc.FetchRequest)[-1].node == voter(2).node(LISTENER)


def test_members_are_never_asked_to_tick_in_the_past() -> None:
    for member in (Alone(), Alone().lead(), Alone(state=VoteState(4, 2)), Alone(node_id=9), Alone((1,))):
        for _ in range(200):
            deadline_ms = member.quorum.next_deadline_ms()
            if deadline_ms is None:
                break
            assert deadline_ms > member.now_ms, member.quorum.role
            member.wait(deadline_ms - member.now_ms)
