"""Who votes: AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter (KIP-853), and DescribeQuorum.

One change at a time, one voter at a time: majorities of two sets in a row always share a voter. A change waits until an
entry of the leader's own epoch is committed, and until the change before it is.
"""

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskFull
from penstock.cluster.raft import control_records
from penstock.cluster.raft.leadership import Leadership, PendingChange, Replica
from penstock.cluster.raft.replication import Replication
from penstock.cluster.raft.roles import Following
from penstock.cluster.raft.rpc import (
    NO_LEADER,
    UNKNOWN_HIGH_WATERMARK,
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    LeaderHint,
    RemoveVoterRequest,
    RemoveVoterResponse,
    ReplicaProgress,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from penstock.cluster.raft.voters import KRAFT_VERSION_STATIC, Voter, VoterSet

_UNKNOWN_TIMESTAMP = -1


class Membership(Replication):
    def _change_refusal(self, leadership: Leadership) -> tuple[ErrorCode, str] | None:
        """Why no change of voters can begin now."""
        if leadership.pending is not None:
            return ErrorCode.request_timed_out, "another change of voters is under way"
        if not leadership.is_established:
            return ErrorCode.request_timed_out, "the leader has not committed an entry of its epoch yet"
        version = self._history.kraft_version
        if version == KRAFT_VERSION_STATIC:
            return (
                ErrorCode.unsupported_version,
                f"the voters are fixed by the configuration, as kraft.version is {version}",
            )
        if self._history.voters_offset >= self.high_watermark:
            return ErrorCode.request_timed_out, "the last change of voters is not committed yet"
        return None

    def _write_voters(self, leadership: Leadership, voters: VoterSet, now_ms: int) -> ErrorCode:
        try:
            self._append_control([control_records.kraft_voters(voters)], now_ms)
        except DiskFull:
            self._leave_to_others(leadership)
            return ErrorCode.kafka_storage_error
        self._wake_fetches(leadership, now_ms)
        return ErrorCode.none

    # Adding

    def _handle_add_voter(self, token: int, request: AddVoterRequest, now_ms: int) -> None:
        leadership = self._role
        if not isinstance(leadership, Leadership):
            self._answer(token, AddVoterResponse(ErrorCode.not_leader_or_follower))
            return
        node = self._node_from(request.voter.id, request.endpoints) if request.endpoints else None
        refusal = None
        if request.voter.id < 0 or request.voter.directory_id is None:
            refusal = ErrorCode.invalid_request, "a voter has an id and a directory id"
        elif node is None:
            refusal = ErrorCode.invalid_request, f"the voter needs an endpoint for the listener {self.config.listener}"
        else:
            refusal = self._change_refusal(leadership)
            if refusal is None and self.voters.get(request.voter.id) is not None:
                refusal = ErrorCode.duplicate_voter, f"node {request.voter.id} is a voter already"
        if refusal is not None or node is None:
            assert refusal is not None
            self._answer(token, AddVoterResponse(*refusal))
            return
        if not self._connections.is_ready(node.id):
            self._answer(token, AddVoterResponse(ErrorCode.request_timed_out, "the new voter cannot be reached"))
            return
        leadership.pending = PendingChange(token, now_ms + self.config.request_timeout_ms, addition=request)
        self._send(node, ApiVersionsRequest(), now_ms)

    def _handle_api_versions_response(self, node_id: int, response: ApiVersionsResponse, now_ms: int) -> bool:
        leadership = self._role
        if not isinstance(leadership, Leadership) or leadership.pending is None:
            return True
        addition = leadership.pending.addition
        if addition is None or addition.voter.id != node_id or leadership.pending.end_offset is not None:
            return True
        version = self._history.kraft_version
        if response.error is not ErrorCode.none:
            self._finish_change(
                leadership,
                ErrorCode.request_timed_out,
                f"the new voter answered ApiVersions with {response.error.name}",
            )
        elif not response.kraft_version_min <= version <= response.kraft_version_max:
            self._finish_change(
                leadership,
                ErrorCode.invalid_request,
                f"the new voter supports kraft.version {response.kraft_version_min} to "
                f"{response.kraft_version_max}, not {version}",
            )
        elif not leadership.is_caught_up(addition.voter, now_ms):
            self._finish_change(leadership, ErrorCode.request_timed_out, "the new voter has not caught up with the log")
        else:
            voter = Voter(
                addition.voter.id,
                addition.voter.directory_id,
                addition.endpoints,
                response.kraft_version_min,
                response.kraft_version_max,
            )
            voters = self.voters.with_voter(voter)
            assert voters is not None
            pending = leadership.pending
            error = self._write_voters(leadership, voters, now_ms)
            pending.end_offset = self._log.end_offset
            if error is not ErrorCode.none or not addition.ack_when_committed:
                self._finish_change(leadership, error)
            self._advance_high_watermark(leadership, now_ms)
        return True

    def _finish_change(self, leadership: Leadership, error: ErrorCode, message: str | None = None) -> None:
        pending, leadership.pending = leadership.pending, None
        assert pending is not None
        response: Response = RemoveVoterResponse(error, message)
        if pending.addition is not None:
            response = AddVoterResponse(error, message)
        self._answer(pending.token, response)

    # Removing

    def _handle_remove_voter(self, token: int, request: RemoveVoterRequest, now_ms: int) -> None:
        leadership = self._role
        if not isinstance(leadership, Leadership):
            self._answer(token, RemoveVoterResponse(ErrorCode.not_leader_or_follower))
            return
        if request.voter.id < 0 or request.voter.directory_id is None:
            self._answer(token, RemoveVoterResponse(ErrorCode.invalid_request, "a voter has an id and a directory id"))
            return
        refusal = self._change_refusal(leadership)
        if refusal is not None:
            self._answer(token, RemoveVoterResponse(*refusal))
            return
        if self.voters.is_only(request.voter):
            message = f"node {request.voter.id} is the only voter; there must be one"
            self._answer(token, RemoveVoterResponse(ErrorCode.invalid_request, message))
            return
        voters = self.voters.without(request.voter)
        if voters is None:
            message = f"node {request.voter.id} with the directory {request.voter.directory_id} does not vote"
            self._answer(token, RemoveVoterResponse(ErrorCode.voter_not_found, message))
            return
        pending = leadership.pending = PendingChange(token, now_ms + self.config.request_timeout_ms)
        error = self._write_voters(leadership, voters, now_ms)
        pending.end_offset = self._log.end_offset
        if error is not ErrorCode.none:
            self._finish_change(leadership, error)
        self._advance_high_watermark(leadership, now_ms)

    def _voters_committed(self, leadership: Leadership, now_ms: int) -> None:
        pending = leadership.pending
        if pending is not None and pending.end_offset is not None and self.high_watermark >= pending.end_offset:
            self._finish_change(leadership, ErrorCode.none)
        if not leadership.is_voter and self._history.voters_offset < self.high_watermark:
            # It has led its own removal to the end.
            leadership.is_resigning = True

    # Updating

    def _handle_update_voter(self, token: int, request: UpdateVoterRequest, now_ms: int) -> None:
        leadership = self._role
        error = self._leader_only_error(request.leader_epoch)
        if error is None:
            assert isinstance(leadership, Leadership)
            error = self._update_voter(leadership, request, now_ms)
        self._answer(token, UpdateVoterResponse(error, self._hint()))

    def _update_voter(self, leadership: Leadership, request: UpdateVoterRequest, now_ms: int) -> ErrorCode:
        voter = Voter(
            request.voter.id,
            request.voter.directory_id,
            request.endpoints,
            request.version_min,
            request.version_max,
        )
        if (
            voter.id < 0
            or voter.directory_id is None
            or voter.node(self.config.listener) is None
            or not 0 <= voter.version_min <= voter.version_max
        ):
            return ErrorCode.invalid_request
        refusal = self._change_refusal(leadership)
        if refusal is not None:
            return refusal[0]
        if not voter.version_min <= self._history.kraft_version <= voter.version_max:
            return ErrorCode.invalid_request
        voters = self.voters.updated(voter)
        if voters is None:
            return ErrorCode.voter_not_found
        if voters == self.voters:
            return ErrorCode.none
        return self._write_voters(leadership, voters, now_ms)

    def _must_update_voter(self) -> bool:
        """Whether the log says something else of this voter than it does itself, say after a move."""
        return (
            self._history.kraft_version > KRAFT_VERSION_STATIC
            and self.is_voter
            and self.voters.get(self.key.id) != self.own_voter
        )

    def _poll_following(self, role: Following, now_ms: int) -> None:
        if (
            now_ms >= role.update_voter_at_ms
            and now_ms < role.fetch_deadline_ms
            and not role.is_leader_gone
            and self._must_update_voter()
            and self._connections.is_ready(role.leader.id)
        ):
            role.update_voter_at_ms = now_ms + self.config.fetch_timeout_ms
            request = UpdateVoterRequest(
                self.config.cluster_id,
                self.epoch,
                self.key,
                self.own_voter.endpoints,
                self.own_voter.version_min,
                self.own_voter.version_max,
            )
            self._send(role.leader, request, now_ms)
        super()._poll_following(role, now_ms)

    def _handle_update_voter_response(self, node_id: int, response: UpdateVoterResponse, now_ms: int) -> bool:
        self._heed(response.error, response.leader, now_ms)
        return True

    # Describing

    def _handle_describe(self, token: int, request: DescribeQuorumRequest, now_ms: int) -> None:
        leadership = self._role
        if not isinstance(leadership, Leadership):
            hint = LeaderHint(NO_LEADER, self.epoch)
            self._answer(token, DescribeQuorumResponse(ErrorCode.not_leader_or_follower, hint))
            return
        leadership.forget_observers(now_ms)
        self._answer(
            token,
            DescribeQuorumResponse(
                ErrorCode.none,
                self._hint(),
                self.high_watermark if leadership.is_established else UNKNOWN_HIGH_WATERMARK,
                tuple(self._progress(replica, now_ms) for replica in leadership.voters.values()),
                tuple(self._progress(replica, now_ms) for replica in leadership.observers.values()),
                tuple((voter.id, voter.endpoints) for voter in self.voters),
            ),
        )

    def _progress(self, replica: Replica, now_ms: int) -> ReplicaProgress:
        if replica.key.id == self.key.id:
            now = self._wall_ms(now_ms)
            return ReplicaProgress(replica.key, self._log.end_offset, now, now)
        return ReplicaProgress(
            replica.key,
            replica.end_offset,
            _UNKNOWN_TIMESTAMP if replica.last_fetch_ms is None else self._wall_ms(replica.last_fetch_ms),
            _UNKNOWN_TIMESTAMP if replica.last_caught_up_ms is None else self._wall_ms(replica.last_caught_up_ms),
        )
