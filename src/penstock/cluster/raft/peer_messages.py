"""The seam to the wire for what this node asks its peers: requests into Structs, and their answers back. messages.py
is the same for what it is asked.
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cluster.raft import rpc
from penstock.cluster.raft.messages import (
    API_VERSIONS,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    KRAFT_VERSION_FEATURE,
    UPDATE_RAFT_VOTER,
    VOTE,
    listeners_of,
    metadata_topics,
)
from penstock.cluster.raft.rpc import LeaderHint, OffsetAndEpoch
from penstock.cluster.raft.voters import Node, ReplicaKey
from penstock.protocol.messages import Struct

_UNKNOWN_LEADER = LeaderHint(rpc.NO_LEADER, -1)
_INT_MAX = (1 << 31) - 1


def write_request(request: rpc.Request) -> tuple[int, Struct]:
    """The API key and the body of a request to a peer."""
    match request:
        case rpc.VoteRequest():
            return VOTE, _write_vote(request)
        case rpc.BeginQuorumEpochRequest():
            return BEGIN_QUORUM_EPOCH, _write_begin(request)
        case rpc.EndQuorumEpochRequest():
            return END_QUORUM_EPOCH, _write_end(request)
        case rpc.FetchRequest():
            return FETCH, _write_fetch(request)
        case rpc.FetchSnapshotRequest():
            return FETCH_SNAPSHOT, _write_fetch_snapshot(request)
        case rpc.UpdateVoterRequest():
            return UPDATE_RAFT_VOTER, _write_update_voter(request)
        case rpc.ApiVersionsRequest():
            return API_VERSIONS, Struct(client_software_name="penstock", client_software_version="0")
    raise AssertionError(f"the quorum does not send {type(request).__name__}")


def _write_vote(request: rpc.VoteRequest) -> Struct:
    voter = request.voter or ReplicaKey(-1)
    return Struct(
        cluster_id=request.cluster_id,
        voter_id=voter.id,
        topics=metadata_topics(
            replica_epoch=request.replica_epoch,
            replica_id=request.replica.id,
            replica_directory_id=request.replica.directory_id,
            voter_directory_id=voter.directory_id,
            last_offset_epoch=request.last.epoch,
            last_offset=request.last.offset,
            pre_vote=request.pre_vote,
        ),
    )


def _write_begin(request: rpc.BeginQuorumEpochRequest) -> Struct:
    voter = request.voter or ReplicaKey(-1)
    return Struct(
        cluster_id=request.cluster_id,
        voter_id=voter.id,
        topics=metadata_topics(
            voter_directory_id=voter.directory_id, leader_id=request.leader_id, leader_epoch=request.leader_epoch
        ),
        leader_endpoints=listeners_of(request.leader_endpoints),
    )


def _write_end(request: rpc.EndQuorumEpochRequest) -> Struct:
    return Struct(
        cluster_id=request.cluster_id,
        topics=metadata_topics(
            leader_id=request.leader_id,
            leader_epoch=request.leader_epoch,
            preferred_successors=[one.id for one in request.preferred_candidates],
            preferred_candidates=[
                Struct(candidate_id=one.id, candidate_directory_id=one.directory_id)
                for one in request.preferred_candidates
            ],
        ),
        leader_endpoints=listeners_of(request.leader_endpoints),
    )


def _write_fetch(request: rpc.FetchRequest) -> Struct:
    return Struct(
        cluster_id=request.cluster_id,
        replica_id=request.replica.id,
        replica_state=Struct(replica_id=request.replica.id, replica_epoch=-1),
        max_wait=request.wait_ms_max,
        max_bytes=request.bytes_max,
        topics=metadata_topics(
            current_leader_epoch=request.leader_epoch,
            fetch_offset=request.fetch_offset,
            last_fetched_epoch=request.last_fetched_epoch,
            partition_max_bytes=min(request.bytes_max, _INT_MAX),
            replica_directory_id=request.replica.directory_id,
            high_watermark=request.high_watermark,
        ),
    )


def _write_fetch_snapshot(request: rpc.FetchSnapshotRequest) -> Struct:
    return Struct(
        cluster_id=request.cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.bytes_max,
        topics=metadata_topics(
            current_leader_epoch=request.leader_epoch,
            snapshot_id=Struct(end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch),
            position=request.position,
            replica_directory_id=request.replica.directory_id,
        ),
    )


def _write_update_voter(request: rpc.UpdateVoterRequest) -> Struct:
    return Struct(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.leader_epoch,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id,
        listeners=listeners_of(request.endpoints),
        k_raft_version_feature=Struct(
            min_supported_version=request.version_min, max_supported_version=request.version_max
        ),
    )


def read_response(api_key: int, body: Any) -> rpc.Response:
    """A decoded response to one of our requests. An answer about another partition reads as an error."""
    return _READERS[api_key](body)


def _partition(body: Any) -> tuple[ErrorCode, Any]:
    """The error of the whole, or of the partition, and the partition if there is one."""
    topics: Any = getattr(body, "topics", getattr(body, "responses", ()))
    if body.error_code is not ErrorCode.none or len(topics) != 1 or len(topics[0].partitions) != 1:
        error = body.error_code if body.error_code is not ErrorCode.none else ErrorCode.unknown_server_error
        return error, None
    partition = topics[0].partitions[0]
    return partition.error_code, partition


def _hint(body: Any, leader_id: int, epoch: int) -> LeaderHint:
    for node in getattr(body, "node_endpoints", ()):
        if node.node_id == leader_id:
            return LeaderHint(leader_id, epoch, Node(leader_id, node.host, node.port))
    return LeaderHint(leader_id, epoch)


def _offset_and_epoch(value: Any) -> OffsetAndEpoch | None:
    return None if value.epoch < 0 or value.end_offset < 0 else OffsetAndEpoch(value.end_offset, value.epoch)


def _read_vote(body: Any) -> rpc.VoteResponse:
    error, partition = _partition(body)
    if partition is None:
        return rpc.VoteResponse(error, _UNKNOWN_LEADER)
    hint = _hint(body, partition.leader_id, partition.leader_epoch)
    return rpc.VoteResponse(error, hint, partition.vote_granted)


def _read_begin(body: Any) -> rpc.BeginQuorumEpochResponse:
    error, partition = _partition(body)
    if partition is None:
        return rpc.BeginQuorumEpochResponse(error, _UNKNOWN_LEADER)
    return rpc.BeginQuorumEpochResponse(error, _hint(body, partition.leader_id, partition.leader_epoch))


def _read_end(body: Any) -> rpc.EndQuorumEpochResponse:
    error, partition = _partition(body)
    if partition is None:
        return rpc.EndQuorumEpochResponse(error, _UNKNOWN_LEADER)
    return rpc.EndQuorumEpochResponse(error, _hint(body, partition.leader_id, partition.leader_epoch))


def _read_fetch(body: Any) -> rpc.FetchResponse:
    error, partition = _partition(body)
    if partition is None:
        return rpc.FetchResponse(error, _UNKNOWN_LEADER)
    leader = partition.current_leader
    return rpc.FetchResponse(
        error,
        _hint(body, leader.leader_id, leader.leader_epoch),
        partition.high_watermark,
        partition.log_start_offset,
        _offset_and_epoch(partition.diverging_epoch),
        _offset_and_epoch(partition.snapshot_id),
        bytes(partition.records or b""),
    )


def _read_fetch_snapshot(body: Any) -> rpc.FetchSnapshotResponse:
    error, partition = _partition(body)
    if partition is None:
        return rpc.FetchSnapshotResponse(error, _UNKNOWN_LEADER)
    leader = partition.current_leader
    return rpc.FetchSnapshotResponse(
        error,
        _hint(body, leader.leader_id, leader.leader_epoch),
        _offset_and_epoch(partition.snapshot_id),
        partition.size,
        partition.position,
        bytes(partition.unaligned_records or b""),
    )


def _read_update_voter(body: Any) -> rpc.UpdateVoterResponse:
    leader = body.current_leader
    node = Node(leader.leader_id, leader.host, leader.port) if leader.host else None
    return rpc.UpdateVoterResponse(body.error_code, LeaderHint(leader.leader_id, leader.leader_epoch, node))


def _read_api_versions(body: Any) -> rpc.ApiVersionsResponse:
    for feature in getattr(body, "supported_features", ()):
        if feature.name == KRAFT_VERSION_FEATURE:
            return rpc.ApiVersionsResponse(body.error_code, feature.min_version, feature.max_version)
    return rpc.ApiVersionsResponse(body.error_code)


_READERS: dict[int, Callable[[Any], rpc.Response]] = {
    FETCH: _read_fetch,
    API_VERSIONS: _read_api_versions,
    VOTE: _read_vote,
    BEGIN_QUORUM_EPOCH: _read_begin,
    END_QUORUM_EPOCH: _read_end,
    FETCH_SNAPSHOT: _read_fetch_snapshot,
    UPDATE_RAFT_VOTER: _read_update_voter,
}
