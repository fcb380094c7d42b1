"""What the quorum says survives the way over the wire, in every version that can carry it."""

from typing import Any
from uuid import UUID

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.raft import messages, peer_messages, rpc
from penstock.cluster.raft.rpc import LeaderHint, OffsetAndEpoch
from penstock.cluster.raft.voters import Endpoint, Node, ReplicaKey
from penstock.protocol.messages import Struct, decode, decode_request, encode, request_entity, response_entity

HERE = ReplicaKey(1, UUID(int=11))
THERE = ReplicaKey(2, UUID(int=22))
ENDPOINTS = (Endpoint("CONTROLLER", "there", 9093), Endpoint("INNER", "inside", 19093))
LEADER = LeaderHint(2, 7, Node(2, "there", 9093))

REQUESTS: list[tuple[rpc.Request, list[int]]] = [
    (rpc.VoteRequest("c", THERE, HERE, 7, OffsetAndEpoch(100, 6), True), [2]),
    (rpc.VoteRequest(None, THERE, HERE, 7, OffsetAndEpoch(100, 6), False), [1, 2]),
    (rpc.VoteRequest("c", None, ReplicaKey(1), 7, OffsetAndEpoch(100, 6), False), [0, 1, 2]),
    (rpc.BeginQuorumEpochRequest("c", THERE, 1, 7, ENDPOINTS), [1]),
    (rpc.BeginQuorumEpochRequest("c", None, 1, 7, ()), [0, 1]),
    (rpc.EndQuorumEpochRequest("c", 1, 7, (THERE, ReplicaKey(3, UUID(int=33))), ENDPOINTS), [1]),
    (rpc.EndQuorumEpochRequest("c", 1, 7, (ReplicaKey(2), ReplicaKey(3)), ()), [0, 1]),
    (rpc.FetchRequest("c", HERE, 500, 1 << 20, 7, 100, 6, 90), [18]),
    (rpc.FetchRequest("c", HERE, 500, 1 << 20, 7, 100, 6), [17, 18]),
    (rpc.FetchRequest(None, ReplicaKey(1), 0, 1 << 20, 7, 100, 6), [12, 13, 14, 15, 16, 17, 18]),
    (rpc.FetchSnapshotRequest("c", HERE, 1 << 20, 7, OffsetAndEpoch(90, 5), 4096), [1]),
    (rpc.FetchSnapshotRequest(None, ReplicaKey(1), 1 << 20, 7, OffsetAndEpoch(90, 5), 0), [0, 1]),
    (rpc.UpdateVoterRequest("c", 7, HERE, ENDPOINTS, 0, 1), [0]),
]
RESPONSES: list[tuple[int, rpc.Response, list[int]]] = [
    (messages.VOTE, rpc.VoteResponse(ErrorCode.none, LEADER, True), [1, 2]),
    (messages.VOTE, rpc.VoteResponse(ErrorCode.fenced_leader_epoch, LeaderHint(-1, 7)), [0, 1, 2]),
    (messages.BEGIN_QUORUM_EPOCH, rpc.BeginQuorumEpochResponse(ErrorCode.none, LEADER), [1]),
    (messages.BEGIN_QUORUM_EPOCH, rpc.BeginQuorumEpochResponse(ErrorCode.none, LeaderHint(2, 7)), [0, 1]),
    (messages.END_QUORUM_EPOCH, rpc.EndQuorumEpochResponse(ErrorCode.invalid_voter_key, LEADER), [1]),
    (messages.END_QUORUM_EPOCH, rpc.EndQuorumEpochResponse(ErrorCode.none, LeaderHint(2, 7)), [0, 1]),
    (messages.FETCH, rpc.FetchResponse(ErrorCode.none, LEADER, 90, 10, records=b"batches"), [16, 17, 18]),
    (messages.FETCH, rpc.FetchResponse(ErrorCode.none, LEADER, 90, 10, OffsetAndEpoch(80, 5)), [16, 17, 18]),
    (messages.FETCH, rpc.FetchResponse(ErrorCode.none, LEADER, 90, 10, None, OffsetAndEpoch(0, 0)), [16, 17, 18]),
    (messages.FETCH, rpc.FetchResponse(ErrorCode.not_leader_or_follower, LeaderHint(-1, 7)), [12, 13, 17, 18]),
    (
        messages.FETCH_SNAPSHOT,
        rpc.FetchSnapshotResponse(ErrorCode.none, LEADER, OffsetAndEpoch(90, 5), 5000, 4096, b"bytes"),
        [1],
    ),
    (messages.UPDATE_RAFT_VOTER, rpc.UpdateVoterResponse(ErrorCode.voter_not_found, LEADER), [0]),
]


def over_the_wire(api_key: int, version: int, request: rpc.Request) -> rpc.Request:
    key, body = peer_messages.write_request(request)
    assert key == api_key
    data = encode(request_entity(api_key, version), body)
    return messages.read_request(api_key, decode_request(api_key, version, data))


@pytest.mark.parametrize(("request_", "versions"), REQUESTS, ids=lambda one: type(one).__name__)
def test_a_request_arrives_as_it_was_sent(request_: rpc.Request, versions: list[int]) -> None:
    api_key, _ = peer_messages.write_request(request_)
    for version in versions:
        assert over_the_wire(api_key, version, request_) == request_


@pytest.mark.parametrize(("api_key", "response", "versions"), RESPONSES, ids=lambda one: type(one).__name__)
def test_a_response_arrives_as_it_was_sent(api_key: int, response: rpc.Response, versions: list[int]) -> None:
    for version in versions:
        data = encode(response_entity(api_key, version), messages.write_response(response))
        assert peer_messages.read_response(api_key, decode(response_entity(api_key, version), data)) == response


