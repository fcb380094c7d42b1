"""The cluster as a client sees it: who leads which partition, connections by broker, and patience with both.

Everything that may pass (an election, a broken connection, a broker that starts) is tried again until the deadline.
What will not pass (no such topic, no permission) is raised at once.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.client.connection import LIST_OFFSETS, METADATA, Address, Connection, code_of
from penstock.client.errors import (
    STALE_LEADER_CODES,
    ClientError,
    Refusal,
    TimedOut,
    Unreachable,
    is_worth_retrying,
)
from penstock.client.security import Security, security_from
from penstock.protocol.messages import Struct

LATEST, EARLIEST = -1, -2
DEFAULT_PORT = 9092
_RETRY_BACKOFF_S = 0.05
_RETRY_BACKOFF_S_MAX = 1.0

T = TypeVar("T")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ClientConfig(NamedTuple):
    """What a client needs to know. Plain data, so that it travels."""

    bootstrap_servers: str
    security: Security = Security()
    client_id: str = "penstock"
    request_timeout_ms: int = 30_000
    # For how long something is tried again.
    patience_ms: int = 60_000
    receive_buffer_bytes: int = 4 * 1024 * 1024


def config_from(properties: Mapping[str, str]) -> ClientConfig:
    """From a Kafka client's properties; those that do not matter to this client are ignored."""
    if not properties.get("bootstrap.servers", "").strip():
        raise ClientError("no cluster is named: set bootstrap.servers to HOST:PORT[,HOST:PORT...]")
    defaults = ClientConfig._field_defaults
    return ClientConfig(
        bootstrap_servers=properties["bootstrap.servers"],
        security=security_from(properties),
        client_id=properties.get("client.id", defaults["client_id"]),
        request_timeout_ms=_number(properties, "request.timeout.ms", defaults["request_timeout_ms"]),
        patience_ms=_number(properties, "default.api.timeout.ms", defaults["patience_ms"]),
        receive_buffer_bytes=max(0, _number(properties, "receive.buffer.bytes", defaults["receive_buffer_bytes"])),
    )


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    value = properties.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError as error:
        raise ClientError(f"{name} is a whole number; '{value}' is not") from error


def addresses_of(bootstrap_servers: str) -> list[Address]:
    addresses = []
    for part in filter(None, (piece.strip() for piece in bootstrap_servers.split(","))):
        host, colon, port = part.rpartition("://")[2].rpartition(":")
        if not colon:
            addresses.append((port, DEFAULT_PORT))
        elif port.isdigit() and int(port) < 65536:
            addresses.append((host.strip("[]"), int(port)))
        else:
            raise ClientError(f"'{part}' in bootstrap.servers is not HOST:PORT")
    return addresses


class Topic(NamedTuple):
    name: str
    # Leader's node id by partition, -1 where there is none at the moment.
    leaders: Mapping[int, int]
    is_internal: bool
    replicas: Mapping[int, tuple[int, ...]]
    in_sync: Mapping[int, tuple[int, ...]]


