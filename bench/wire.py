"""Just enough of a Kafka client, on a blocking socket: whole requests made by the protocol room, one at a time."""

import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct as Packer
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.protocol.batch import encode_batch
from penstock.protocol.messages import Struct, decode, encode, request_entity, response_entity
from penstock.protocol.records import Record, encode_records

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 19, 22
INCREMENTAL_ALTER_CONFIGS = 44
PRODUCE_VERSION = 12
FETCH_VERSION = 16
LATEST_TIMESTAMP = -1

_LENGTH = Packer(">i")
_REQUEST_HEADER = Packer(">ihhih")
_CLIENT_ID = b"bench"


def request_frame(api_key: int, version: int, body: Struct) -> bytearray:
    """A whole frame. All have correlation id 0: brokers only echo it, and answer a connection in order."""
    entity: Any = request_entity(api_key, version)
    frame = bytearray(_REQUEST_HEADER.size)
    frame += _CLIENT_ID
    if entity.__header_schema__.__version__ == 2:
        frame.append(0)
    frame += encode(entity, body)
    _REQUEST_HEADER.pack_into(frame, 0, len(frame) - 4, api_key, version, 0, len(_CLIENT_ID))
    return frame


def response_body(api_key: int, version: int, payload: bytes) -> Any:
    """What follows the length: header and body, decoded."""
    entity: Any = response_entity(api_key, version)
    return decode(entity, payload, 5 if entity.__header_schema__.__version__ == 1 else 4)


class Connection:
    def __init__(self, port: int, timeout_s: float = 60) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, body: Struct) -> Any:
        self.send(api_key, version, body)
        return self.receive(api_key, version)

    def send(self, api_key: int, version: int, body: Struct) -> None:
        self._socket.sendall(request_frame(api_key, version, body))

    def receive(self, api_key: int, version: int) -> Any:
        """The answer to the first request that has none yet."""
        (length,) = _LENGTH.unpack(self._receive(4))
        return response_body(api_key, version, self._receive(length))

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)


@dataclass(frozen=True)
class Topic:
    name: str
    topic_id: uuid.UUID
    partitions: int


def served_api_keys(connection: Connection) -> set[int]:
    answer = connection.ask(API_VERSIONS, 3, Struct(client_software_name="bench", client_software_version="1"))
    return {int(api.api_key) for api in answer.api_keys}


def create_topics(
    connection: Connection, names: Sequence[str], partitions: int, settings: dict[str, str], replicas: int = 1
) -> None:
    configs = [Struct(name=name, value=value) for name, value in settings.items()]
    topics = [
        Struct(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs) for name in names
    ]
    answer = connection.ask(CREATE_TOPICS, 7, Struct(topics=topics, timeout=60_000))
    for topic in answer.topics:
        if topic.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise Refused(topic.error_code, f"topic {topic.name} was not created: {topic.error_message}")


def alter_config(connection: Connection, resource_type: int, name: str, setting: str, value: str) -> None:
    change = Struct(name=setting, config_operation=0, value=value)
    resource = Struct(resource_type=resource_type, resource_name=name, configs=[change])
    answer = connection.ask(INCREMENTAL_ALTER_CONFIGS, 1, Struct(resources=[resource], validate_only=False))
    (altered,) = answer.responses
    if altered.error_code != ErrorCode.none:
        raise Refused(altered.error_code, f"{setting} was not altered: {altered.error_message}")


def find_topics(connection: Connection, names: Sequence[str]) -> list[Topic] | None:
    """The topics, or None while one of their partitions has no leader yet."""
    topics = [Struct(name=name) for name in names]
    answer = connection.ask(METADATA, 12, Struct(topics=topics, allow_auto_topic_creation=False))
    found = []
    for topic in answer.topics:
        if topic.error_code != ErrorCode.none or any(p.error_code != ErrorCode.none for p in topic.partitions):
            return None
        found.append(Topic(topic.name, topic.topic_id, len(topic.partitions)))
    return found


def brokers_known_to(port: int) -> set[int]:
    with Connection(port, timeout_s=10) as connection:
        answer = connection.ask(METADATA, 12, Struct(topics=[], allow_auto_topic_creation=False))
    return {int(broker.node_id) for broker in answer.brokers}


@dataclass(frozen=True, slots=True)
class Placement:
    topic: str
    partition: int
    # -1 while there is none.
    leader: int
    in_sync: int


def placements(port: int, names: Sequence[str]) -> list[Placement]:
    """Of all partitions of these topics, as the node at `port` sees it; none while it knows not all of them."""
    with Connection(port, timeout_s=60) as connection:
        topics = [Struct(name=name) for name in names]
        answer = connection.ask(METADATA, 12, Struct(topics=topics, allow_auto_topic_creation=False))
    if any(topic.error_code != ErrorCode.none for topic in answer.topics):
        return []
    return [
        Placement(topic.name, int(one.partition_index), int(one.leader_id), len(one.isr_nodes))
        for topic in answer.topics
        for one in topic.partitions
    ]


