"""Our quorum member in one quorum with Apache Kafka's: as an observer, as a voter, as the leader after it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.raft import Quorum, QuorumConfig, Role, VoteState, messages
from penstock.cluster.raft import effects as raft_effects
from penstock.cluster.raft.stored_log import DIRECTORY
from penstock.cluster.raft.voters import Endpoint, Voter, VoterSet
from penstock.protocol.messages import Struct, decode, decode_request, encode, request_entity, response_entity
from penstock.protocol.records import Record, build_batch
from penstock.testing.ports import free_port
from tests.conformance.apache_kafka import KafkaNode
from tests.conformance.quorum_node import QuorumNode, SystemRandom
from tests.conformance.wire import Wire, create_topic
from tests.unit.raft.memory_log import MemoryLog

pytestmark = pytest.mark.java

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
OUR_ID = 9
# Frame version, api key, version, no tagged fields.
NO_OP_RECORD = b"\x01\x14\x00\x00"


@pytest.fixture
def kafka(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KafkaNode]:
    node = KafkaNode(tmp_path / "kafka", getattr(request, "param", None))
    try:
        yield node.start()
    finally:
        node.kill()


@pytest.fixture
def ours(tmp_path: Path, kafka: KafkaNode) -> Iterator[QuorumNode]:
    voter = Voter(OUR_ID, uuid4(), (Endpoint("CONTROLLER", "127.0.0.1", free_port()),))
    node = QuorumNode(tmp_path / "ours", voter, CLUSTER_ID, kafka.controller_port)
    yield node
    node.close()


def kafkas_log(kafka: KafkaNode) -> bytes:
    return (kafka.directory / "data" / DIRECTORY / f"{0:020d}.log").read_bytes()


def has_everything(kafka: KafkaNode, ours: QuorumNode) -> bool:
    return ours.quorum.high_watermark == ours.log.end_offset and ours.log.read(0, 1 << 30) == kafkas_log(kafka)


def describe(kafka: KafkaNode) -> Any:
    with Wire(kafka.controller_port) as wire:
        topics = [Struct(topic_name=messages.TOPIC, partitions=[Struct(partition_index=0)])]
        return wire.ask(messages.DESCRIBE_QUORUM, 2, Struct(topics=topics)).topics[0].partitions[0]


def add_voter(kafka: KafkaNode, ours: QuorumNode) -> Any:
    """Waits for the answer while our node goes on."""
    voter = ours.quorum.own_voter
    listeners = [Struct(name=one.listener, host=one.host, port=one.port) for one in voter.endpoints]
    body = Struct(
        cluster_id=CLUSTER_ID,
        timeout=10_000,
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        listeners=listeners,
    )
    with Wire(kafka.controller_port) as wire:
        wire.send(messages.ADD_RAFT_VOTER, 0, body)
        wire.socket.setblocking(False)
        received = bytearray()

        def answered() -> bool:
            try:
                received.extend(wire.socket.recv(4096))
            except BlockingIOError:
                return False
            return True

        assert ours.run_until(answered, 20)
    return received


def test_we_follow_vote_and_lead_in_one_quorum_with_kafka(kafka: KafkaNode, ours: QuorumNode) -> None:
    # An observer gets Kafka's log, byte for byte.
    assert ours.run_until(lambda: has_everything(kafka, ours), 20)
    assert (ours.quorum.role, ours.quorum.leader_id, ours.quorum.is_observer) == (Role.FOLLOWER, 1, True)
    assert [one.replica_id for one in describe(kafka).observers if one.replica_id == OUR_ID] == [OUR_ID]

    # As a voter: Kafka commits nothing without us.
    add_voter(kafka, ours)
    assert ours.run_until(lambda: ours.quorum.voters.ids == [1, OUR_ID], 20)
    assert sorted(one.replica_id for one in describe(kafka).current_voters) == [1, OUR_ID]
    with Wire(kafka.port) as wire:
        wire.socket.settimeout(20)
        wire.send(19, 7, Struct(topics=[Struct(name="ours", num_partitions=1, replication_factor=1)], timeout=15_000))
        # Kafka writes records of its own now and then: that more is committed does not mean the topic.
        assert ours.run_until(lambda: b"ours" in kafkas_log(kafka), 20)
    assert ours.run_until(lambda: has_everything(kafka, ours), 20)

    # Kafka stops, and hands over to us: it votes for us before it goes.
    epoch = ours.quorum.epoch
    kafka.begin_to_stop()
    assert ours.run_until(lambda: ours.quorum.role is Role.LEADER, 30)
    assert ours.quorum.epoch > epoch
    assert not ours.quorum.is_leading
    kafka.stop()

    # Back again, Kafka follows us, and what we propose is decided with its help.
    kafka.start_again()
    assert ours.run_until(lambda: ours.quorum.is_leading, 60)
    proposed = ours.quorum.propose(build_batch([Record(0, 1, None, NO_OP_RECORD)]), ours.now_ms())
    assert proposed is not None
    assert ours.run_until(lambda: ours.quorum.high_watermark >= proposed, 20)
    assert ours.run_until(lambda: has_everything(kafka, ours), 20)

    assert [effect for effect in ours.effects if isinstance(effect, raft_effects.Fault)] == []


@pytest.mark.parametrize("kafka", [{"metadata.log.max.record.bytes.between.snapshots": "200"}], indirect=True)
def test_we_take_kafkas_snapshot_where_its_log_begins_later(kafka: KafkaNode, tmp_path: Path) -> None:
    def snapshots() -> set[str]:
        return {path.name for path in (kafka.directory / "data" / DIRECTORY).glob("*.checkpoint")}

    bootstrap = {f"{0:020d}-{0:010d}.checkpoint"}
    with Wire(kafka.port) as wire:
        for number in range(500):
            create_topic(wire, f"topic-{number}")
            if snapshots() - bootstrap:
                break
    assert snapshots() - bootstrap
    voter = Voter(OUR_ID, uuid4(), (Endpoint("CONTROLLER", "127.0.0.1", free_port()),))
    ours = QuorumNode(tmp_path / "ours", voter, CLUSTER_ID, kafka.controller_port)
    try:
        assert ours.run_until(lambda: ours.log.latest_snapshot() is not None, 20)
        taken = ours.log.latest_snapshot()
        assert taken is not None
        data = ours.log.read_snapshot(taken, 0, 1 << 30)
        assert (
            data
            == (
                kafka.directory / "data" / DIRECTORY / f"{taken.offset:020d}-{taken.epoch:010d}.checkpoint"
            ).read_bytes()
        )
        assert ours.quorum.voters.ids == [1]
        assert ours.run_until(lambda: ours.quorum.high_watermark > taken.offset, 20)
    finally:
        ours.close()


def test_kafka_refuses_what_we_refuse_with_the_same_errors(kafka: KafkaNode) -> None:
    """The same wrong requests to a leader of Kafka's and to one of ours, alone in their quorums."""
    differences = []
    with Wire(kafka.controller_port) as wire:
        epoch = describe(kafka).leader_epoch
        for api_key, version, body in wrong_requests(epoch):
            theirs = errors_of(wire.ask(api_key, version, body))
            ours = errors_of(our_answer(epoch, api_key, version, body))
            # Kafka's own blunders are not copied.
            if theirs != ours and ErrorCode.unknown_server_error not in theirs:
                differences.append((api_key, theirs, ours, body))
    assert differences == []


