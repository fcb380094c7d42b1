"""The cluster as the commands see it: confluent-kafka's clients, made quiet, with errors that are sentences."""

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from penstock.cli.failures import Failed, Misused, error_of, sentence_of
from penstock.cli.options import parse_pairs
from penstock.client.cluster import ClientConfig, config_from
from penstock.client.errors import ClientError

CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 5.0
# Administration may wait for a controller or for many partitions.
ADMIN_TIMEOUT_S = 30.0

T = TypeVar("T")

_UNREACHABLE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT)


class Cluster:
    """A cluster that answered at least a connection attempt."""

    def __init__(self, brokers: str, properties: Mapping[str, str], address: tuple[str, int]) -> None:
        self.brokers = brokers
        # The first of them that accepted a connection.
        self.address = address
        # log_level 0: what librdkafka would write to stderr is said by our own errors.
        self._config: dict[str, Any] = {"bootstrap.servers": brokers, "client.id": "penstock", "log_level": 0}
        self._extra = dict(properties)
        self._admin: AdminClient | None = None
        self.is_plaintext = self._extra.get("security.protocol", "plaintext").lower() == "plaintext"

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = self._made(lambda: AdminClient(self.properties))
        return self._admin

    @property
    def properties(self) -> dict[str, Any]:
        return self._config | self._extra

    @property
    def client_config(self) -> ClientConfig:
        """For what our own client asks."""
        try:
            return config_from(self.properties)._replace(patience_ms=int(ADMIN_TIMEOUT_S * 1000))
        except ClientError as problem:
            raise Misused(f"-X: {problem}") from problem

    def producer(self, properties: Mapping[str, Any]) -> Producer:
        return self._made(lambda: Producer({**self._config, **properties, **self._extra}))

    def consumer(self, properties: Mapping[str, Any]) -> Consumer:
        # A group id is obligatory, but partitions are assigned by hand and nothing is committed: no group appears.
        # Records that retention deletes while they are being read are skipped.
        fixed = {"group.id": "penstock-cli", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return self._made(lambda: Consumer({**self._config, **fixed, **properties, **self._extra}))

    def _made(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except KafkaException as exception:
            raise Misused(f"-X: {sentence_of(error_of(exception))}") from exception

    def asked(self, ask: Callable[[], T]) -> T:
        """What a blocking call answers; its failure as a sentence."""
        try:
            return ask()
        except KafkaException as exception:
            raise self.failure(error_of(exception)) from exception

    def answer(self, future: "Future[T]") -> T:
        return self.asked(lambda: future.result(ADMIN_TIMEOUT_S))

    def failure(self, error: KafkaError) -> Failed:
        if error.code() in _UNREACHABLE:
            return Failed(f"{self.brokers} did not answer within {REQUEST_TIMEOUT_S:.0f} s: is it a Kafka listener?")
        return Failed(sentence_of(error))

    def metadata(self) -> Any:
        """Of all topics, because asking for one by name may create it."""
        return self.asked(lambda: self.admin().list_topics(timeout=REQUEST_TIMEOUT_S))

    def nodes(self) -> dict[int, tuple[str, int]]:
        return {node.id: (node.host, node.port) for node in self.metadata().brokers.values()}

    def topics(self) -> dict[str, Any]:
        """Metadata by topic name."""
        topics: dict[str, Any] = self.metadata().topics
        return topics

    def partitions_of(self, topic: str) -> list[int]:
        topics = self.topics()
        if topic not in topics:
            raise Failed(_no_topic(topic, topics))
        return sorted(topics[topic].partitions)


def connect(brokers: str, extra: list[str]) -> Cluster:
    """Fails at once when nobody listens, instead of after librdkafka's retries."""
    properties = parse_pairs(extra, "-X")
    brokers = properties.pop("brokers", brokers)
    failures = []
    for address in brokers.split(","):
        host, port = host_and_port(address.strip())
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failures.append(error)
        else:
            return Cluster(brokers, properties, (host, port))
    reason = failures[-1].strerror or str(failures[-1])
    raise Failed(
        f"no broker at {brokers} ({reason.lower()}). "
        "Start one with `penstock up`, or name yours with --brokers HOST:PORT."
    )


def host_and_port(address: str) -> tuple[str, int]:
    address = address.rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon:
        return address, 9092
    if not port.isdigit() or int(port) > 65535:
        raise Misused(f"'{address}' is not HOST:PORT")
    return host.strip("[]"), int(port)


def _no_topic(topic: str, topics: Mapping[str, Any]) -> str:
    import difflib

    near = difflib.get_close_matches(topic, topics, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"`penstock topic create {topic}` makes it."
    return f"there is no topic '{topic}'; {hint}"


def first_offsets(cluster: Cluster, partitions: list[TopicPartition]) -> list[int]:
    return _list_offsets(cluster, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def end_offsets(cluster: Cluster, partitions: list[TopicPartition]) -> list[int]:
    return _list_offsets(cluster, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def offsets_at(cluster: Cluster, partitions: list[TopicPartition], timestamp_ms: int) -> list[int]:
    """The first offset at or after the time in each partition; -1 where there is none."""
    return _list_offsets(cluster, partitions, OffsetSpec.for_timestamp(timestamp_ms))


def _list_offsets(cluster: Cluster, partitions: list[TopicPartition], spec: Any) -> list[int]:
    if not partitions:
        return []
    admin = cluster.admin()
    futures = cluster.asked(
        lambda: admin.list_offsets(dict.fromkeys(partitions, spec), request_timeout=ADMIN_TIMEOUT_S)
    )
    return [cluster.answer(futures[partition]).offset for partition in partitions]