def make_topic(port: int, name: str, partitions: int, settings: dict[str, str] | None = None) -> Topic:
    """Creates a topic and waits until each of its partitions has a leader that answers."""
    deadline_s = time.monotonic() + 60
    with Connection(port) as connection:
        create_topics(connection, [name], partitions, settings or {})
        while time.monotonic() < deadline_s:
            topics = find_topics(connection, [name])
            if topics and end_offsets(connection, topics[0]) is not None:
                return topics[0]
            time.sleep(0.02)
    raise Refused(ErrorCode.leader_not_available, f"topic {name} had no leader after 60 s")


def end_offsets(connection: Connection, topic: Topic) -> list[int] | None:
    """Each partition's end, in no particular order; None while one of them does not answer."""
    partitions = [Struct(partition_index=index, timestamp=LATEST_TIMESTAMP) for index in range(topic.partitions)]
    asked = Struct(replica_id=-1, topics=[Struct(name=topic.name, partitions=partitions)])
    answers = connection.ask(LIST_OFFSETS, 7, asked).topics[0].partitions
    if any(partition.error_code != ErrorCode.none for partition in answers):
        return None
    return [int(partition.offset) for partition in answers]


def init_producer_id(connection: Connection, transactional_id: str | None = None) -> tuple[int, int]:
    """(producer id, epoch), idempotent or transactional; waits for a broker that is still getting ready for that."""
    deadline_s = time.monotonic() + 60
    while True:
        asked = Struct(transactional_id=transactional_id, transaction_timeout=60_000)
        answer = connection.ask(INIT_PRODUCER_ID, 4, asked)
        if answer.error_code == ErrorCode.none:
            return int(answer.producer_id), int(answer.producer_epoch)
        if time.monotonic() > deadline_s:
            raise Refused(answer.error_code, "no producer id was given")
        time.sleep(0.05)


def record_batch(
    record_count: int,
    record_bytes: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytearray:
    """A batch of records with values of `record_bytes` pattern bytes and no keys, all of this moment."""
    now_ms = time.time_ns() // 1_000_000
    value = (b"0123456789abcdefghijklmnopqrstuvwxyz" * (record_bytes // 36 + 1))[:record_bytes]
    records = [Record(index, now_ms, None, value) for index in range(record_count)]
    return encode_batch(
        encode_records(records, 0, now_ms),
        record_count=record_count,
        attributes=attributes,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def produce_request(topic: str, batches: dict[int, bytearray], acks: int) -> Struct:
    """`batches` by partition."""
    partitions = [Struct(index=index, records=batch) for index, batch in batches.items()]
    return Struct(acks=acks, timeout=30_000, topic_data=[Struct(name=topic, partition_data=partitions)])


def produce_once(connection: Connection, topic: str, batches: dict[int, bytearray], acks: int = 1) -> set[int]:
    """Sends one request; the partitions that refused their batch."""
    answer = connection.ask(PRODUCE, PRODUCE_VERSION, produce_request(topic, batches, acks))
    partitions = answer.responses[0].partition_responses
    return {int(partition.index) for partition in partitions if partition.error_code != ErrorCode.none}


def produce_many(
    connection: Connection, partitions: Sequence[tuple[str, int]], batch: bytearray, acks: int
) -> set[tuple[str, int]]:
    """The same batch to many partitions in one request; those that refused it."""
    by_topic: dict[str, list[Struct]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(Struct(index=index, records=batch))
    topics = [Struct(name=topic, partition_data=listed) for topic, listed in by_topic.items()]
    answer = connection.ask(PRODUCE, PRODUCE_VERSION, Struct(acks=acks, timeout=30_000, topic_data=topics))
    return {
        (topic.name, int(one.index))
        for topic in answer.responses
        for one in topic.partition_responses
        if one.error_code != ErrorCode.none
    }


def first_acknowledgement(port: int, topic: str, check_running: Callable[[], None], timeout_s: float = 180) -> None:
    """Returns as soon as the broker at `port`, which may not listen yet, acknowledges a record in `topic`.

    `check_running` raises when there is nothing to wait for any more.
    """
    deadline_s = time.monotonic() + timeout_s
    batch = record_batch(1, 100)
    while time.monotonic() < deadline_s:
        try:
            with Connection(port, timeout_s=10) as connection:
                create_topics(connection, [topic], 1, {})
                while time.monotonic() < deadline_s:
                    if not produce_once(connection, topic, {0: batch}):
                        return
                    time.sleep(0.002)
        except (OSError, Refused):
            check_running()
            time.sleep(0.005)
    raise TimeoutError(f"no record was acknowledged within {timeout_s:.0f} s")