def test_old_versions_lose_what_they_have_no_field_for_and_nothing_else() -> None:
    vote = rpc.VoteRequest("c", THERE, HERE, 7, OffsetAndEpoch(100, 6), False)
    assert over_the_wire(messages.VOTE, 0, vote) == vote._replace(voter=None, replica=ReplicaKey(1))
    fetch = rpc.FetchRequest("c", HERE, 500, 1 << 20, 7, 100, 6, 90)
    assert over_the_wire(messages.FETCH, 17, fetch) == fetch._replace(high_watermark=rpc.HIGH_WATERMARK_UNASKED)


@pytest.mark.parametrize("version", [0, 1])
def test_a_voter_to_be_added_is_read(version: int) -> None:
    body = Struct(
        cluster_id="c",
        timeout=1000,
        voter_id=4,
        voter_directory_id=UUID(int=44),
        listeners=[Struct(name="CONTROLLER", host="there", port=9093)],
        ack_when_committed=False,
    )
    data = encode(request_entity(messages.ADD_RAFT_VOTER, version), body)
    read = messages.read_request(messages.ADD_RAFT_VOTER, decode_request(messages.ADD_RAFT_VOTER, version, data))
    assert read == rpc.AddVoterRequest("c", ReplicaKey(4, UUID(int=44)), ENDPOINTS[:1], ack_when_committed=version < 1)


def test_a_voter_to_be_removed_is_read() -> None:
    body = Struct(cluster_id=None, voter_id=4, voter_directory_id=UUID(int=44))
    data = encode(request_entity(messages.REMOVE_RAFT_VOTER, 0), body)
    read = messages.read_request(messages.REMOVE_RAFT_VOTER, decode_request(messages.REMOVE_RAFT_VOTER, 0, data))
    assert read == rpc.RemoveVoterRequest(None, ReplicaKey(4, UUID(int=44)))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_state_of_the_quorum_is_told_in_every_version(version: int) -> None:
    response = rpc.DescribeQuorumResponse(
        ErrorCode.none,
        LEADER,
        90,
        (rpc.ReplicaProgress(HERE, 100, 5, 6),),
        (rpc.ReplicaProgress(THERE, 95, 3, 4),),
        ((1, ENDPOINTS),),
    )
    entity = response_entity(messages.DESCRIBE_QUORUM, version)
    told: Any = decode(entity, encode(entity, messages.write_response(response)))
    partition = told.topics[0].partitions[0]
    assert (told.topics[0].topic_name, partition.leader_id, partition.leader_epoch) == ("__cluster_metadata", 2, 7)
    assert [(one.replica_id, one.log_end_offset) for one in partition.current_voters] == [(1, 100)]
    assert [(one.replica_id, one.log_end_offset) for one in partition.observers] == [(2, 95)]
    if version == 2:
        assert partition.current_voters[0].replica_directory_id == HERE.directory_id
        assert [(one.node_id, one.listeners[0].host) for one in told.nodes] == [(1, "there")]


@pytest.mark.parametrize(
    ("api_key", "error"),
    [
        (messages.VOTE, ErrorCode.invalid_request),
        (messages.BEGIN_QUORUM_EPOCH, ErrorCode.invalid_request),
        (messages.END_QUORUM_EPOCH, ErrorCode.invalid_request),
        (messages.FETCH, ErrorCode.invalid_request),
        (messages.FETCH_SNAPSHOT, ErrorCode.unknown_topic_or_partition),
        (messages.DESCRIBE_QUORUM, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_another_partition_is_refused_in_a_way_that_every_version_can_say(api_key: int, error: ErrorCode) -> None:
    partition = Struct(partition_index=3, partition=3, snapshot_id=Struct(end_offset=0, epoch=0))
    topic = Struct(topic_name="other", name="other", topic="other", topic_id=UUID(int=9), partitions=[partition])
    body = Struct(cluster_id=None, topics=[topic])
    with pytest.raises(Refused) as refused:
        messages.read_request(api_key, body)
    assert refused.value.code is error
    versions = {messages.FETCH: [12, 18], messages.VOTE: [0, 2], messages.DESCRIBE_QUORUM: [0, 2]}.get(api_key, [0, 1])
    for version in versions:
        entity = response_entity(api_key, version)
        answer: Any = decode(entity, encode(entity, messages.refusal(api_key, body, error)))
        errors = [answer.error_code] + [
            one.error_code for topic in getattr(answer, "topics", ()) for one in topic.partitions
        ]
        assert error in errors


@pytest.mark.parametrize("version", [3, 4])
def test_the_kraft_versions_of_a_node_are_read_from_its_features(version: int) -> None:
    entity = response_entity(messages.API_VERSIONS, version)
    features = [
        Struct(name="metadata.version", min_version=1, max_version=9),
        Struct(name="kraft.version", min_version=0, max_version=1),
    ]
    body = decode(entity, encode(entity, Struct(error_code=ErrorCode.none, supported_features=features)))
    assert peer_messages.read_response(messages.API_VERSIONS, body) == rpc.ApiVersionsResponse(ErrorCode.none, 0, 1)


def test_a_response_about_the_whole_request_has_no_leader_to_follow() -> None:
    refused = rpc.VoteResponse(ErrorCode.inconsistent_cluster_id, LEADER)
    entity = response_entity(messages.VOTE, 2)
    read = peer_messages.read_response(messages.VOTE, decode(entity, encode(entity, messages.write_response(refused))))
    assert read == rpc.VoteResponse(ErrorCode.inconsistent_cluster_id, LeaderHint(-1, -1))
