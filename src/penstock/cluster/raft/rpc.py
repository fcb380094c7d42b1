"""What quorum members say to each other, in Kafka's nouns. messages.py turns these from and into what goes on the wire.

The metadata partition is the only one there is, so requests name no topic. In responses `error` is the partition's or
the whole request's error, whichever there is, and the leader's id is -1 when it is not known.
"""

from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.cluster.raft.voters import Endpoint, Node, ReplicaKey

NO_LEADER = -1
NO_OFFSET = -1
UNKNOWN_HIGH_WATERMARK = -1
# A follower of a version that does not tell its high watermark does not wait for it either (KIP-1166).
HIGH_WATERMARK_UNASKED = (1 << 63) - 1


class OffsetAndEpoch(NamedTuple):
    """An end of a log: the next offset, and the epoch of what stands before it. Also a snapshot's id."""

    offset: int
    epoch: int


class LeaderHint(NamedTuple):
    """What every response says of the leader."""

    leader_id: int
    epoch: int
    node: Node | None = None


class VoteRequest(NamedTuple):
    cluster_id: str | None
    # Whom it is meant for; None from before KIP-853.
    voter: ReplicaKey | None
    replica: ReplicaKey
    replica_epoch: int
    last: OffsetAndEpoch
    pre_vote: bool


class VoteResponse(NamedTuple):
    error: ErrorCode
    leader: LeaderHint
    vote_granted: bool = False


class BeginQuorumEpochRequest(NamedTuple):
    cluster_id: str | None
    voter: ReplicaKey | None
    leader_id: int
    leader_epoch: int
    leader_endpoints: tuple[Endpoint, ...]


class BeginQuorumEpochResponse(NamedTuple):
    error: ErrorCode
    leader: LeaderHint


class EndQuorumEpochRequest(NamedTuple):
    cluster_id: str | None
    leader_id: int
    leader_epoch: int
    # Who should stand first, best first.
    preferred_candidates: tuple[ReplicaKey, ...]
    leader_endpoints: tuple[Endpoint, ...]


class EndQuorumEpochResponse(NamedTuple):
    error: ErrorCode
    leader: LeaderHint


class FetchRequest(NamedTuple):
    cluster_id: str | None
    replica: ReplicaKey
    wait_ms_max: int
    bytes_max: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int = HIGH_WATERMARK_UNASKED


class FetchResponse(NamedTuple):
    error: ErrorCode
    leader: LeaderHint
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    log_start_offset: int = NO_OFFSET
    # Where the follower's log and the leader's part: the follower truncates and asks again.
    diverging: OffsetAndEpoch | None = None
    # What the follower needs is gone: it fetches this snapshot first.
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes = b""


class FetchSnapshotRequest(NamedTuple):
    cluster_id: str | None
    replica: ReplicaKey
    bytes_max: int
    leader_epoch: int
    snapshot_id: OffsetAndEpoch
    position: int


class FetchSnapshotResponse(NamedTuple):
    error: ErrorCode
    leader: LeaderHint
    snapshot_id: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


class AddVoterRequest(NamedTuple):
    cluster_id: str | None
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    ack_when_committed: bool = True


class AddVoterResponse(NamedTuple):
    error: ErrorCode
    message: str | None = None


class RemoveVoterRequest(NamedTuple):
    cluster_id: str | None
    voter: ReplicaKey


class RemoveVoterResponse(NamedTuple):
    error: ErrorCode
    message: str | None = None


class UpdateVoterRequest(NamedTuple):
    cluster_id: str | None
    leader_epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    version_min: int
    version_max: int


class UpdateVoterResponse(NamedTuple):
    error: ErrorCode
    leader: LeaderHint


class ApiVersionsRequest(NamedTuple):
    """Asks a node that is to vote which kraft.versions it supports."""


class ApiVersionsResponse(NamedTuple):
    error: ErrorCode
    kraft_version_min: int = 0
    kraft_version_max: int = 0


class DescribeQuorumRequest(NamedTuple):
    """Anybody's question about the state of the quorum."""


class ReplicaProgress(NamedTuple):
    replica: ReplicaKey
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponse(NamedTuple):
    error: ErrorCode
    leader: LeaderHint
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    voters: tuple[ReplicaProgress, ...] = ()
    observers: tuple[ReplicaProgress, ...] = ()
    nodes: tuple[tuple[int, tuple[Endpoint, ...]], ...] = ()


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | DescribeQuorumRequest
    | ApiVersionsRequest
)
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | UpdateVoterResponse
    | DescribeQuorumResponse
    | ApiVersionsResponse
)
