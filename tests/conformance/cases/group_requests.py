"""Requests of consumer groups for all versions, and members that wait for their answers."""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from struct import pack
from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cluster import CLOSED, Cluster, versions_of
from tests.conformance.normalise import plain
from tests.conformance.wire import INCREMENTAL_ALTER_CONFIGS, Closed, Wire, correlation_id_of, decode_answer
from tests.e2e.node import wait_until

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 10, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69

# In requests for settings.
_GROUP = 32
_SET, _DELETE = 0, 1

MANY_GROUPS = 8
SESSION_MS = 30_000
# Ids that brokers make up: a UUID as it is usually written, or Kafka's 22 characters.
_MADE_UP_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|^[A-Za-z0-9_-]{22}$")
_EPOCHS = frozenset({"member_epoch", "group_epoch", "assignment_epoch", "generation_id"})


def newest(api_key: int) -> int:
    return versions_of(api_key)[-1]


def subscription(*topics: str) -> bytes:
    """What consumers of the classic protocol send as metadata: version 0, topics, no user data."""
    names = [topic.encode() for topic in topics]
    return pack(">hi", 0, len(names)) + b"".join(pack(">h", len(name)) + name for name in names) + pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    """What the leader of consumers hands out: version 0, one topic, no user data."""
    name = topic.encode()
    indexes = b"".join(pack(">i", index) for index in partitions)
    return pack(">hih", 0, 1, len(name)) + name + pack(">i", len(partitions)) + indexes + pack(">i", -1)


def join_of(
    group_id: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    protocols: Iterable[tuple[str, bytes]] = (("range", b""),),
    session_ms: int = SESSION_MS,
    rebalance_ms: int = SESSION_MS,
) -> Struct:
    return Struct(
        group_id=group_id,
        session_timeout=session_ms,
        rebalance_timeout=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[Struct(name=name, metadata=metadata) for name, metadata in protocols],
        reason="a test",
    )


def sync_of(
    group_id: str,
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    instance_id: str | None = None,
    protocol: tuple[str | None, str | None] = ("consumer", "range"),
) -> Struct:
    shares = [Struct(member_id=member, assignment=share) for member, share in (assignments or {}).items()]
    return Struct(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol[0],
        protocol_name=protocol[1],
        assignments=shares,
    )


def heartbeat_of(group_id: str, member_id: str, generation: int, *, instance_id: str | None = None) -> Struct:
    return Struct(group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id)


def leave_of(group_id: str, *members: tuple[str, str | None]) -> Struct:
    """`members` are (member id, instance id); versions before 3 take the first."""
    listed = [Struct(member_id=member, group_instance_id=instance, reason="a test") for member, instance in members]
    return Struct(group_id=group_id, member_id=members[0][0] if members else "", members=listed)