def errors_of(answer: Any) -> list[ErrorCode]:
    errors = [answer.error_code]
    for topic in getattr(answer, "topics", getattr(answer, "responses", ())):
        errors += [one.error_code for one in topic.partitions]
    return errors


def partition(name: str = messages.TOPIC, index: int = 0, **fields: Any) -> list[Struct]:
    one = Struct(partition_index=index, partition=index, **fields)
    topic_id = messages.TOPIC_ID if name == messages.TOPIC else uuid4()
    return [Struct(topic_name=name, name=name, topic=name, topic_id=topic_id, partitions=[one])]


def wrong_requests(epoch: int) -> Iterator[tuple[int, int, Struct]]:
    def vote(**fields: Any) -> Struct:
        base = {"replica_epoch": epoch + 1, "replica_id": 8, "last_offset_epoch": 0, "last_offset": 0, "pre_vote": True}
        top = {key: fields.pop(key) for key in ("cluster_id", "voter_id") if key in fields}
        return Struct(**({"cluster_id": CLUSTER_ID, "voter_id": 1} | top), topics=partition(**(base | fields)))

    yield messages.VOTE, 2, vote(cluster_id="another")
    yield messages.VOTE, 2, vote(name="another")
    yield messages.VOTE, 2, vote(index=1)
    yield messages.VOTE, 2, vote(replica_epoch=epoch - 1)
    yield messages.VOTE, 2, vote(replica_epoch=epoch, last_offset=-1)
    yield messages.VOTE, 2, vote(replica_epoch=epoch, last_offset_epoch=epoch + 1)
    yield messages.VOTE, 2, vote(replica_epoch=epoch, last_offset_epoch=epoch, pre_vote=False)
    yield messages.VOTE, 2, vote(replica_epoch=epoch, replica_id=-1)
    yield messages.VOTE, 2, vote(replica_epoch=epoch, voter_id=5)
    yield messages.VOTE, 2, vote(replica_epoch=epoch)
    for api_key in (messages.BEGIN_QUORUM_EPOCH, messages.END_QUORUM_EPOCH):
        for cluster_id, leader_id, leader_epoch, name in (
            ("another", 8, epoch, messages.TOPIC),
            (CLUSTER_ID, 8, epoch - 1, messages.TOPIC),
            (CLUSTER_ID, -1, epoch, messages.TOPIC),
            (CLUSTER_ID, 8, epoch, "another"),
        ):
            topics = partition(name, leader_id=leader_id, leader_epoch=leader_epoch)
            yield api_key, 1, Struct(cluster_id=cluster_id, voter_id=1, topics=topics)
    for cluster_id, name, leader_epoch, offset, last_epoch in (
        ("another", messages.TOPIC, epoch, 0, 0),
        (CLUSTER_ID, "another", epoch, 0, 0),
        (CLUSTER_ID, messages.TOPIC, epoch - 1, 0, 0),
        (CLUSTER_ID, messages.TOPIC, epoch + 1, 0, 0),
        (CLUSTER_ID, messages.TOPIC, epoch, -1, 0),
        (CLUSTER_ID, messages.TOPIC, epoch, 0, epoch + 1),
        (CLUSTER_ID, messages.TOPIC, epoch, 0, -1),
    ):
        topics = partition(name, current_leader_epoch=leader_epoch, fetch_offset=offset, last_fetched_epoch=last_epoch)
        state = Struct(replica_id=8, replica_epoch=-1)
        yield messages.FETCH, 17, Struct(cluster_id=cluster_id, replica_state=state, max_bytes=1, topics=topics)
    for cluster_id, name, leader_epoch, snapshot_offset in (
        ("another", messages.TOPIC, epoch, 1),
        (CLUSTER_ID, "another", epoch, 1),
        (CLUSTER_ID, messages.TOPIC, epoch - 1, 1),
        (CLUSTER_ID, messages.TOPIC, epoch + 1, 1),
        (CLUSTER_ID, messages.TOPIC, epoch, 123456),
        (CLUSTER_ID, messages.TOPIC, epoch, 0),
    ):
        snapshot_id = Struct(end_offset=snapshot_offset, epoch=0)
        topics = partition(name, current_leader_epoch=leader_epoch, snapshot_id=snapshot_id, position=0)
        yield messages.FETCH_SNAPSHOT, 1, Struct(cluster_id=cluster_id, replica_id=8, max_bytes=9, topics=topics)
    yield messages.DESCRIBE_QUORUM, 2, Struct(topics=partition("another"))
    yield messages.DESCRIBE_QUORUM, 2, Struct(topics=partition(index=3))
    for cluster_id, voter_id, directory_id in (
        ("another", 1, uuid4()),
        (CLUSTER_ID, -1, uuid4()),
        (CLUSTER_ID, 1, None),
    ):
        key = {"cluster_id": cluster_id, "voter_id": voter_id, "voter_directory_id": directory_id}
        yield messages.ADD_RAFT_VOTER, 0, Struct(**key, timeout=1, listeners=[])
        yield messages.REMOVE_RAFT_VOTER, 0, Struct(**key)
    listeners = [Struct(name="CONTROLLER", host="there", port=1)]
    for node_id, names in ((1, listeners), (5, [])):
        key = {"cluster_id": CLUSTER_ID, "voter_id": node_id, "voter_directory_id": uuid4()}
        yield messages.ADD_RAFT_VOTER, 0, Struct(**key, timeout=1, listeners=names)
        yield messages.REMOVE_RAFT_VOTER, 0, Struct(**key)
    for leader_epoch, low, high, names in (
        (epoch - 1, 0, 1, listeners),
        (epoch + 1, 0, 1, listeners),
        (epoch, 1, 0, listeners),
        (epoch, 0, 0, listeners),
        (epoch, 0, 1, []),
        (epoch, 0, 1, listeners),
    ):
        supported = Struct(min_supported_version=low, max_supported_version=high)
        yield (
            messages.UPDATE_RAFT_VOTER,
            0,
            Struct(
                cluster_id=CLUSTER_ID,
                current_leader_epoch=leader_epoch,
                voter_id=5,
                voter_directory_id=uuid4(),
                listeners=names,
                k_raft_version_feature=supported,
            ),
        )


def our_answer(epoch: int, api_key: int, version: int, body: Struct) -> Any:
    """From a leader of ours in that epoch, by way of the wire."""
    own_voter = Voter(1, uuid4(), (Endpoint("CONTROLLER", "here", 1),))
    log = MemoryLog()
    config = QuorumConfig(CLUSTER_ID)
    state = VoteState(epoch - 1)
    quorum = Quorum(config, own_voter, log, SystemRandom(), state, VoterSet([own_voter]), kraft_version=1)
    quorum.start(0)
    for effect in quorum.take_effects():
        if isinstance(effect, raft_effects.Sync):
            quorum.synced(effect, 0)
    assert quorum.is_leading
    assert quorum.epoch == epoch
    quorum.take_effects()
    data = encode(request_entity(api_key, version), body)
    decoded = decode_request(api_key, version, data)
    try:
        quorum.request(1, messages.read_request(api_key, decoded), 0)
        (answer,) = (one for one in quorum.take_effects() if isinstance(one, raft_effects.Answer))
        struct = messages.write_response(answer.response)
    except Refused as refused:
        struct = messages.refusal(api_key, decoded, refused.code)
    entity = response_entity(api_key, version)
    return decode(entity, encode(entity, struct))
