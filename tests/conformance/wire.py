"""A Kafka client that says exactly what it is told to, on a blocking socket: for any version, also wrong things."""

import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct as Packer
from typing import Any

from penstock.protocol.batch import HEADER_BYTES, crc_is_valid, read_header
from penstock.protocol.messages import Struct, decode, encode, request_entity, response_entity
from penstock.protocol.records import Record, build_batch, iterate_records
from tests.e2e.node import wait_until

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS = 21, 22, 23, 32, 33
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER = 35, 37, 44, 60
LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 74, 75
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 10, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, UPDATE_FEATURES = 43, 45, 46, 57
ALTER_PARTITION, BROKER_REGISTRATION, BROKER_HEARTBEAT, UNREGISTER_BROKER = 56, 62, 63, 64
VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, DESCRIBE_QUORUM, FETCH_SNAPSHOT, ENVELOPE = 52, 53, 54, 55, 59, 58
ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER = 80, 81, 82
ALLOCATE_PRODUCER_IDS, CONTROLLER_REGISTRATION, ASSIGN_REPLICAS_TO_DIRS = 67, 70, 73
# Newest versions that name topics by name.
PRODUCE_BY_NAME = 12
FETCH_BY_NAME = 12

_SIZE = Packer(">i")
_HEADER = Packer(">hhih")


class Closed(ConnectionError):
    """The broker closed the connection instead of answering."""


def request_payload(
    api_key: int, version: int, body: object, correlation_id: int = 1, client_id: bytes = b"test"
) -> bytes:
    """Header and body, without the size."""
    entity: Any = request_entity(api_key, version)
    payload = bytearray(_HEADER.pack(api_key, version, correlation_id, len(client_id))) + client_id
    if entity.__header_schema__.__version__ == 2:
        payload.append(0)
    return bytes(payload + encode(entity, body))


def framed(payload: bytes) -> bytes:
    return _SIZE.pack(len(payload)) + payload


def decode_answer(api_key: int, version: int, payload: bytes) -> Any:
    """Strict: nothing may be left over."""
    entity: Any = response_entity(api_key, version)
    header_bytes = 5 if entity.__header_schema__.__version__ == 1 else 4
    return decode(entity, payload, header_bytes)


def correlation_id_of(payload: bytes) -> int:
    (correlation_id,) = _SIZE.unpack_from(payload)
    return int(correlation_id)


class Wire:
    """One connection."""

    def __init__(self, port: int, timeout_s: float = 30) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_correlation_id = 1

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, api_key: int, version: int, body: object) -> Any:
        """The decoded answer. Raises Closed."""
        correlation_id = self.send(api_key, version, body)
        payload = self.receive()
        assert correlation_id_of(payload) == correlation_id
        return decode_answer(api_key, version, payload)

    def send(self, api_key: int, version: int, body: object) -> int:
        """Sends without waiting for the answer; the correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.send_bytes(framed(request_payload(api_key, version, body, correlation_id)))
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError) as problem:
            raise Closed("while sending") from problem

    def receive(self) -> bytes:
        """One answer: header and body."""
        (size,) = _SIZE.unpack(self._receive_exactly(4))
        return self._receive_exactly(size)

    def is_closed_by_peer(self) -> bool:
        """Waits for the broker to close; False when bytes come instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError as problem:
                raise Closed("reset") from problem
            if not part:
                raise Closed("closed")
            data += part
        return bytes(data)


# Requests, for all versions: encoding picks the fields that a version has.


