"""What a quorum member is, and how it passes from one role to another. roles.py has the table.

Epoch, leader and vote change in one place, `_vote`, which has them persisted before anything is sent.
"""

from collections.abc import Sequence

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError, DiskFull, Random
from penstock.cluster.raft import control_records
from penstock.cluster.raft.connections import Connections
from penstock.cluster.raft.effects import (
    NO_NODE,
    Answer,
    Effect,
    Fault,
    LeaderChanged,
    Persist,
    Send,
    StoppedLeading,
    Sync,
    VoteState,
)
from penstock.cluster.raft.leadership import Leadership
from penstock.cluster.raft.log import RaftLog
from penstock.cluster.raft.roles import (
    Election,
    Following,
    QuorumConfig,
    Resignation,
    Role,
    Unattached,
)
from penstock.cluster.raft.rpc import (
    AddVoterResponse,
    FetchResponse,
    LeaderHint,
    OffsetAndEpoch,
    RemoveVoterResponse,
    Request,
    Response,
)
from penstock.cluster.raft.voters import (
    KRAFT_VERSION_STATIC,
    STATIC_OFFSET,
    Endpoint,
    Node,
    ReplicaKey,
    Voter,
    VoterHistory,
    VoterSet,
)

READ_BYTES = 1 << 20


