"""The seam to the wire: requests as kio reads them into the quorum's words, and its answers into Structs, in all
versions at once. Fields that a version lacks are left out in writing, and have their defaults in reading.
peer_messages.py is the same for what this node asks others.

Fetch comes here through the kio seam, not by its hand-written codec, which leaves out what only the quorum needs: the
cluster id, the directory id and the follower's high watermark.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.raft import rpc
from penstock.cluster.raft.rpc import LeaderHint, OffsetAndEpoch
from penstock.cluster.raft.voters import Endpoint, ReplicaKey
from penstock.protocol.messages import Struct

TOPIC = "__cluster_metadata"
TOPIC_ID = UUID(int=1)
PARTITION = 0
KRAFT_VERSION_FEATURE = "kraft.version"

FETCH, API_VERSIONS, VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, DESCRIBE_QUORUM, FETCH_SNAPSHOT = (
    1,
    18,
    52,
    53,
    54,
    55,
    59,
)
ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER = 80, 81, 82

_UNKNOWN_EPOCH = -1


# Requests, as they are read


def read_request(api_key: int, body: Any) -> rpc.Request:
    """A decoded request. Raises Refused when it is about another partition; `refusal` makes the answer to that."""
    return _REQUEST_READERS[api_key](body)


def _partition(body: Any, error: ErrorCode = ErrorCode.invalid_request) -> Any:
    topics = body.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic, partition = topics[0], topics[0].partitions[0]
        name = getattr(topic, "topic_name", getattr(topic, "name", getattr(topic, "topic", None)))
        index = getattr(partition, "partition_index", getattr(partition, "partition", None))
        if index == PARTITION and (name == TOPIC or getattr(topic, "topic_id", None) == TOPIC_ID):
            return partition
    raise Refused(error, f"only {TOPIC}-{PARTITION} is kept by a quorum")


def _key(voter_id: int, directory_id: UUID | None) -> ReplicaKey | None:
    return None if voter_id < 0 else ReplicaKey(voter_id, directory_id)


def _endpoints(listeners: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port) for one in listeners)


def _ms(duration: timedelta | int) -> int:
    return duration if isinstance(duration, int) else round(duration.total_seconds() * 1000)


def _read_vote(body: Any) -> rpc.VoteRequest:
    partition = _partition(body)
    return rpc.VoteRequest(
        body.cluster_id,
        _key(getattr(body, "voter_id", -1), getattr(partition, "voter_directory_id", None)),
        ReplicaKey(partition.replica_id, getattr(partition, "replica_directory_id", None)),
        partition.replica_epoch,
        OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
        getattr(partition, "pre_vote", False),
    )


def _read_begin(body: Any) -> rpc.BeginQuorumEpochRequest:
    partition = _partition(body)
    return rpc.BeginQuorumEpochRequest(
        body.cluster_id,
        _key(getattr(body, "voter_id", -1), getattr(partition, "voter_directory_id", None)),
        partition.leader_id,
        partition.leader_epoch,
        _endpoints(getattr(body, "leader_endpoints", ())),
    )


def _read_end(body: Any) -> rpc.EndQuorumEpochRequest:
    partition = _partition(body)
    candidates = [ReplicaKey(one) for one in getattr(partition, "preferred_successors", ())] or [
        ReplicaKey(one.candidate_id, one.candidate_directory_id)
        for one in getattr(partition, "preferred_candidates", ())
    ]
    return rpc.EndQuorumEpochRequest(
        body.cluster_id,
        partition.leader_id,
        partition.leader_epoch,
        tuple(candidates),
        _endpoints(getattr(body, "leader_endpoints", ())),
    )


def _read_fetch(body: Any) -> rpc.FetchRequest:
    partition = _partition(body)
    state = getattr(body, "replica_state", None)
    replica_id = body.replica_id if state is None else state.replica_id
    return rpc.FetchRequest(
        body.cluster_id,
        ReplicaKey(replica_id, getattr(partition, "replica_directory_id", None)),
        _ms(body.max_wait),
        body.max_bytes,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        getattr(partition, "high_watermark", rpc.HIGH_WATERMARK_UNASKED),
    )


def _read_fetch_snapshot(body: Any) -> rpc.FetchSnapshotRequest:
    partition = _partition(body, ErrorCode.unknown_topic_or_partition)
    return rpc.FetchSnapshotRequest(
        body.cluster_id,
        ReplicaKey(body.replica_id, getattr(partition, "replica_directory_id", None)),
        body.max_bytes,
        partition.current_leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
    )


def _read_describe(body: Any) -> rpc.DescribeQuorumRequest:
    _partition(body, ErrorCode.unknown_topic_or_partition)
    return rpc.DescribeQuorumRequest()


def _read_add_voter(body: Any) -> rpc.AddVoterRequest:
    return rpc.AddVoterRequest(
        body.cluster_id,
        ReplicaKey(body.voter_id, body.voter_directory_id),
        _endpoints(body.listeners),
        getattr(body, "ack_when_committed", True),
    )


def _read_remove_voter(body: Any) -> rpc.RemoveVoterRequest:
    return rpc.RemoveVoterRequest(body.cluster_id, ReplicaKey(body.voter_id, body.voter_directory_id))


def _read_update_voter(body: Any) -> rpc.UpdateVoterRequest:
    return rpc.UpdateVoterRequest(
        body.cluster_id,
        body.current_leader_epoch,
        ReplicaKey(body.voter_id, body.voter_directory_id),
        _endpoints(body.listeners),
        body.k_raft_version_feature.min_supported_version,
        body.k_raft_version_feature.max_supported_version,
    )


_REQUEST_READERS: dict[int, Callable[[Any], rpc.Request]] = {
    FETCH: _read_fetch,
    VOTE: _read_vote,
    BEGIN_QUORUM_EPOCH: _read_begin,
    END_QUORUM_EPOCH: _read_end,
    DESCRIBE_QUORUM: _read_describe,
    FETCH_SNAPSHOT: _read_fetch_snapshot,
    ADD_RAFT_VOTER: _read_add_voter,
    REMOVE_RAFT_VOTER: _read_remove_voter,
    UPDATE_RAFT_VOTER: _read_update_voter,
}


# Responses, as they are written


def metadata_topics(**partition: Any) -> list[Struct]:
    return [
        Struct(
            topic_name=TOPIC,
            name=TOPIC,
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partitions=[Struct(partition_index=PARTITION, partition=PARTITION, index=PARTITION, **partition)],
        )
    ]


def listeners_of(endpoints: Iterable[Endpoint]) -> list[Struct]:
    return [Struct(name=one.listener, host=one.host, port=one.port) for one in endpoints]


def write_response(response: rpc.Response) -> Struct:
    """The body of an answer."""
    match response:
        case rpc.AddVoterResponse() | rpc.RemoveVoterResponse():
            return Struct(error_code=response.error, error_message=response.message)
        case rpc.UpdateVoterResponse(error, leader):
            return Struct(error_code=error, current_leader=_current_leader(leader))
        case rpc.DescribeQuorumResponse():
            return _write_describe(response)
        case rpc.ApiVersionsResponse():
            raise AssertionError("a node's ApiVersions are not the quorum's to answer")
    if response.error is ErrorCode.inconsistent_cluster_id:
        # About the whole request.
        return Struct(error_code=response.error, topics=[], responses=[])
    leader = response.leader
    partition: dict[str, Any] = {
        "error_code": response.error,
        "leader_id": leader.leader_id,
        "leader_epoch": leader.epoch,
    }
    match response:
        case rpc.VoteResponse():
            partition["vote_granted"] = response.vote_granted
        case rpc.FetchResponse():
            partition |= _fetched(response)
        case rpc.FetchSnapshotResponse():
            snapshot_id = response.snapshot_id or OffsetAndEpoch(0, 0)
            partition |= {
                "snapshot_id": Struct(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
                "current_leader": Struct(leader_id=leader.leader_id, leader_epoch=leader.epoch),
                "size": response.size,
                "position": response.position,
                "unaligned_records": response.data,
            }
    topics = metadata_topics(**partition)
    return Struct(error_code=ErrorCode.none, topics=topics, responses=topics, node_endpoints=_node_endpoints(leader))


def _node_endpoints(leader: LeaderHint) -> list[Struct]:
    node = leader.node
    if node is None or leader.leader_id < 0:
        return []
    return [Struct(node_id=leader.leader_id, host=node.host, port=node.port)]


def _current_leader(leader: LeaderHint) -> Struct:
    host, port = (leader.node.host, leader.node.port) if leader.node is not None else ("", 0)
    return Struct(leader_id=leader.leader_id, leader_epoch=leader.epoch, host=host, port=port)


def _fetched(response: rpc.FetchResponse) -> dict[str, Any]:
    leader = response.leader
    fields: dict[str, Any] = {
        "high_watermark": response.high_watermark,
        "last_stable_offset": response.high_watermark,
        "log_start_offset": response.log_start_offset,
        "current_leader": Struct(leader_id=leader.leader_id, leader_epoch=leader.epoch),
        "aborted_transactions": None,
        "records": response.records,
    }
    if response.diverging is not None:
        fields["diverging_epoch"] = Struct(epoch=response.diverging.epoch, end_offset=response.diverging.offset)
    if response.snapshot_id is not None:
        fields["snapshot_id"] = Struct(end_offset=response.snapshot_id.offset, epoch=response.snapshot_id.epoch)
    return fields


def _write_describe(response: rpc.DescribeQuorumResponse) -> Struct:
    def replica(one: rpc.ReplicaProgress) -> Struct:
        return Struct(
            replica_id=one.replica.id,
            replica_directory_id=one.replica.directory_id,
            log_end_offset=one.log_end_offset,
            last_fetch_timestamp=one.last_fetch_timestamp,
            last_caught_up_timestamp=one.last_caught_up_timestamp,
        )

    return Struct(
        error_code=ErrorCode.none,
        topics=metadata_topics(
            error_code=response.error,
            leader_id=response.leader.leader_id,
            leader_epoch=response.leader.epoch,
            high_watermark=response.high_watermark,
            current_voters=[replica(one) for one in response.voters],
            observers=[replica(one) for one in response.observers],
        ),
        nodes=[Struct(node_id=node_id, listeners=listeners_of(endpoints)) for node_id, endpoints in response.nodes],
    )


def refusal(api_key: int, body: Any, error: ErrorCode) -> Struct:
    """The answer to a request that never came to the quorum: about the whole of it, or for each partition asked for
    where the API has no other place."""
    if api_key not in (DESCRIBE_QUORUM, FETCH_SNAPSHOT):
        return Struct(error_code=error, topics=[], responses=[])
    topics = [
        Struct(
            topic_name=getattr(topic, "topic_name", None) or topic.name,
            name=getattr(topic, "name", None) or topic.topic_name,
            partitions=[
                Struct(
                    partition_index=getattr(one, "partition_index", 0),
                    index=getattr(one, "partition", 0),
                    error_code=error,
                    snapshot_id=Struct(end_offset=0, epoch=0),
                    current_leader=Struct(leader_id=rpc.NO_LEADER, leader_epoch=_UNKNOWN_EPOCH),
                    unaligned_records=b"",
                )
                for one in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return Struct(error_code=ErrorCode.none, topics=topics)