def batch_of(
    values: Sequence[bytes | None],
    *,
    timestamp_ms: int = 1_700_000_000_000,
    codec: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    key: bytes | None = None,
) -> bytearray:
    """`producer` is (producer id, epoch, base sequence)."""
    records = [Record(offset, timestamp_ms + offset, key, value) for offset, value in enumerate(values)]
    producer_id, producer_epoch, base_sequence = producer
    return build_batch(
        records,
        codec=codec,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def produce_of(
    topic: str,
    batches: Iterable[tuple[int, bytes | bytearray | None]],
    *,
    topic_id: uuid.UUID | None = None,
    acks: int = -1,
) -> Struct:
    partitions = [Struct(index=index, records=batch) for index, batch in batches]
    topic_data = [Struct(name=topic, topic_id=topic_id, partition_data=partitions)]
    return Struct(transactional_id=None, acks=acks, timeout=30_000, topic_data=topic_data)


def fetch_of(
    topic: str,
    offsets: Iterable[tuple[int, int]],
    *,
    topic_id: uuid.UUID | None = None,
    session: tuple[int, int] = (0, -1),
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    max_bytes: int = 50 * 1024 * 1024,
    partition_max_bytes: int = 1024 * 1024,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    isolation_level: int = 0,
    rack_id: str = "",
) -> Struct:
    """`offsets` are (partition, offset); `session` is (id, epoch)."""
    partitions = [
        Struct(
            partition=index,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            log_start_offset=-1,
            partition_max_bytes=partition_max_bytes,
        )
        for index, offset in offsets
    ]
    return Struct(
        replica_id=-1,
        max_wait=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[Struct(topic=topic, topic_id=topic_id, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[],
        rack_id=rack_id,
    )


def list_offsets_of(
    topic: str, timestamps: Iterable[tuple[int, int]], *, leader_epoch: int = -1, isolation_level: int = 0
) -> Struct:
    """`timestamps` are (partition, timestamp)."""
    partitions = [
        Struct(partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp)
        for index, timestamp in timestamps
    ]
    topics = [Struct(name=topic, partitions=partitions)]
    return Struct(replica_id=-1, isolation_level=isolation_level, topics=topics, timeout=5000)


def create_topic_of(
    name: str, partitions: int = 1, *, configs: dict[str, str | None] | None = None, replication_factor: int = 1
) -> Struct:
    settings = [Struct(name=key, value=value) for key, value in (configs or {}).items()]
    topic = Struct(name=name, num_partitions=partitions, replication_factor=replication_factor, configs=settings)
    return Struct(topics=[topic], timeout=30_000, validate_only=False)


def create_topic(wire: Wire, name: str, partitions: int = 1, configs: dict[str, str | None] | None = None) -> uuid.UUID:
    """Creates a topic, and waits until it can be used: Kafka answers before all of it has heard of one. Its id."""
    (topic,) = wire.ask(CREATE_TOPICS, 7, create_topic_of(name, partitions, configs=configs)).topics
    assert topic.error_code == 0, topic
    asked = Struct(topics=[Struct(name=name)], allow_auto_topic_creation=False)

    def is_known() -> bool:
        (seen,) = wire.ask(METADATA, 8, asked).topics
        return not seen.error_code and len([one for one in seen.partitions if not one.error_code]) == partitions

    wait_until(is_known, f"{name} is known")
    topic_id: uuid.UUID = topic.topic_id
    return topic_id


def produce(wire: Wire, topic: str, batch: bytes | bytearray, *, partition: int = 0, acks: int = -1) -> Any:
    """Appends one batch; the partition's answer."""
    answer = wire.ask(PRODUCE, PRODUCE_BY_NAME, produce_of(topic, [(partition, batch)], acks=acks))
    return answer.responses[0].partition_responses[0]


def fetch(wire: Wire, topic: str, offset: int, *, partition: int = 0, **options: Any) -> Any:
    """One partition's answer of a fetch without a session."""
    answer = wire.ask(FETCH, FETCH_BY_NAME, fetch_of(topic, [(partition, offset)], **options))
    return answer.responses[0].partitions[0]


def records_of(data: bytes | None) -> Iterator[Record]:
    """The records of all whole batches; a batch cut short ends it, as it may in a fetch."""
    position = 0
    while data and position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        end = position + header.size
        if end > len(data):
            return
        batch = data[position:end]
        assert crc_is_valid(batch, header)
        yield from iterate_records(batch, header)
        position = end


def ping(wire: Wire) -> None:
    answer = wire.ask(API_VERSIONS, 0, Struct())
    assert answer.error_code == 0