class QuorumState:
    """What a member is, and its changes of role. The layers above it decide when."""

    def __init__(
        self,
        config: QuorumConfig,
        own_voter: Voter,
        log: RaftLog,
        random: Random,
        vote_state: VoteState,
        static_voters: VoterSet,
        *,
        kraft_version: int = KRAFT_VERSION_STATIC,
        wall_clock_ahead_ms: int = 0,
    ) -> None:
        """`static_voters` and `kraft_version` are what the configuration or formatting says; the log knows better.
        `wall_clock_ahead_ms` makes timestamps of `now_ms`, which only has to be monotonic. Raises DiskError where the
        metadata cannot be trusted."""
        self.config = config
        self.own_voter = own_voter
        self.key = own_voter.key
        self.vote_state = vote_state
        self.high_watermark = 0
        self._log = log
        self._random = random
        self._wall_clock_ahead_ms = wall_clock_ahead_ms
        self._connections = Connections(config.request_timeout_ms, config.retry_backoff_ms)
        self._effects: list[Effect] = []
        self._announced = LeaderChanged(NO_NODE, 0)
        self._role: Unattached | Election | Following | Leadership | Resignation = Unattached(0, 0)
        # When the leader that was followed last was last heard of, by its id.
        self.leaders_heard_ms: dict[int, int] = {}
        self._is_candidate = False
        self._is_shutting_down = False
        self._synced_offset = min(log.synced_offset, log.end_offset)
        self._sync_under_way: Sync | None = None
        self._truncations = 0
        self._history = VoterHistory(static_voters, kraft_version)
        self._load_history()

    def _load_history(self) -> None:
        snapshot_id = self._log.latest_snapshot()
        read_from = self._log.start_offset
        if snapshot_id is not None:
            size = self._log.snapshot_size(snapshot_id) or 0
            contents = control_records.check_snapshot(self._log.read_snapshot(snapshot_id, 0, size))
            if contents is None:
                raise DiskError(
                    f"the snapshot {snapshot_id.offset}-{snapshot_id.epoch} of the metadata is damaged. Restore it, or "
                    "remove this node from the voters and let it begin anew"
                )
            self._history.restart_at(snapshot_id.offset, contents.voters, contents.kraft_version)
            # Only what is committed gets into a snapshot.
            self.high_watermark = snapshot_id.offset
            # The log may go back further, to what the snapshot has taken in.
            read_from = max(read_from, snapshot_id.offset)
        self._read_voters(read_from)

    def _read_voters(self, offset: int) -> None:
        """Takes in what the log says about voters, from `offset` to its end."""
        while offset < self._log.end_offset:
            data = self._log.read(offset, READ_BYTES)
            for change in control_records.voter_changes(data):
                if change.voters is not None:
                    self._history.add_voters(change.offset, change.voters)
                if change.kraft_version is not None:
                    self._history.add_kraft_version(change.offset, change.kraft_version)
            headers = [header for header, _ in control_records.batches_of(data)]
            if not headers:
                return
            offset = headers[-1].last_offset + 1

    # What it is

    @property
    def role(self) -> Role:
        match self._role:
            case Unattached():
                return Role.UNATTACHED
            case Election():
                return Role.CANDIDATE if self._is_candidate else Role.PROSPECTIVE
            case Following():
                return Role.FOLLOWER
            case Leadership():
                return Role.LEADER
            case Resignation():
                return Role.RESIGNED

    @property
    def epoch(self) -> int:
        return self.vote_state.epoch

    @property
    def leader_id(self) -> int:
        """Of this epoch, -1 when not known. A leader that resigned names none."""
        return NO_NODE if isinstance(self._role, Resignation) else self.vote_state.leader_id

    @property
    def voters(self) -> VoterSet:
        return self._history.voters

    @property
    def kraft_version(self) -> int:
        return self._history.kraft_version

    def locate(self, node_id: int) -> Node | None:
        """Where a voter is, or the leader, which an observer may know before it knows who votes."""
        leader = self._leader_node()
        return leader if leader is not None and leader.id == node_id else self._node(node_id)

    @property
    def is_voter(self) -> bool:
        return self.voters.has(self.key)

    @property
    def is_observer(self) -> bool:
        return not self.is_voter

    @property
    def is_leading(self) -> bool:
        """Whether proposals are taken."""
        role = self._role
        return isinstance(role, Leadership) and role.is_established and not role.is_resigning

    def _may_stand(self) -> bool:
        return (self.is_voter or self._is_leaving) and not self._is_shutting_down

    @property
    def _is_leaving(self) -> bool:
        """Removed by a record that is not known to be committed. Until it is, nobody else may have a log that can win:
        it stands, without a vote of its own (Ongaro's thesis, 4.2.2)."""
        offset = self._history.voters_offset
        is_committed = offset < self.high_watermark
        return not is_committed and not self.is_voter and self._history.voters_before(offset).has(self.key)

    def _own_votes(self) -> set[int]:
        return {self.key.id} if self.is_voter else set()

    def _end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self._log.end_offset, self._log.last_epoch)

    def _hint(self) -> LeaderHint:
        return LeaderHint(self.leader_id, self.epoch, self._leader_node())

    def _leader_node(self) -> Node | None:
        if isinstance(self._role, Following):
            return self._role.leader
        if isinstance(self._role, Leadership):
            return self.own_voter.node(self.config.listener)
        return None

    def _node(self, node_id: int) -> Node | None:
        voter = self.voters.get(node_id)
        return None if voter is None else voter.node(self.config.listener)

    def _node_from(self, node_id: int, endpoints: Sequence[Endpoint]) -> Node | None:
        return Voter(node_id, None, tuple(endpoints)).node(self.config.listener) or self._node(node_id)

    def _wall_ms(self, now_ms: int) -> int:
        return now_ms + self._wall_clock_ahead_ms

    # What it wants

    def take_effects(self) -> list[Effect]:
        """What to do now, in this order."""
        leader = LeaderChanged(self.leader_id, self.epoch)
        if leader != self._announced:
            self._announced = leader
            self._emit(leader)
        effects, self._effects = self._effects, []
        return effects

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _answer(self, token: int, response: Response) -> None:
        self._emit(Answer(token, response))

    def _send(self, node: Node, request: Request, now_ms: int) -> None:
        self._emit(Send(node, self._connections.sent(node.id, now_ms), request))

    def _fault(self, message: str) -> None:
        self._emit(Fault(message))

    def _below(self, bound: int) -> int:
        """A random number from 0 to `bound` - 1."""
        return int.from_bytes(self._random.random_bytes(8)) % bound if bound > 0 else 0

    def _election_timeout_ms(self) -> int:
        return self.config.election_timeout_ms + self._below(self.config.election_timeout_ms)

    def _fetch_timeout_ms(self) -> int:
        """Followers that lose their leader in the same moment do not stand in the same moment."""
        return self.config.fetch_timeout_ms + self._below(self.config.fetch_timeout_ms // 8)

    # Changes of role

    def _vote(self, state: VoteState) -> None:
        """Takes on an epoch, a leader, a vote: never an earlier epoch, nor another leader or vote in the same one."""
        old = self.vote_state
        if state == old:
            return
        assert state.epoch >= old.epoch
        assert state.epoch > old.epoch or (
            old.leader_id in (NO_NODE, state.leader_id) and old.voted_id in (NO_NODE, state.voted_id)
        )
        self.vote_state = state
        self._persist(state)

    def _persist(self, state: VoteState) -> None:
        """One write for what happens at once: nothing that rests on the state before has left yet."""
        if self._effects and isinstance(self._effects[-1], Persist):
            self._effects.pop()
        self._emit(Persist(state))

    def _in_epoch(self, epoch: int) -> VoteState:
        return self.vote_state if epoch == self.epoch else VoteState(epoch)

    def _leave(self) -> None:
        """What was promised in the old role is called off."""
        self._connections.reset()
        role = self._role
        if not isinstance(role, Leadership):
            return
        hint = LeaderHint(NO_NODE, self.epoch)
        for parked in role.parked:
            self._answer(parked.token, FetchResponse(ErrorCode.not_leader_or_follower, hint))
        if role.pending is not None:
            error = ErrorCode.not_leader_or_follower
            response: Response = RemoveVoterResponse(error)
            if role.pending.addition is not None:
                response = AddVoterResponse(error)
            self._answer(role.pending.token, response)
        self._emit(StoppedLeading(role.epoch))

    def _become_unattached(self, epoch: int, now_ms: int) -> None:
        self._leave()
        self._vote(self._in_epoch(epoch))
        self._role = Unattached(now_ms + self._election_timeout_ms(), now_ms)

    def _become_follower(self, epoch: int, leader: Node, now_ms: int) -> None:
        assert leader.id != self.key.id
        self._leave()
        self._vote(self._in_epoch(epoch)._replace(leader_id=leader.id))
        self._role = Following(leader, now_ms + self._fetch_timeout_ms(), now_ms + self.config.fetch_timeout_ms)

    def _become_prospective(self, now_ms: int, retries: int = 0) -> None:
        if self.voters.is_only(self.key):
            self._become_candidate(now_ms, retries)
            return
        self._leave()
        self._is_candidate = False
        self._role = Election(now_ms + self._election_timeout_ms(), retries, self._own_votes())

    def _become_candidate(self, now_ms: int, retries: int) -> None:
        self._leave()
        self._vote(VoteState(self.epoch + 1, NO_NODE, self.key.id, self.key.directory_id))
        self._is_candidate = True
        self._role = Election(now_ms + self._election_timeout_ms(), retries + 1, self._own_votes())
        if self.voters.is_only(self.key):
            self._become_leader(self._role, now_ms)

    def _become_leader(self, election: Election, now_ms: int) -> None:
        """Opens the epoch with a record: only entries of one's own epoch commit, and those before with them."""
        self._leave()
        self._vote(self.vote_state._replace(leader_id=self.key.id))
        leadership = Leadership(self.key, self.epoch, self._log.end_offset, now_ms, begin_epoch_at_ms=now_ms)
        leadership.set_voters(self.voters)
        self._role = leadership
        records = [control_records.leader_change(self.key.id, self.voters.ids, sorted(election.granted))]
        if self._history.kraft_version > KRAFT_VERSION_STATIC:
            updated = self.voters.updated(self.own_voter)
            if updated is not None and (self._history.voters_offset == STATIC_OFFSET or updated != self.voters):
                records.append(control_records.kraft_version(self._history.kraft_version))
                records.append(control_records.kraft_voters(updated))
        try:
            self._append_control(records, now_ms)
        except DiskFull as problem:
            self._fault(f"this node was elected, but leaves it to others: {problem}")
            self._become_resigned(leadership.successors(), now_ms)

    def _become_resigned(self, preferred_candidates: tuple[ReplicaKey, ...], now_ms: int) -> None:
        self._leave()
        self._role = Resignation(
            now_ms + self._election_timeout_ms(),
            preferred_candidates,
            {voter.id for voter in self.voters if voter.id != self.key.id},
        )

    def _append_control(self, records: list[control_records.ControlRecord], now_ms: int) -> None:
        """As the leader. New voters count from here on. Raises DiskFull, the log being as it was."""
        assert isinstance(self._role, Leadership)
        batch = control_records.control_batch(records, self._wall_ms(now_ms))
        base_offset = self._log.append(batch, self.epoch, now_ms)
        self._read_voters(base_offset)
        self._role.set_voters(self.voters)
        self._request_sync()

    # Syncing

    def _must_sync(self) -> bool:
        """Whether somebody may count on this log."""
        return self.is_voter or self.config.sync_as_observer or isinstance(self._role, Leadership)

    def _request_sync(self) -> None:
        """One at a time: what is appended meanwhile goes with the next one."""
        if self._sync_under_way is None and self._must_sync() and self._synced_offset < self._log.end_offset:
            self._sync_under_way = Sync(self._log.end_offset, self._truncations)
            self._emit(self._sync_under_way)

    def _cut_log(self, end_offset: int) -> None:
        """The log was made shorter, or replaced."""
        self._truncations += 1
        self._synced_offset = min(self._synced_offset, end_offset)
