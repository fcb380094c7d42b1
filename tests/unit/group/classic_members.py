"""Classic members for tests: they join, sync and send heartbeats through a coordinator."""

from typing import Any

from penstock.protocol.messages import Struct
from tests.unit.group.coordinator import Coordinator


def subscription(*topics: str) -> bytes:
    """What a consumer sends as its metadata, in version 0."""
    names = b"".join(len(topic.encode()).to_bytes(2) + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff"


class ClassicClient:
    """A client that remembers the id and the generation it was told."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str = "client",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        topics: tuple[str, ...] = ("t",),
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocols: tuple[str, ...] = ("range",),
    ) -> None:
        self.coordinator = coordinator
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.protocols = [Struct(name=protocol, metadata=subscription(*topics)) for protocol in protocols]
        self.protocol_type = "consumer"
        self.member_id = ""
        self.generation = -1

    def join(self, version: int = 9) -> int:
        """Sends JoinGroup; where the id has to be told first, again with it."""
        token = self._join(version)
        answer = self.coordinator.answers.get(token)
        if answer is not None and answer.error_code.name == "member_id_required":
            self.member_id = answer.member_id
            token = self._join(version)
        return token

    def _join(self, version: int) -> int:
        return self.coordinator.send(
            "join_group",
            version,
            client_id=self.name,
            group_id=self.group_id,
            session_timeout=self.session_ms,
            rebalance_timeout=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=self.protocols,
        )

    def take(self, token: int) -> Any:
        """The answer to a join, remembered."""
        answer = self.coordinator.answers.pop(token)
        self.member_id = answer.member_id
        if not answer.error_code:
            self.generation = answer.generation_id
        return answer

    def identity(self, **more: Any) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **more,
        }

    def sync(self, assignments: dict[str, bytes] | None = None, version: int = 5) -> int:
        listed = [Struct(member_id=one, assignment=data) for one, data in (assignments or {}).items()]
        return self.coordinator.send("sync_group", version, **self.identity(assignments=listed))

    def heartbeat(self, version: int = 4) -> str:
        return str(self.coordinator.ask("heartbeat", version, **self.identity()).error_code.name)

    def leave(self, version: int = 5) -> Any:
        leaving = Struct(member_id=self.member_id, group_instance_id=self.instance_id)
        return self.coordinator.ask(
            "leave_group", version, group_id=self.group_id, member_id=self.member_id, members=[leaving]
        )

    def commit(self, topic: str, partition: int, offset: int, version: int = 9, metadata: str | None = None) -> str:
        answer = self.coordinator.ask(
            "offset_commit",
            version,
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[commit_topic(topic, partition, offset, metadata)],
        )
        return str(answer.topics[0].partitions[0].error_code.name)


def commit_topic(topic: str, partition: int, offset: int, metadata: str | None = None) -> Struct:
    return Struct(
        name=topic,
        partitions=[Struct(partition_index=partition, committed_offset=offset, committed_metadata=metadata)],
    )


def settle(coordinator: Coordinator, *clients: ClassicClient) -> None:
    """All of them join a new group, and the leader gives everybody its name."""
    tokens = [(client, client.join()) for client in clients]
    coordinator.advance(2 * coordinator.settings["group.initial.rebalance.delay.ms"])
    answers = [client.take(token) for client, token in tokens]
    assert not any(answer.error_code for answer in answers), answers
    leader = next(client for client in clients if client.member_id == answers[0].leader)
    syncs = [client.sync() for client in clients if client is not leader]
    syncs.append(leader.sync({client.member_id: client.name.encode() for client in clients}))
    assert not any(coordinator.answers.pop(token).error_code for token in syncs)


def group_state(coordinator: Coordinator, group_id: str = "g") -> str:
    return str(coordinator.ask("describe_groups", groups=[group_id]).groups[0].group_state)
