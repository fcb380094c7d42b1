"""What must hold of a quorum after every step, each as a named check: 11, 12, 14 and 15 of the list of invariants.

They look at what members send, persist and have on their disks, not at what members think of themselves, wherever that
can be told apart.
"""

from hashlib import blake2b

from penstock.cluster.raft import Role
from penstock.cluster.raft import effects as raft_effects
from penstock.cluster.raft.leadership import Leadership
from penstock.cluster.raft.roles import Following
from penstock.cluster.raft.rpc import (
    BeginQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Request,
    VoteRequest,
    VoteResponse,
)
from tests.unit.raft.cluster import Cluster, Member
from tests.unit.raft.memory_log import Entry


class Violation(AssertionError):
    """An invariant is broken; the message names it."""


def require(condition: bool, invariant: str, detail: str) -> None:
    if not condition:
        raise Violation(f"{invariant}: {detail}")


def _chain(before: int, entry: Entry) -> int:
    return int.from_bytes(blake2b(entry.data, key=before.to_bytes(8), digest_size=8).digest())


class Checkers:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.observers.append(self.before_effect)
        cluster.on_delivery = self.on_delivery
        self.committed: dict[int, Entry] = {}
        self.committed_hash: dict[int, int] = {0: 0}
        self.committed_end = 0
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._roles: dict[int, tuple[int, Role, int]] = {}
        self._leader_since_ms: dict[int, int] = {}
        self._heard_ms: dict[tuple[int, int], int] = {}
        self._stable_since_ms: int | None = None
        self.elections = 0

    def before_effect(self, member: Member, effect: raft_effects.Effect) -> None:
        match effect:
            case raft_effects.Send(_, _, VoteRequest() as request):
                self._epoch_is_durable(member, request.replica_epoch)
                if not request.pre_vote:
                    self._one_vote(member, request.replica_epoch, request.replica.id)
            case raft_effects.Send(_, _, FetchRequest() as request):
                self._epoch_is_durable(member, request.leader_epoch)
                assert member.quorum is not None
                if member.quorum.is_voter:
                    require(
                        request.fetch_offset <= member.log.durable_offset,
                        "11 the log is synced before the answer",
                        f"{member.id} acknowledges {request.fetch_offset}, synced is {member.log.durable_offset}",
                    )
            case raft_effects.Answer(token, VoteResponse() as response) if token in member.asked:
                asked = member.asked[token].send.request
                assert isinstance(asked, VoteRequest)
                self._epoch_is_durable(member, response.leader.epoch)
                if response.vote_granted and not asked.pre_vote:
                    self._one_vote(member, asked.replica_epoch, asked.replica.id)
            case raft_effects.Answer(_, FetchResponse() | BeginQuorumEpochResponse() as told):
                self._epoch_is_durable(member, told.leader.epoch)
            case raft_effects.Committed(high_watermark):
                self._apply(member, high_watermark)
            case raft_effects.SnapshotInstalled(snapshot_id):
                self._snapshot_is_true(member, snapshot_id.offset)
            case raft_effects.Leading(epoch):
                self._leading_is_caught_up(member, epoch)

    def _epoch_is_durable(self, member: Member, epoch: int) -> None:
        require(
            epoch <= max(member.vote_state.epoch, 0),
            "11 the term is persisted before the answer",
            f"{member.id} speaks in {epoch}, on its disk is {member.vote_state.epoch}",
        )

    def _one_vote(self, member: Member, epoch: int, candidate: int) -> None:
        voted = self._votes.setdefault((member.id, epoch), candidate)
        require(voted == candidate, "11 one vote per term", f"{member.id} voted for {voted} and {candidate} in {epoch}")
        require(
            (member.vote_state.epoch, member.vote_state.voted_id) == (epoch, candidate),
            "11 the vote is persisted before the answer",
            f"{member.id} votes for {candidate} in {epoch}, on its disk is {member.vote_state}",
        )

    def _apply(self, member: Member, high_watermark: int) -> None:
        for entry in member.log.entries_from(member.applied_offset):
            if entry.base_offset < member.applied_offset:
                continue
            if entry.end_offset > high_watermark:
                break
            require(
                entry.base_offset == member.applied_offset,
                "15 metadata is a prefix",
                f"{member.id} has a gap at {member.applied_offset}",
            )
            member.applied_hash = _chain(member.applied_hash, entry)
            member.applied_offset = entry.end_offset
            if entry.end_offset > self.committed_end:
                self._is_on_a_majority(member, entry)
                self.committed_end = entry.end_offset
                self.committed[entry.end_offset] = entry
                self.committed_hash[entry.end_offset] = member.applied_hash
            require(
                self.committed_hash.get(entry.end_offset) == member.applied_hash,
                "15 metadata is a prefix of the leader's",
                f"{member.id} applies something else below {entry.end_offset} than was committed",
            )
        require(
            member.applied_offset == high_watermark,
            "12 what is committed is there",
            f"{member.id} is told {high_watermark} and has {member.applied_offset}",
        )

    def _is_on_a_majority(self, member: Member, entry: Entry) -> None:
        assert member.quorum is not None
        voters = member.quorum.voters
        holders = [
            other.id
            for other in self.cluster.members.values()
            if voters.get(other.id) is not None and self._holds(other, entry)
        ]
        require(
            len(holders) >= voters.majority,
            "12 committed is on a majority's disks",
            f"{entry[:3]} is committed by {member.id}, but only {holders} of {voters.ids} have it",
        )

    @staticmethod
    def _holds(member: Member, entry: Entry) -> bool:
        log = member.log
        if log.start_offset >= entry.end_offset:
            return True
        return log.durable_offset >= entry.end_offset and log.entry_at(entry.base_offset) == entry

    def _snapshot_is_true(self, member: Member, offset: int) -> None:
        latest = member.log.latest_snapshot()
        assert latest is not None
        self.cluster.load_snapshot(member, latest)
        require(
            self.committed_hash.get(offset) == member.applied_hash,
            "13 a snapshot is what was committed",
            f"{member.id} loads another state at {offset}",
        )

    def _leading_is_caught_up(self, member: Member, epoch: int) -> None:
        require(
            member.applied_offset >= self.committed_end,
            "15 elected is not caught up",
            f"{member.id} serves in {epoch} from {member.applied_offset}, committed is {self.committed_end}",
        )
        last = self.committed.get(member.applied_offset)
        require(
            last is None or last.epoch == epoch,
            "15 serve after an entry of one's own term",
            f"{member.id} serves in {epoch} with {last and last.epoch} as the last term",
        )

    # After every step

    def check(self) -> None:
        for member in self.cluster.members.values():
            quorum = member.quorum
            if quorum is None:
                self._roles.pop(member.id, None)
                continue
            role = (quorum.epoch, quorum.role, member.incarnation)
            if self._roles.get(member.id) != role:
                if quorum.role is Role.LEADER:
                    self._elected(member, quorum.epoch)
                elif quorum.role is Role.CANDIDATE:
                    self._unseats_nobody(member, quorum.epoch)
                self._roles[member.id] = role
            if quorum.role is Role.LEADER:
                self._has_contact(member)
        self._look_for_stability()

    def _elected(self, member: Member, epoch: int) -> None:
        self.elections += 1
        self._leader_since_ms[member.id] = self.cluster.now_ms
        leader = self._leaders.setdefault(epoch, member.id)
        require(leader == member.id, "11 one leader per term", f"{leader} and {member.id} lead {epoch}")
        # One that is elected late, in an epoch that is over already, need not know what was decided since.
        earlier = [entry for entry in self.committed.values() if entry.epoch < epoch]
        if earlier and earlier[-1].end_offset > member.log.start_offset:
            require(
                member.log.entry_at(earlier[-1].base_offset) == earlier[-1],
                "12 committed entries are in every later leader's log",
                f"{member.id} leads {epoch} without {earlier[-1][:3]}",
            )

    def _unseats_nobody(self, member: Member, epoch: int) -> None:
        """Pre-votes are asked for one election timeout at the most, so a majority that has followed one leader for
        longer than that granted none of them."""
        longest_election_ms = 2 * self.cluster.config.election_timeout_ms
        stable_ms = 0 if self._stable_since_ms is None else self.cluster.now_ms - self._stable_since_ms
        require(
            stable_ms <= longest_election_ms,
            "14 a voter that was cut off raises no term",
            f"{member.id} stands for {epoch}, while a majority has followed a leader for {stable_ms} ms",
        )

    def _look_for_stability(self) -> None:
        """Since when a leader and a majority with it have heard of each other without a break."""
        now_ms = self.cluster.now_ms
        leader = self.cluster.leader()
        followers = 0
        if leader is not None and leader.quorum is not None:
            for member in self.cluster.members.values():
                following = member.quorum._role if member.quorum is not None else None
                followers += (
                    isinstance(following, Following)
                    and member.quorum is not None
                    and member.quorum.is_voter
                    and member.quorum.epoch == leader.quorum.epoch
                    and following.has_fetched
                    and not following.is_leader_gone
                    and now_ms < following.fetch_deadline_ms
                )
            if followers + 1 >= leader.quorum.voters.majority and leader.quorum.is_voter:
                if self._stable_since_ms is None:
                    self._stable_since_ms = now_ms
                return
        self._stable_since_ms = None

    def _has_contact(self, member: Member) -> None:
        leadership = member.quorum._role if member.quorum is not None else None
        if not isinstance(leadership, Leadership) or member.paused_until_ms >= self.cluster.now_ms:
            return
        timeout_ms = self.cluster.config.check_quorum_timeout_ms
        since_ms = self._leader_since_ms[member.id]
        heard = sum(
            max(since_ms, self._heard_ms.get((member.id, voter_id), 0)) + timeout_ms >= self.cluster.now_ms
            for voter_id in leadership.voters
            if voter_id != member.id
        )
        require(
            heard + leadership.is_voter >= len(leadership.voters) // 2 + 1,
            "14 a leader without a majority resigns",
            f"{member.id} still leads {leadership.epoch}, hearing {heard} others",
        )

    def on_delivery(self, receiver: int, source: int, request: Request) -> None:
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            self._heard_ms[receiver, source] = self.cluster.now_ms