class Cluster:
    """Not for several threads at once."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._bootstrap = addresses_of(config.bootstrap_servers)
        self._nodes: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._connections: dict[Address, Connection] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def nodes(self) -> Mapping[int, Address]:
        return self._nodes

    def connect(self, address: Address) -> Connection:
        """A connection of the caller's own."""
        config = self.config
        timeout_s = config.request_timeout_ms / 1000
        return Connection(address, config.security, timeout_s, config.client_id, config.receive_buffer_bytes)

    def connection_to(self, address: Address) -> Connection:
        """The shared one for short requests."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self.connect(address)
        return connection

    def ask(self, address: Address, api_key: int, body: Struct) -> Any:
        """One try. A connection that breaks is not used again."""
        try:
            return self.connection_to(address).ask(api_key, body)
        except ClientError:
            broken = self._connections.pop(address, None)
            if broken is not None:
                broken.close()
            raise

    def ask_any(self, api_key: int, body: Struct) -> Any:
        """Of whichever broker answers, those we talk to already first."""
        known = [*self._connections, *self._nodes.values(), *self._bootstrap]
        failures: list[ClientError] = []
        for address in dict.fromkeys(known):
            try:
                return self.ask(address, api_key, body)
            except Unreachable as error:
                failures.append(error)
        raise failures[-1]

    def patiently(self, attempt: Callable[[], T], what: str) -> T:
        """What `attempt` gives, tried again for as long as the configuration allows while it fails in passing ways."""
        deadline_s = time.monotonic() + self.config.patience_ms / 1000
        backoff_s = _RETRY_BACKOFF_S
        while True:
            try:
                return attempt()
            except ClientError as error:
                if not is_worth_retrying(error):
                    raise
                if time.monotonic() + backoff_s > deadline_s:
                    waited = f"{what} did not succeed within {self.config.patience_ms / 1000:g} s"
                    raise TimedOut(f"{waited}; the last failure: {error}") from error
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _RETRY_BACKOFF_S_MAX)

    def refresh(self, names: Iterable[str] | None, *, creates: bool = False) -> dict[str, Topic]:
        """Asks for the topics (all of them for None) and remembers who leads. Topics that do not exist are left out, or
        made where the broker does so on demand."""
        asked = None if names is None else [Struct(topic_id=None, name=name) for name in names]
        answer = self.ask_any(METADATA, Struct(topics=asked, allow_auto_topic_creation=creates))
        self._nodes = {int(node.node_id): (str(node.host), int(node.port)) for node in answer.brokers}
        self.cluster_id = answer.cluster_id
        self.controller_id = int(answer.controller_id)
        found = {}
        for topic in answer.topics:
            code = code_of(topic.error_code)
            if code in (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id):
                self._topics.pop(topic.name, None)
                continue
            if code == ErrorCode.leader_not_available:
                continue
            if code != ErrorCode.none:
                raise Refusal(code, f"topic {topic.name}")
            partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
            found[str(topic.name)] = Topic(
                str(topic.name),
                {int(each.partition_index): int(each.leader_id) for each in partitions},
                bool(topic.is_internal),
                {int(each.partition_index): tuple(map(int, each.replica_nodes)) for each in partitions},
                {int(each.partition_index): tuple(map(int, each.isr_nodes)) for each in partitions},
            )
        self._topics.update(found)
        return found

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """As they are now, by name; those that do not exist are left out."""
        asked = None if names is None else list(names)
        return self.patiently(lambda: self.refresh(asked), "asking for topics")

    def leader_of(self, partition: TopicPartition) -> Address:
        """From what is known; asks if that is nothing. Raises Refusal, which says whether to try again."""
        topic = self._topics.get(partition.topic)
        if topic is None or topic.leaders.get(partition.partition, -1) not in self._nodes:
            topic = self.refresh([partition.topic]).get(partition.topic)
        if topic is None or partition.partition not in topic.leaders:
            raise Refusal(ErrorCode.unknown_topic_or_partition, str(partition), "there is no such partition")
        leader = topic.leaders[partition.partition]
        if leader not in self._nodes:
            raise Refusal(ErrorCode.leader_not_available, str(partition), "it has no leader at the moment")
        return self._nodes[leader]

    def forget_leader(self, topic: str) -> None:
        """What we know of the topic proved wrong."""
        self._topics.pop(topic, None)

    def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The offset for each partition's LATEST, EARLIEST or time in ms; -1 where nothing is that late."""
        found: dict[TopicPartition, int] = {}

        def attempt() -> None:
            failures: list[ClientError] = []
            missing = [partition for partition in partitions if partition not in found]
            for address, group in self._by_leader(missing, failures).items():
                try:
                    found.update(self._listed(address, {each: partitions[each] for each in group}, read_committed))
                except (Refusal, Unreachable) as error:
                    failures.append(error)
                    for each in group:
                        self.forget_leader(each.topic)
            permanent = [failure for failure in failures if not is_worth_retrying(failure)]
            if failures:
                raise (permanent or failures)[0]

        self.patiently(attempt, "asking for offsets")
        return found

    def _by_leader(
        self, partitions: Collection[TopicPartition], failures: list[ClientError]
    ) -> dict[Address, list[TopicPartition]]:
        groups: dict[Address, list[TopicPartition]] = {}
        for partition in partitions:
            try:
                groups.setdefault(self.leader_of(partition), []).append(partition)
            except (Refusal, Unreachable) as error:
                failures.append(error)
        return groups

    def _listed(
        self, address: Address, times: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[Struct]] = {}
        for (topic, index), timestamp in times.items():
            asked = Struct(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
            topics.setdefault(topic, []).append(asked)
        body = Struct(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[Struct(name=name, partitions=listed) for name, listed in topics.items()],
        )
        found = {}
        for topic in self.ask(address, LIST_OFFSETS, body).topics:
            for partition in topic.partitions:
                where = TopicPartition(str(topic.name), int(partition.partition_index))
                code = code_of(partition.error_code)
                if code in STALE_LEADER_CODES:
                    self.forget_leader(where.topic)
                if code != ErrorCode.none:
                    raise Refusal(code, f"the offsets of {where}")
                found[where] = int(partition.offset)
        return found
