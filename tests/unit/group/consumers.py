"""Consumers for tests: by the new protocol and by the classic one, as much of them as the coordinator can see.

They behave as Kafka's clients do: what they are told to give up they give up before they say so, and what they are
given they take.
"""

import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.group.embedded_protocol import read_assignment
from penstock.protocol.messages import Struct
from tests.unit.group.coordinator import Coordinator

REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 45_000
Partition = tuple[str, int]


class Consumer:
    """A member by the new protocol."""

    def __init__(
        self,
        coordinator: Coordinator,
        group_id: str,
        member_id: str,
        topics: Iterable[str] = (),
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rack_id: str | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.member_id = member_id
        self.topics = list(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.rack_id = rack_id
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.interval_ms = 0
        self._says_all = True

    def request(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "topic_partitions": self._owned_by_id(),
        }
        if self._says_all:
            fields |= {
                "rebalance_timeout": REBALANCE_TIMEOUT_MS,
                "subscribed_topic_names": self.topics,
                "subscribed_topic_regex": self.regex or "",
                "server_assignor": self.assignor,
                "rack_id": self.rack_id,
            }
        return fields

    def _owned_by_id(self) -> list[Struct]:
        by_topic: dict[uuid.UUID, list[int]] = {}
        for topic, number in sorted(self.owned):
            topic_id = self.coordinator.topics.topic_id(topic)
            if topic_id is not None:
                by_topic.setdefault(topic_id, []).append(number)
        return [Struct(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic.items()]

    def heartbeat(self, *, loses_answer: bool = False) -> Any:
        answer = self.coordinator.ask("consumer_group_heartbeat", **self.request())
        if loses_answer:
            self._says_all = True
            return answer
        self._says_all = False
        if answer.error_code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
            self.forget()
        elif not answer.error_code:
            self.epoch = answer.member_epoch
            self.interval_ms = round(answer.heartbeat_interval.total_seconds() * 1000)
            if answer.assignment is not None:
                self.owned = self._named(answer.assignment.topic_partitions)
        return answer

    def _named(self, partitions: Any) -> set[Partition]:
        named = ((self.coordinator.topics.topic_name(part.topic_id), part.partitions) for part in partitions)
        return {(name, number) for name, numbers in named if name is not None for number in numbers}

    def forget(self) -> None:
        """Lost its membership: it gives up all it has and joins again."""
        self.epoch = 0
        self.owned = set()
        self._says_all = True

    def subscribe(self, topics: Iterable[str], regex: str | None = None) -> None:
        self.topics, self.regex = list(topics), regex
        self._says_all = True

    def leave(self, epoch: int = -1) -> Any:
        fields = self.request() | {"member_epoch": epoch}
        self.forget()
        return self.coordinator.ask("consumer_group_heartbeat", **fields)

    def commit_error(self, partition: Partition) -> ErrorCode:
        return commit_error(self.coordinator, self.group_id, self.member_id, self.epoch, partition)


def commit_error(
    coordinator: Coordinator, group_id: str, member_id: str, epoch: int, partition: Partition
) -> ErrorCode:
    """What a commit for the partition is answered."""
    topic, number = partition
    answer = coordinator.ask(
        "offset_commit",
        group_id=group_id,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[Struct(name=topic, partitions=[Struct(partition_index=number, committed_offset=1)])],
    )
    error: ErrorCode = answer.topics[0].partitions[0].error_code
    return error


def subscription(topics: Iterable[str], owned: Iterable[Partition] = (), version: int = 1) -> bytes:
    """A classic consumer's, as it stands in JoinGroup."""
    names = list(topics)
    out = struct.pack(">hi", version, len(names))
    for name in names:
        out += struct.pack(">h", len(name)) + name.encode()
    out += struct.pack(">i", -1)
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(owned):
        by_topic.setdefault(topic, []).append(number)
    return out + _partitions(by_topic)


def assignment(partitions: Mapping[str, list[int]], user_data: bytes | None = None) -> bytes:
    data = struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return struct.pack(">h", 1) + _partitions(partitions) + data


def _partitions(partitions: Mapping[str, list[int]]) -> bytes:
    out = struct.pack(">i", len(partitions))
    for topic, numbers in partitions.items():
        out += (
            struct.pack(">h", len(topic))
            + topic.encode()
            + struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers)
        )
    return out


class ClassicConsumer:
    """A member by the classic protocol, with a cooperative assignor: it keeps what it has while it joins again."""

    def __init__(
        self,
        coordinator: Coordinator,
        group_id: str,
        name: str,
        topics: Iterable[str],
        *,
        instance_id: str | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.name = name
        self.topics = list(topics)
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: set[Partition] = set()
        self.must_join = True
        self.protocol = "cooperative-sticky"

    def send_join(self) -> int:
        """Sends JoinGroup, which may be answered much later."""
        protocol = Struct(name=self.protocol, metadata=subscription(self.topics, self.owned))
        return self.coordinator.send(
            "join_group",
            group_id=self.group_id,
            session_timeout=SESSION_TIMEOUT_MS,
            rebalance_timeout=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[protocol],
            client_id=self.name,
        )

    def join(self) -> Any:
        """Joins where that is answered at once: in a group of the new kind."""
        answer = self.coordinator.answers.pop(self.send_join())
        if answer.error_code == ErrorCode.member_id_required:
            self.member_id = answer.member_id
            answer = self.coordinator.answers.pop(self.send_join())
        if not answer.error_code:
            self.joined(answer)
        elif answer.error_code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.forget()
        return answer

    def joined(self, answer: Any) -> None:
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.must_join = False

    def sync_fields(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocol_name": self.protocol,
        }

    def sync(self) -> Any:
        answer = self.coordinator.ask("sync_group", **self.sync_fields(), assignments=[])
        self.take(answer)
        return answer

    def take(self, answer: Any) -> None:
        """An answer to SyncGroup."""
        if not answer.error_code:
            self.synced(answer.assignment)
        elif answer.error_code == ErrorCode.rebalance_in_progress:
            self.must_join = True
        else:
            self.forget()

    def synced(self, data: bytes) -> None:
        partitions = read_assignment(data).partitions
        assigned = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
        # What was taken away is given up now; the next JoinGroup tells so.
        self.must_join = not self.owned <= assigned
        self.owned = assigned

    def heartbeat(self) -> Any:
        answer = self.coordinator.ask(
            "heartbeat",
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        if answer.error_code == ErrorCode.rebalance_in_progress:
            self.must_join = True
        elif answer.error_code:
            self.forget()
        return answer

    def poll(self) -> None:
        """What its heartbeat thread and poll loop do between them, in a group of the new kind."""
        if not self.must_join:
            self.heartbeat()
        if self.must_join and not self.join().error_code:
            self.sync()

    def forget(self) -> None:
        self.member_id, self.generation, self.owned, self.must_join = "", -1, set(), True

    def leave(self) -> Any:
        member = Struct(member_id=self.member_id, group_instance_id=self.instance_id)
        answer = self.coordinator.ask("leave_group", group_id=self.group_id, members=[member])
        self.forget()
        return answer
