"""A group coordinator with a shell in memory, for tests.

Requests are real ones: written in the version asked for and decoded by kio; answers are written and decoded in that
version too, and records go through their bytes before they are replayed. So whatever a test sees, a client would.
"""

import random
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.base.settings import NodeSettings
from penstock.coordinator.effects import Answer, Append, Effect
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.loading import LatestRecords
from penstock.coordinator.requests import RequestContext
from penstock.protocol import messages
from penstock.protocol.messages import Struct

API_KEYS = {
    "offset_commit": 8,
    "offset_fetch": 9,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "describe_groups": 15,
    "list_groups": 16,
    "txn_offset_commit": 28,
    "delete_groups": 42,
    "offset_delete": 47,
    "consumer_group_heartbeat": 68,
    "consumer_group_describe": 69,
}
NEWEST = {
    "offset_commit": 9,
    "offset_fetch": 9,
    "join_group": 9,
    "heartbeat": 4,
    "leave_group": 5,
    "sync_group": 5,
    "describe_groups": 6,
    "list_groups": 5,
    "txn_offset_commit": 5,
    "delete_groups": 2,
    "offset_delete": 0,
    "consumer_group_heartbeat": 1,
    "consumer_group_describe": 1,
}
START_MS = 1_000_000


class SeededRandom:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class Topics:
    def __init__(self) -> None:
        self.version = 0
        self.racks: dict[str, Sequence[frozenset[str]]] = {}
        self._by_name: dict[str, tuple[uuid.UUID, int]] = {}
        self._made = 0

    def set(self, name: str, partition_count: int) -> None:
        """Makes a topic, or makes it grow."""
        self.version += 1
        if name not in self._by_name:
            self._made += 1
            self._by_name[name] = (uuid.UUID(int=self._made), 0)
        self._by_name[name] = (self._by_name[name][0], partition_count)

    def remove(self, name: str) -> None:
        self.version += 1
        del self._by_name[name]

    def partition_count(self, topic_name: str) -> int | None:
        return self._by_name[topic_name][1] if topic_name in self._by_name else None

    def topic_id(self, topic_name: str) -> uuid.UUID | None:
        return self._by_name[topic_name][0] if topic_name in self._by_name else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, (known_id, _) in self._by_name.items() if known_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._by_name)

    def partition_racks(self, topic_name: str) -> Sequence[frozenset[str]]:
        return self.racks.get(topic_name, ())


class Coordinator:
    def __init__(self, **overrides: Any) -> None:
        """`overrides` are settings, with underscores for dots."""
        texts = {name.replace("_", "."): str(value) for name, value in overrides.items()}
        self.settings = NodeSettings(texts)
        self.topics = Topics()
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None, int]] = []
        self.answers: dict[int, Any] = {}
        # Everything performed, in order; tests that care clear it first.
        self.performed: list[Effect] = []
        self._asked: dict[int, tuple[str, int]] = {}
        self._token = 0
        self._random = SeededRandom()
        # By group, the settings that are its own.
        self.group_settings: dict[str, dict[str, str]] = {}
        self.shard = self._new_shard()
        self.perform(self.shard.on_loaded(self.now_ms))

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            self.settings, self.topics, self._random, lambda group_id: self.group_settings.get(group_id, {})
        )

    def send(
        self, api: str, version: int | None = None, *, client_id: str = "client", producer_id: int = -1, **fields: Any
    ) -> int:
        """Sends a request; its answer will stand in `answers` under the token returned. Fields are kio's, with times in
        milliseconds."""
        version = NEWEST[api] if version is None else version
        entity = messages.request_entity(API_KEYS[api], version)
        request = messages.decode(entity, bytes(messages.encode(entity, Struct(**fields))))
        self._token += 1
        self._asked[self._token] = (api, version)
        handle = getattr(self.shard, api)
        context = RequestContext(version, client_id, "/10.0.0.1")
        self.perform(handle(self._token, request, context, self.now_ms), producer_id)
        self._tick()
        return self._token

    def ask(
        self, api: str, version: int | None = None, *, client_id: str = "client", producer_id: int = -1, **fields: Any
    ) -> Any:
        """Sends a request that is answered at once."""
        return self.answers.pop(self.send(api, version, client_id=client_id, producer_id=producer_id, **fields))

    def advance(self, duration_ms: int) -> None:
        """Lets time pass, with a tick whenever the shard wants one."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.perform(self.shard.tick(self.now_ms))
        self.now_ms = end_ms

    def topics_changed(self) -> None:
        self.perform(self.shard.on_topics_changed(self.now_ms))
        self._tick()

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        self.log.append((b"", b"\x01" if is_committed else b"\x00", producer_id))
        self.shard.replay_transaction_end(producer_id, is_committed)

    def restart(self) -> None:
        """Another coordinator takes over: it knows what is in the log and nothing else."""
        latest = LatestRecords()
        for key, value, producer_id in self.log:
            if key:
                latest.note(key, value, producer_id)
            else:
                latest.end_transaction(producer_id, value == b"\x01")
        self.shard = self._new_shard()
        for key, value, producer_id in latest:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record, producer_id)
        self.perform(self.shard.on_loaded(self.now_ms))

    def perform(self, effects: list[Effect], producer_id: int = -1) -> None:
        for effect in effects:
            self.performed.append(effect)
            if isinstance(effect, Append):
                self._append(effect, producer_id)
            else:
                assert isinstance(effect, Answer), "groups send no messages"
                self._answer(effect)

    def _append(self, append: Append, producer_id: int) -> None:
        assert append.records, "a batch has records"
        for record in append.records:
            key, value = encode_record(record)
            self.log.append((key, value, producer_id))
            decoded = decode_record(key, value)
            assert decoded == record
            self.shard.replay(decoded, producer_id)

    def _answer(self, answer: Answer) -> None:
        api, version = self._asked.pop(answer.token)
        entity = messages.response_entity(API_KEYS[api], version)
        self.answers[answer.token] = messages.decode(entity, bytes(messages.encode(entity, answer.body)))

    def _tick(self) -> None:
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= self.now_ms:
            self.perform(self.shard.tick(self.now_ms))
