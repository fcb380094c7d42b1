"""Quorum members with one thing left out, to see that the checkers notice."""

from penstock.cluster.raft import Quorum, VoteState
from penstock.cluster.raft.effects import Leading
from penstock.cluster.raft.leadership import Leadership
from penstock.cluster.raft.log import Validity
from penstock.cluster.raft.roles import Election
from penstock.cluster.raft.rpc import FetchRequest, OffsetAndEpoch, VoteRequest


class VoteIsNotPersisted(Quorum):
    def _persist(self, state: VoteState) -> None:
        if state.voted_id < 0 or state.leader_id >= 0:
            super()._persist(state)


class NothingIsPersisted(Quorum):
    def _persist(self, state: VoteState) -> None:
        pass


class OldEpochsCommit(Quorum):
    """The rule of Raft 5.4.2 left out: whatever a majority holds counts as decided."""

    def _committable_offset(self, leadership: Leadership) -> int | None:
        return leadership.majority_offset(self._synced_offset)


class NoPreVote(Quorum):
    def _become_prospective(self, now_ms: int, retries: int = 0) -> None:
        self._become_candidate(now_ms, retries)


class PreVoteIsAlwaysGranted(Quorum):
    def _may_grant(self, request: VoteRequest, now_ms: int) -> bool:
        return request.pre_vote or super()._may_grant(request, now_ms)


class TruncationIgnoresEpochs(Quorum):
    """The leader compares ends of logs only."""

    def _validate(self, request: FetchRequest) -> Validity:
        validity = super()._validate(request)
        if validity.diverging is None:
            return validity
        if request.fetch_offset <= self._log.end_offset:
            return Validity()
        return Validity(diverging=OffsetAndEpoch(self._log.end_offset, self._log.last_epoch))


class UnsyncedIsAcknowledged(Quorum):
    def _has_synced(self) -> bool:
        return True


class LeaderCountsItselfUnsynced(Quorum):
    def _committable_offset(self, leadership: Leadership) -> int | None:
        offset = leadership.majority_offset(self._log.end_offset)
        return offset if offset > leadership.start_offset else None


class AnyLogWins(Quorum):
    """A vote for whoever asks first, whatever its log."""

    def _may_grant(self, request: VoteRequest, now_ms: int) -> bool:
        return super()._may_grant(request._replace(last=OffsetAndEpoch(1 << 40, 1 << 30)), now_ms)


class _CarelessLeadership(Leadership):
    __slots__ = ()

    def contact_deadline_ms(self, timeout_ms: int) -> int | None:
        return None


class NoCheckQuorum(Quorum):
    def _become_leader(self, election: Election, now_ms: int) -> None:
        super()._become_leader(election, now_ms)
        self._role.__class__ = _CarelessLeadership


class ElectedServesAtOnce(Quorum):
    def _become_leader(self, election: Election, now_ms: int) -> None:
        super()._become_leader(election, now_ms)
        assert isinstance(self._role, Leadership)
        self._role.is_established = True
        self._emit(Leading(self.epoch))


DEFECTS = [
    VoteIsNotPersisted,
    NothingIsPersisted,
    OldEpochsCommit,
    NoPreVote,
    PreVoteIsAlwaysGranted,
    TruncationIgnoresEpochs,
    UnsyncedIsAcknowledged,
    LeaderCountsItselfUnsynced,
    AnyLogWins,
    NoCheckQuorum,
    ElectedServesAtOnce,
]
