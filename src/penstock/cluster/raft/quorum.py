"""One member of the metadata quorum: a pull-based Raft in KRaft's shape (KIP-595, 853, 996), with no I/O of its own.

Everything comes in by a method with the time, and leaves as effects: call a method, `take_effects`, perform them; tick
at `next_deadline_ms`. effects.py has the caller's duties, roles.py the table of roles.

A quorum of one elects itself in `start`: one vote persisted, one record synced, and it leads.
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cluster.raft import rpc
from penstock.cluster.raft.effects import NO_NODE
from penstock.cluster.raft.leadership import Leadership
from penstock.cluster.raft.membership import Membership
from penstock.cluster.raft.roles import Election, Following, Resignation, Unattached
from penstock.cluster.raft.rpc import BeginQuorumEpochRequest, Request, Response
from penstock.cluster.raft.voters import VoterSet

_POLLS_MAX = 8


class Quorum(Membership):
    def start(self, now_ms: int) -> None:
        """Takes up the role that was left behind by the last run. Call once, first."""
        epoch = max(self.epoch, self._log.last_epoch)
        leader_id = self.vote_state.leader_id if epoch == self.epoch else NO_NODE
        leader = self._node(leader_id)
        self._request_sync()
        if leader_id == self.key.id and not self.voters.is_only(self.key):
            # It led before it stopped, perhaps its own removal from the voters. It may have lost what it had not
            # synced, so this epoch is over.
            others = tuple(voter.key for voter in self.voters if voter.id != self.key.id)
            self._become_resigned(others, now_ms)
        elif leader is not None and leader.id != self.key.id:
            self._become_follower(epoch, leader, now_ms)
        else:
            self._become_unattached(epoch, now_ms)
            assert isinstance(self._role, Unattached)
            # Nothing is known to lead, so nothing is lost by asking early.
            self._role.election_deadline_ms = now_ms + self._below(self.config.election_timeout_ms)
        self._poll(now_ms)

    def request(self, token: int, request: Request, now_ms: int) -> None:
        """A peer's or a client's request, to be answered by `Answer` with this token, perhaps later."""
        cluster_id = getattr(request, "cluster_id", None)
        if cluster_id is not None and cluster_id != self.config.cluster_id:
            self._answer(token, self._foreign_cluster(request))
            return
        handler, _ = _REQUESTS[type(request)]
        handler(self, token, request, now_ms)
        self._poll(now_ms)

    def _foreign_cluster(self, request: Request) -> Response:
        _, response = _REQUESTS[type(request)]
        error = ErrorCode.inconsistent_cluster_id
        if response in (rpc.AddVoterResponse, rpc.RemoveVoterResponse):
            message = f"this is the cluster {self.config.cluster_id}, not the one that the request names"
            return response(error, message)  # type: ignore[no-any-return]
        return response(error, self._hint())  # type: ignore[no-any-return]

    def response(self, node_id: int, correlation_id: int, response: Response, now_ms: int) -> None:
        """The answer to a `Send`."""
        if self._connections.finish(node_id, correlation_id):
            role, error = self._role, response.error
            if error is ErrorCode.inconsistent_cluster_id:
                self._fault(f"node {node_id} belongs to another cluster than {self.config.cluster_id}")
                is_good = False
            else:
                is_good = _RESPONSES[type(response)](self, node_id, response, now_ms)
                if error is ErrorCode.invalid_request:
                    self._fault(
                        f"node {node_id} refused a {type(response).__name__.removesuffix('Response')} as invalid"
                    )
            if not is_good and self._role is role:
                # Where it made a change of role, what is asked next is something else.
                self._connections.back_off(node_id, now_ms)
        self._poll(now_ms)

    def failed(self, node_id: int, correlation_id: int, now_ms: int, *, refused: bool) -> None:
        """A `Send` got no answer. `refused`: the connection was refused or broken, as by a process that ended; not
        merely slow."""
        if self._connections.finish(node_id, correlation_id):
            self._connections.back_off(node_id, now_ms)
            role = self._role
            if refused and isinstance(role, Following) and role.leader.id == node_id:
                self._leader_failed(role, now_ms)
            if refused and isinstance(role, Resignation) and self._is_shutting_down:
                # Its process has ended: there is nobody to be told.
                role.unacknowledged.discard(node_id)
        self._poll(now_ms)

    def tick(self, now_ms: int) -> None:
        self._poll(now_ms)

    def resign(self, epoch: int, now_ms: int) -> None:
        """Gives up the lead of `epoch`, in favour of those who have most of the log."""
        role = self._role
        if isinstance(role, Leadership) and role.epoch == epoch:
            role.is_resigning = True
        self._poll(now_ms)

    def shut_down(self, now_ms: int) -> None:
        """Hands the lead over and stands no more. Go on with ticks and messages until `may_stop`, or patience ends."""
        self._is_shutting_down = True
        self._poll(now_ms)

    @property
    def may_stop(self) -> bool:
        """While shutting down: everybody who lives knows that this node does not lead. Its vote is not needed: if the
        others are no majority without it, they will not be one either when it has stopped."""
        role = self._role
        if self.is_observer or self.voters.is_only(self.key):
            return True
        return not isinstance(role, Leadership) and not (isinstance(role, Resignation) and role.unacknowledged)

    def voters_before(self, end_offset: int) -> tuple[VoterSet, int]:
        """For the opening of a snapshot that ends there: the voters and the kraft.version."""
        return self._history.voters_before(end_offset), self._history.kraft_version_before(end_offset)

    # Time

    def _poll(self, now_ms: int) -> None:
        """Does what is due. A change of role has its own things to do at once."""
        self._connections.expire(now_ms)
        for _ in range(_POLLS_MAX):
            role = self._role
            match role:
                case Unattached():
                    self._poll_unattached(role, now_ms)
                    if self._role is role:
                        self._discover_leader(role, now_ms)
                case Election():
                    self._poll_election(role, now_ms)
                case Following():
                    self._poll_following(role, now_ms)
                case Leadership():
                    self._poll_leadership(role, now_ms)
                case Resignation():
                    self._poll_resignation(role, now_ms)
            if self._role is role:
                return

    def _poll_leadership(self, role: Leadership, now_ms: int) -> None:
        contact_deadline_ms = role.contact_deadline_ms(self.config.check_quorum_timeout_ms)
        is_cut_off = contact_deadline_ms is not None and now_ms >= contact_deadline_ms
        is_leaving = role.is_resigning or (self._is_shutting_down and not self.voters.is_only(self.key))
        if is_cut_off or is_leaving:
            self._become_resigned(role.successors(), now_ms)
            return
        if role.pending is not None and now_ms >= role.pending.deadline_ms:
            self._finish_change(role, ErrorCode.request_timed_out, "the change of voters took too long")
        for fetch in role.parked:
            if now_ms >= fetch.deadline_ms:
                self._wake_fetches(role, now_ms)
                break
        if now_ms >= role.begin_epoch_at_ms:
            self._begin_epoch(role, now_ms)

    def _begin_epoch(self, role: Leadership, now_ms: int) -> None:
        """Tells voters that do not fetch who leads."""
        interval_ms = self.config.fetch_timeout_ms // 2
        role.begin_epoch_at_ms = now_ms + interval_ms
        for node_id in role.silent_voters(now_ms, interval_ms):
            voter = self.voters.get(node_id)
            node = self._node(node_id)
            if voter is None or node is None:
                continue
            if self._connections.is_ready(node_id):
                request = BeginQuorumEpochRequest(
                    self.config.cluster_id, voter.key, self.key.id, self.epoch, self.own_voter.endpoints
                )
                self._send(node, request, now_ms)
            else:
                role.begin_epoch_at_ms = now_ms + min(interval_ms, self.config.retry_backoff_ms)

    def next_deadline_ms(self) -> int | None:
        """When to tick, at the latest; None: not before something comes in."""
        deadlines: list[int | None] = [self._connections.next_event_ms()]
        role = self._role
        match role:
            case Unattached():
                if self._may_stand():
                    deadlines.append(role.election_deadline_ms)
                if self._connections.is_idle and (len(self.voters) or self.config.bootstrap_servers):
                    deadlines.append(role.discover_at_ms)
            case Election():
                deadlines.append(role.deadline_ms if role.backoff_until_ms is None else role.backoff_until_ms)
            case Following():
                if self._may_stand() or self.is_observer:
                    deadlines.append(role.fetch_deadline_ms)
            case Leadership():
                deadlines.append(role.contact_deadline_ms(self.config.check_quorum_timeout_ms))
                deadlines += [fetch.deadline_ms for fetch in role.parked]
                if role.pending is not None:
                    deadlines.append(role.pending.deadline_ms)
                if len(self.voters) > 1:
                    deadlines.append(role.begin_epoch_at_ms)
            case Resignation():
                if not self._is_shutting_down:
                    deadlines.append(role.deadline_ms)
        return min([deadline for deadline in deadlines if deadline is not None], default=None)


_Handle = Callable[[Any, int, Any, int], None]
_REQUESTS: dict[type, tuple[_Handle, Any]] = {
    rpc.VoteRequest: (Quorum._handle_vote, rpc.VoteResponse),
    rpc.BeginQuorumEpochRequest: (Quorum._handle_begin_quorum_epoch, rpc.BeginQuorumEpochResponse),
    rpc.EndQuorumEpochRequest: (Quorum._handle_end_quorum_epoch, rpc.EndQuorumEpochResponse),
    rpc.FetchRequest: (Quorum._handle_fetch, rpc.FetchResponse),
    rpc.FetchSnapshotRequest: (Quorum._handle_fetch_snapshot, rpc.FetchSnapshotResponse),
    rpc.AddVoterRequest: (Quorum._handle_add_voter, rpc.AddVoterResponse),
    rpc.RemoveVoterRequest: (Quorum._handle_remove_voter, rpc.RemoveVoterResponse),
    rpc.UpdateVoterRequest: (Quorum._handle_update_voter, rpc.UpdateVoterResponse),
    rpc.DescribeQuorumRequest: (Quorum._handle_describe, rpc.DescribeQuorumResponse),
}
_RESPONSES: dict[type, Callable[[Any, int, Any, int], bool]] = {
    rpc.VoteResponse: Quorum._handle_vote_response,
    rpc.BeginQuorumEpochResponse: Quorum._handle_begin_quorum_epoch_response,
    rpc.EndQuorumEpochResponse: Quorum._handle_end_quorum_epoch_response,
    rpc.FetchResponse: Quorum._handle_fetch_response,
    rpc.FetchSnapshotResponse: Quorum._handle_fetch_snapshot_response,
    rpc.UpdateVoterResponse: Quorum._handle_update_voter_response,
    rpc.ApiVersionsResponse: Quorum._handle_api_versions_response,
}
