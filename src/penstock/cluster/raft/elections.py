"""Who leads: Vote with pre-vote (KIP-996), BeginQuorumEpoch, EndQuorumEpoch, and what every response tells of the
leader. Raft's rules, in KIP-595's words.
"""

from penstock.base.errors import ErrorCode
from penstock.cluster.raft.effects import NO_NODE
from penstock.cluster.raft.leadership import Leadership
from penstock.cluster.raft.roles import Election, Following, Resignation, Role, Unattached
from penstock.cluster.raft.rpc import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    LeaderHint,
    VoteRequest,
    VoteResponse,
)
from penstock.cluster.raft.state import QuorumState
from penstock.cluster.raft.voters import ReplicaKey

_BACKOFF_BASE_MS = 50
_BACKOFF_DOUBLINGS_MAX = 10
# After that many refused connections in a row the leader counts as gone; the fetch timeout is for one that hangs.
_LEADER_FAILURES_MAX = 2


class Elections(QuorumState):
    # Requests

    def _handle_vote(self, token: int, request: VoteRequest, now_ms: int) -> None:
        last = request.last
        too_new = last.epoch > request.replica_epoch or (last.epoch == request.replica_epoch and not request.pre_vote)
        if last.offset < 0 or last.epoch < 0 or too_new:
            error: ErrorCode | None = ErrorCode.invalid_request
        else:
            error = self._voter_only_error(request.replica.id, request.replica_epoch)
        granted = False
        if error is None:
            if request.replica_epoch > self.epoch:
                self._become_unattached(request.replica_epoch, now_ms)
            if not self._is_meant(request.voter):
                error = ErrorCode.invalid_voter_key
            else:
                granted = self._may_grant(request, now_ms)
                if granted and not request.pre_vote:
                    self._cast_vote(request.replica, now_ms)
        self._answer(token, VoteResponse(error or ErrorCode.none, self._hint(), granted))

    def _may_grant(self, request: VoteRequest, now_ms: int) -> bool:
        is_up_to_date = (request.last.epoch, request.last.offset) >= (self._log.last_epoch, self._log.end_offset)
        role = self._role
        if request.pre_vote:
            if isinstance(role, Leadership) or (isinstance(role, Following) and self._hears_leader(role, now_ms)):
                return False
            return is_up_to_date
        if not (isinstance(role, Unattached) or self.role is Role.PROSPECTIVE):
            return False
        voted_for = self.vote_state.voted_key
        if voted_for is not None:
            return voted_for == request.replica
        return self.vote_state.leader_id == NO_NODE and is_up_to_date

    @staticmethod
    def _hears_leader(following: Following, now_ms: int) -> bool:
        return following.has_fetched and not following.is_leader_gone and now_ms < following.fetch_deadline_ms

    def _cast_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        if self.vote_state.voted_id == NO_NODE:
            self._vote(self.vote_state._replace(voted_id=candidate.id, voted_directory_id=candidate.directory_id))
            # Whoever was about to stand leaves the candidate the time to win.
            self._become_unattached(self.epoch, now_ms)

    def _handle_begin_quorum_epoch(self, token: int, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        error = self._voter_only_error(request.leader_id, request.leader_epoch)
        if error is None:
            node = self._node_from(request.leader_id, request.leader_endpoints)
            self._follow(LeaderHint(request.leader_id, request.leader_epoch, node), now_ms, from_leader=True)
            if not self._is_meant(request.voter):
                error = ErrorCode.invalid_voter_key
        self._answer(token, BeginQuorumEpochResponse(error or ErrorCode.none, self._hint()))

    def _handle_end_quorum_epoch(self, token: int, request: EndQuorumEpochRequest, now_ms: int) -> None:
        error = self._voter_only_error(request.leader_id, request.leader_epoch)
        if error is None:
            node = self._node_from(request.leader_id, request.leader_endpoints)
            self._follow(LeaderHint(request.leader_id, request.leader_epoch, node), now_ms)
            following = self._role
            if isinstance(following, Following) and following.leader.id == request.leader_id:
                following.is_leader_gone = True
                pause_ms = self._succession_pause_ms(request.preferred_candidates)
                following.fetch_deadline_ms = min(following.fetch_deadline_ms, now_ms + pause_ms)
        self._answer(token, EndQuorumEpochResponse(error or ErrorCode.none, self._hint()))

    def _succession_pause_ms(self, preferred: tuple[ReplicaKey, ...]) -> int:
        """The first in the list stands at once, each one after it twice as late as the one before."""
        for position, candidate in enumerate(preferred):
            if candidate.id == self.key.id and candidate.directory_id in (None, self.key.directory_id):
                if position == 0:
                    return 0
                base_ms = self.config.election_backoff_ms_max >> (len(preferred) - 1)
                return min(self.config.election_backoff_ms_max, base_ms << (position - 1))
        return self.config.election_backoff_ms_max

    def _voter_only_error(self, sender_id: int, epoch: int) -> ErrorCode | None:
        if epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.invalid_request if sender_id < 0 else None

    def _is_meant(self, voter: ReplicaKey | None) -> bool:
        return voter is None or (voter.id == self.key.id and voter.directory_id in (None, self.key.directory_id))

    # Responses

    def _heed(self, error: ErrorCode, hint: LeaderHint, now_ms: int) -> bool:
        """Draws the conclusions from what a response says of epoch and leader; whether there is more to do with it."""
        if hint.epoch < self.epoch or error is ErrorCode.unknown_leader_epoch:
            return False
        if hint.epoch > self.epoch or error in (ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower):
            self._follow(hint, now_ms)
            return False
        if hint.leader_id >= 0 and isinstance(self._role, Unattached | Election):
            self._follow(hint, now_ms)
        return error is ErrorCode.none

    def _follow(self, hint: LeaderHint, now_ms: int, *, from_leader: bool = False) -> None:
        """Somebody says who leads an epoch that is not before ours."""
        node = hint.node or self._node(hint.leader_id)
        if hint.epoch > self.epoch:
            if hint.leader_id in (NO_NODE, self.key.id) or node is None:
                self._become_unattached(hint.epoch, now_ms)
            else:
                self._become_follower(hint.epoch, node, now_ms)
            return
        if hint.leader_id in (NO_NODE, self.key.id) or node is None:
            return
        if self.vote_state.leader_id not in (NO_NODE, hint.leader_id):
            self._fault(
                f"node {hint.leader_id} is said to lead epoch {hint.epoch}, of which the leader is "
                f"{self.vote_state.leader_id}"
            )
            return
        role = self._role
        if isinstance(role, Following):
            if from_leader and (role.is_leader_gone or role.leader != node):
                role.leader, role.is_leader_gone, role.failures = node, False, 0
                role.fetch_deadline_ms = now_ms + self._fetch_timeout_ms()
        elif isinstance(role, Unattached) or from_leader or self.vote_state.leader_id == NO_NODE:
            # A prospective that lost its leader does not go back to it on hearsay.
            self._become_follower(hint.epoch, node, now_ms)

    def _handle_vote_response(self, node_id: int, response: VoteResponse, now_ms: int) -> bool:
        role = self._role
        is_counted = self._heed(response.error, response.leader, now_ms)
        election = self._role
        if election is not role or not isinstance(election, Election) or now_ms >= election.deadline_ms:
            # A process that was stopped meanwhile must not act on what its peers thought long ago.
            return True
        if response.error is ErrorCode.invalid_voter_key:
            # Another disk stands in that voter's place, which may not vote.
            is_counted = True
        if not is_counted:
            return response.error in (ErrorCode.none, ErrorCode.fenced_leader_epoch)
        if not response.vote_granted:
            election.rejected.add(node_id)
        elif self.voters.get(node_id) is not None:
            election.granted.add(node_id)
        if len(election.granted) >= self.voters.majority:
            if self._is_candidate:
                self._become_leader(election, now_ms)
            else:
                self._become_candidate(now_ms, election.retries)
        elif len(election.rejected) > len(self.voters) - self.voters.majority:
            self._lose_election(election, now_ms)
        return True

    def _lose_election(self, election: Election, now_ms: int) -> None:
        if self._is_candidate:
            if election.backoff_until_ms is None:
                doublings = min(election.retries, _BACKOFF_DOUBLINGS_MAX)
                pause_ms = min(self._below(_BACKOFF_BASE_MS << doublings), self.config.election_backoff_ms_max)
                election.backoff_until_ms = now_ms + pause_ms
            return
        leader = self._node(self.vote_state.leader_id)
        if leader is not None and leader.id != self.key.id:
            self._become_follower(self.epoch, leader, now_ms)
        else:
            self._become_unattached(self.epoch, now_ms)

    def _handle_begin_quorum_epoch_response(
        self, node_id: int, response: BeginQuorumEpochResponse, now_ms: int
    ) -> bool:
        self._heed(response.error, response.leader, now_ms)
        return response.error is ErrorCode.none

    def _handle_end_quorum_epoch_response(self, node_id: int, response: EndQuorumEpochResponse, now_ms: int) -> bool:
        if self._heed(response.error, response.leader, now_ms) and isinstance(self._role, Resignation):
            self._role.unacknowledged.discard(node_id)
        return response.error is ErrorCode.none

    def _leader_failed(self, following: Following, now_ms: int) -> None:
        """The leader's node takes no connections: it may be dead, and no timeout need pass to ask the others. If it
        lives they say so, and nothing has happened."""
        following.failures += 1
        if following.failures >= _LEADER_FAILURES_MAX and not following.is_leader_gone:
            following.is_leader_gone = True
            pause_ms = self._below(self.config.election_backoff_ms_max // 4)
            following.fetch_deadline_ms = min(following.fetch_deadline_ms, now_ms + pause_ms)

    # Time

    def _poll_unattached(self, role: Unattached, now_ms: int) -> None:
        if self._may_stand() and (now_ms >= role.election_deadline_ms or self.voters.is_only(self.key)):
            self._become_prospective(now_ms)

    def _poll_election(self, role: Election, now_ms: int) -> None:
        if not self._may_stand():
            self._become_unattached(self.epoch, now_ms)
        elif role.backoff_until_ms is not None:
            if now_ms >= role.backoff_until_ms:
                self._become_prospective(now_ms, role.retries)
        elif now_ms >= role.deadline_ms:
            self._lose_election(role, now_ms)
        else:
            self._ask_for_votes(role, now_ms)

    def _ask_for_votes(self, role: Election, now_ms: int) -> None:
        for voter in self.voters:
            if voter.id in role.granted or voter.id in role.rejected or not self._connections.is_ready(voter.id):
                continue
            node = voter.node(self.config.listener)
            if node is not None:
                request = VoteRequest(
                    self.config.cluster_id, voter.key, self.key, self.epoch, self._end(), not self._is_candidate
                )
                self._send(node, request, now_ms)

    def _poll_resignation(self, role: Resignation, now_ms: int) -> None:
        if now_ms >= role.deadline_ms and not self._is_shutting_down:
            # The next epoch, since in this one it would be told that it leads.
            self._become_unattached(self.epoch + 1, now_ms)
            return
        for node_id in sorted(role.unacknowledged):
            node = self._node(node_id)
            if node is not None and self._connections.is_ready(node_id):
                request = EndQuorumEpochRequest(
                    self.config.cluster_id,
                    self.key.id,
                    self.epoch,
                    role.preferred_candidates,
                    self.own_voter.endpoints,
                )
                self._send(node, request, now_ms)
