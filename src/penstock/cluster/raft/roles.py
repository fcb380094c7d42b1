"""The roles of a quorum member, the ways between them, and what it keeps in mind in each.

role         | is                                        | leaves it
-------------|-------------------------------------------|--------------------------------------------------------------
Unattached   | knows no leader of the epoch; may have    | heard of a leader -> Follower; election timeout of a voter ->
             | voted in it; asks around for the leader   | Prospective
Prospective  | asks whether it would be elected, without | yes, by a majority -> Candidate; no, or election timeout ->
             | raising the epoch (pre-vote, KIP-996)     | Follower of the leader it had, or Unattached
Candidate    | has raised the epoch and voted for itself | votes of a majority -> Leader; no, or election timeout ->
             |                                           | Prospective after a random pause
Leader       | appends, opens its epoch with a record    | majority silent (check-quorum), asked to, or removed from the
             |                                           | voters -> Resigned
Follower     | fetches from the leader                   | fetch timeout, leader's end or loss -> Prospective
Observer     | an Unattached or Follower that does not   | as these, but never Prospective: a Follower that loses the
             | vote; becomes a voter by a voters record  | leader is Unattached. Not so one whose removal from the
             |                                           | voters is not known to be committed: that one still stands
Resigned     | led this epoch, tells the voters that it  | election timeout -> Unattached in the next epoch
             | is over                                   |

Any role: a larger epoch -> Unattached, or Follower when its leader is told with it.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.voters import Node, ReplicaKey


class Role(Enum):
    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


class QuorumConfig(NamedTuple):
    """`controller.quorum.*`, in Kafka's defaults, and what is fixed in Kafka."""

    cluster_id: str
    # The listener that controllers talk to each other by.
    listener: str = "CONTROLLER"
    election_timeout_ms: int = 1000
    election_backoff_ms_max: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 8 << 20
    # A controller that may be made a voter syncs before it fetches on, even while it does not vote.
    sync_as_observer: bool = False
    # Whom to ask for the leader when no voters are known.
    bootstrap_servers: tuple[tuple[str, int], ...] = ()

    @property
    def check_quorum_timeout_ms(self) -> int:
        """Longer than a fetch timeout, for the way there and back."""
        return self.fetch_timeout_ms * 3 // 2


@dataclass(slots=True)
class Unattached:
    election_deadline_ms: int
    # When to ask around for a leader again.
    discover_at_ms: int


@dataclass(slots=True)
class Election:
    """A prospective's or a candidate's."""

    deadline_ms: int
    retries: int
    granted: set[int]
    rejected: set[int] = field(default_factory=set)
    backoff_until_ms: int | None = None


@dataclass(slots=True)
class Download:
    snapshot_id: OffsetAndEpoch
    position: int = 0
    # Whole and checked; being made durable.
    is_storing: bool = False


@dataclass(slots=True)
class Following:
    leader: Node
    fetch_deadline_ms: int
    update_voter_at_ms: int
    # Until then a new leader is taken on trust, and pre-votes are granted.
    has_fetched: bool = False
    # It said that it leads no more, or does not take connections.
    is_leader_gone: bool = False
    failures: int = 0
    download: Download | None = None


@dataclass(slots=True)
class Resignation:
    deadline_ms: int
    preferred_candidates: tuple[ReplicaKey, ...]
    unacknowledged: set[int]