def commit_of(
    group_id: str,
    topic: str,
    offsets: Iterable[tuple[int, int]],
    *,
    topic_id: uuid.UUID | None = None,
    member: tuple[str, int] = ("", -1),
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    retention_ms: int = -1,
) -> Struct:
    """`member` is (member id, generation or epoch)."""
    partitions = [
        Struct(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        for index, offset in offsets
    ]
    return Struct(
        group_id=group_id,
        member_id=member[0],
        generation_id_or_member_epoch=member[1],
        group_instance_id=instance_id,
        retention_time=retention_ms,
        topics=[Struct(name=topic, topic_id=topic_id, partitions=partitions)],
    )


def fetch_offsets_of(
    *group_ids: str,
    topics: Sequence[tuple[str, uuid.UUID | None, Sequence[int]]] | None = None,
    member: tuple[str | None, int] = (None, -1),
    require_stable: bool = False,
) -> Struct:
    """`topics` are (name, id, partitions), None for all; versions before 8 take the first group."""
    asked = None
    if topics is not None:
        asked = [Struct(name=name, topic_id=topic_id, partition_indexes=indexes) for name, topic_id, indexes in topics]
    groups = [
        Struct(group_id=group_id, member_id=member[0], member_epoch=member[1], topics=asked) for group_id in group_ids
    ]
    return Struct(group_id=group_ids[0], topics=asked, groups=groups, require_stable=require_stable)


def delete_offsets_of(group_id: str, topic: str, *partitions: int) -> Struct:
    asked = [Struct(partition_index=index) for index in partitions]
    return Struct(group_id=group_id, topics=[Struct(name=topic, partitions=asked)])


def report_of(
    group_id: str,
    member_id: str,
    epoch: int,
    *,
    topics: Sequence[str] | None = None,
    regex: str | None = None,
    owned: Sequence[tuple[uuid.UUID, Sequence[int]]] | None = None,
    instance_id: str | None = None,
    rack_id: str | None = None,
    rebalance_ms: int = -1,
    assignor: str | None = None,
) -> Struct:
    """A ConsumerGroupHeartbeat; what is None has not changed since the last one."""
    partitions = None
    if owned is not None:
        partitions = [Struct(topic_id=topic_id, partitions=indexes) for topic_id, indexes in owned]
    return Struct(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout=rebalance_ms,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=partitions,
    )


def first_report_of(group_id: str, member_id: str, *topics: str, **options: Any) -> Struct:
    """The one with which a member comes into the group."""
    return report_of(group_id, member_id, 0, topics=topics, owned=[], rebalance_ms=SESSION_MS, **options)


class Groups:
    """Asks a broker about groups; ids that it makes up become words."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names: dict[str, str] = {}
        # How much later than 1 the epochs of a new group begin: 1 in Kafka.
        self._epoch_shift = 0

    def ask(self, api_key: int, version: int, body: object) -> Any:
        try:
            return self.shown(self.cluster.ask_raw(api_key, version, body))
        except Closed:
            return CLOSED

    def ask_all_versions(self, api_key: int, body: object, *, first: int = 0, last: int = 1000) -> Any:
        asked = [version for version in versions_of(api_key) if first <= version <= last]
        return {f"v{version}": self.ask(api_key, version, body) for version in asked}

    def shown(self, answer: Any) -> Any:
        return self._named(plain(answer, self.cluster.topic_names))

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._named_field(key, item) for key, item in value.items()}
        if isinstance(value, list):
            items = [self._named(item) for item in value]
            # Kafka's hash tables have them in any order.
            for about in ("member_id", "topic_id", "name", "group_id"):
                if all(isinstance(item, dict) and about in item for item in items):
                    return sorted(items, key=lambda item: (str(item[about]), str(item)))
            return items
        if isinstance(value, str):
            return self.names.get(value) or _MADE_UP_ID.sub("(made up)", value)
        return value

    def _named_field(self, name: str, value: Any) -> Any:
        if name == "error_code":
            return value
        if name in _EPOCHS and value > 0:
            return value - self._epoch_shift
        return self._named(value)

    def count_epochs_from_one(self) -> None:
        """Of groups that begin with the new protocol."""
        body = first_report_of(f"first-epoch-{uuid.uuid4()}", "anybody", "no-such-topic")
        self._epoch_shift = self.cluster.ask_raw(CONSUMER_GROUP_HEARTBEAT, 1, body).member_epoch - 1

    @contextmanager
    def assignment_interval(self, group_id: str, milliseconds: int) -> Iterator[None]:
        """Within how long of the last target there is no other: whether the next member gets one must not depend on how
        busy the machine is."""
        self._alter_interval(group_id, _SET, str(milliseconds))
        try:
            yield
        finally:
            # Others list what is set.
            self._alter_interval(group_id, _DELETE, None)

    def _alter_interval(self, group_id: str, operation: int, value: str | None) -> None:
        config = Struct(name="consumer.assignment.interval.ms", config_operation=operation, value=value)
        resource = Struct(resource_type=_GROUP, resource_name=group_id, configs=[config])
        body = Struct(resources=[resource], validate_only=False)
        (answer,) = self.cluster.ask_raw(INCREMENTAL_ALTER_CONFIGS, 1, body).responses
        assert answer.error_code == 0, answer.error_message

    def member(self, group_id: str, word: str, **options: Any) -> "Member":
        return Member(self, group_id, word, **options)

    def wait_for_state(self, group_id: str, state: str) -> None:
        body = Struct(groups=[group_id])

        def is_reached() -> bool:
            return bool(self.cluster.ask_raw(DESCRIBE_GROUPS, 5, body).groups[0].group_state == state)

        wait_until(is_reached, f"{group_id} is {state}", 20)

    def prepare(self, topic: str | None = None, partitions: int = 1) -> uuid.UUID | None:
        """There is an offsets topic, with a coordinator that has loaded it, and `topic` if wanted."""
        for _ in range(600):
            self.cluster.ask_raw(FIND_COORDINATOR, newest(FIND_COORDINATOR), Struct(coordinator_keys=["any"]))
            described = self.cluster.ask_raw(DESCRIBE_GROUPS, 0, Struct(groups=["nobody-has-this"]))
            if described.groups[0].error_code == 0:
                break
        return None if topic is None else self.cluster.topic(topic, partitions)


class Member:
    """A member of a classic group with a connection of its own, so that it can wait while others go on."""

    def __init__(self, groups: Groups, group_id: str, word: str, **options: Any) -> None:
        self.groups = groups
        self.group_id = group_id
        self.word = word
        self.options = options
        self.member_id = ""
        self.generation = -1
        self.wire = Wire(groups.cluster.port)
        self._awaited: list[tuple[int, int, int]] = []

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.socket.close()

    @property
    def identity(self) -> tuple[str, int]:
        return self.member_id, self.generation

    def send(self, api_key: int, version: int, body: object) -> None:
        self._awaited.append((api_key, version, self.wire.send(api_key, version, body)))

    def receive(self) -> Any:
        """The raw answer to what was sent first."""
        api_key, version, correlation_id = self._awaited.pop(0)
        payload = self.wire.receive()
        assert correlation_id_of(payload) == correlation_id
        return decode_answer(api_key, version, payload)

    def send_join(self, version: int = 9) -> Any:
        """Asks to join; the answers on the way to a member id."""
        if self.member_id or self.options.get("instance_id") is not None or version < 4:
            self.send(JOIN_GROUP, version, join_of(self.group_id, self.member_id, **self.options))
            return []
        first = self.wire.ask(JOIN_GROUP, version, join_of(self.group_id, **self.options))
        self._learn(first.member_id)
        self.send(JOIN_GROUP, version, join_of(self.group_id, self.member_id, **self.options))
        return [self.groups.shown(first)]

    def joined(self) -> Any:
        """The answer to send_join."""
        answer = self.receive()
        self._learn(answer.member_id)
        self.generation = answer.generation_id
        return self.groups.shown(answer)

    def join(self, version: int = 9) -> Any:
        return [*self.send_join(version), self.joined()]

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> None:
        self.send(SYNC_GROUP, version, sync_of(self.group_id, *self.identity, assignments, **self._instance()))

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> Any:
        self.send_sync(assignments, version)
        return self.answer()

    def answer(self) -> Any:
        return self.groups.shown(self.receive())

    def heartbeat(self, version: int = 4) -> Any:
        body = heartbeat_of(self.group_id, *self.identity, **self._instance())
        return self.groups.shown(self.wire.ask(HEARTBEAT, version, body))

    def wait_for_news(self) -> None:
        """Until it is told that a rebalance goes on."""
        wait_until(lambda: bool(self.heartbeat()["error_code"] == "rebalance_in_progress"), "there is a rebalance", 20)

    def leave(self, version: int = 5) -> Any:
        body = leave_of(self.group_id, (self.member_id, self.options.get("instance_id")))
        return self.groups.shown(self.wire.ask(LEAVE_GROUP, version, body))

    def _instance(self) -> dict[str, Any]:
        return {"instance_id": self.options.get("instance_id")}

    def _learn(self, member_id: str) -> None:
        self.member_id = member_id
        if member_id:
            self.groups.names[member_id] = f"the id of {self.word}"
