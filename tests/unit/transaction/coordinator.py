"""A transaction coordinator with a shell in memory, for tests.

Requests and answers go through their bytes in the version asked for, and so do records. The markers that the
coordinator sends lie in `sent` until the test writes them.
"""

from itertools import count
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.settings import NodeSettings
from penstock.coordinator.effects import Answer, Append, Effect, Send
from penstock.coordinator.loading import LatestRecords
from penstock.coordinator.requests import RequestContext
from penstock.coordinator.transaction.records import Transaction, decode_record, encode_record
from penstock.coordinator.transaction.requests import Addition, TopicPartition, WriteMarkers
from penstock.coordinator.transaction.shard import TransactionShard
from penstock.coordinator.transaction.states import ENTERED_FROM, TransactionState
from penstock.coordinator.transaction.views import TransactionFilter
from penstock.protocol import messages
from penstock.protocol.messages import Struct

API_KEYS = {"init_producer_id": 22, "end_txn": 26, "describe_transactions": 65}
NEWEST = {"init_producer_id": 6, "end_txn": 5, "describe_transactions": 0}
START_MS = 1_000_000
P0: TopicPartition = ("orders", 0)
P1: TopicPartition = ("orders", 1)
OFFSETS: TopicPartition = ("__consumer_offsets", 7)


class CountedIds:
    def __init__(self, first: int = 100) -> None:
        self._ids = count(first)
        self.is_dry = False

    def take(self) -> int | None:
        return None if self.is_dry else next(self._ids)


class Coordinator:
    def __init__(self, **overrides: Any) -> None:
        """`overrides` are settings, with underscores for dots."""
        self.settings = NodeSettings({name.replace("_", "."): str(value) for name, value in overrides.items()})
        self.producer_ids = CountedIds()
        self.now_ms = START_MS
        self.epoch = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[int, Any] = {}
        self.sent: list[WriteMarkers] = []
        # Everything performed, in order; tests that care clear it first.
        self.performed: list[Effect] = []
        self.states: dict[str, Transaction] = {}
        self._asked: dict[int, tuple[str, int] | None] = {}
        self._tokens = count(1)
        self.shard = TransactionShard(self.settings, self.producer_ids, self.epoch)
        self.perform(self.shard.on_loaded(self.now_ms))

    # Requests

    def send(self, api: str, version: int | None = None, **fields: Any) -> int:
        """Sends a request; its answer will stand in `answers` under the token returned."""
        version = NEWEST[api] if version is None else version
        entity = messages.request_entity(API_KEYS[api], version)
        request = messages.decode(entity, bytes(messages.encode(entity, Struct(**fields))))
        token = next(self._tokens)
        self._asked[token] = (api, version)
        context = RequestContext(version, "client", "/10.0.0.1")
        self.perform(getattr(self.shard, api)(token, request, context, self.now_ms))
        return token

    def send_add(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        verify_only: bool = False,
        transaction_version: int = 2,
    ) -> int:
        token = next(self._tokens)
        self._asked[token] = None
        addition = Addition(transactional_id, *producer, frozenset(partitions), verify_only, transaction_version)
        self.perform(self.shard.add_partitions(token, addition, self.now_ms))
        return token

    def ask(self, api: str, version: int | None = None, **fields: Any) -> Any:
        """Sends a request that is answered at once."""
        return self.answers.pop(self.send(api, version, **fields))

    def init(self, transactional_id: str = "t", version: int | None = None, **fields: Any) -> Any:
        """InitProducerId, whose answer comes at once; markers that it has to wait for are written."""
        token = self.send_init(transactional_id, version, **fields)
        self.write_markers()
        return self.answers.pop(token)

    def send_init(self, transactional_id: str = "t", version: int | None = None, **fields: Any) -> int:
        asked = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1, **fields}
        return self.send("init_producer_id", version, transactional_id=transactional_id, **asked)

    def producer(self, transactional_id: str = "t", **fields: Any) -> tuple[int, int]:
        answer = self.init(transactional_id, **fields)
        assert answer.error_code == ErrorCode.none
        return answer.producer_id, answer.producer_epoch

    def add(self, transactional_id: str, producer: tuple[int, int], *partitions: TopicPartition, **how: Any) -> Any:
        """The one error of all partitions, or the error of each."""
        errors = self.answers.pop(self.send_add(transactional_id, producer, *partitions, **how)).errors
        return next(iter(errors.values())) if len(set(errors.values())) == 1 else errors

    def send_end(
        self, transactional_id: str, producer: tuple[int, int], *, commit: bool = True, version: int | None = None
    ) -> int:
        return self.send(
            "end_txn",
            version,
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )

    def end(self, transactional_id: str, producer: tuple[int, int], **how: Any) -> Any:
        return self.answers.pop(self.send_end(transactional_id, producer, **how))

    def describe(self, transactional_id: str = "t") -> Any:
        (state,) = self.ask("describe_transactions", transactional_ids=[transactional_id]).transaction_states
        return state

    def listed(self, **fields: Any) -> list[tuple[str, str]]:
        chosen = TransactionFilter(Struct(**{"state_filters": (), "producer_id_filters": (), **fields}))
        (answer,) = self.shard.list_transactions(next(self._tokens), chosen, self.now_ms)
        assert isinstance(answer, Answer)
        return [(one.transactional_id, one.transaction_state) for one in answer.body.transaction_states]

    # What the world does

    def write_markers(self, *partitions: TopicPartition) -> list[WriteMarkers]:
        """Confirms the markers sent so far, for these partitions or for all."""
        written, self.sent = self.sent, []
        for one in written:
            confirmed = partitions or one.partitions
            self.perform(
                self.shard.markers_written(
                    one.transactional_id, one.producer_id, one.producer_epoch, confirmed, self.now_ms
                )
            )
        return written

    def advance(self, duration_ms: int) -> None:
        """Lets time pass, with a tick whenever the shard wants one."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.perform(self.shard.tick(self.now_ms))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Another coordinator takes over: it knows what is in the log and nothing else. Whoever waited is not answered,
        markers that were not written are lost."""
        self.epoch += 1
        self.sent = []
        self._asked.clear()
        latest = LatestRecords()
        for key, value in self.log:
            latest.note(key, value)
        self.shard = TransactionShard(self.settings, self.producer_ids, self.epoch)
        for key, value, _ in latest:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record)
        self.perform(self.shard.on_loaded(self.now_ms))

    def state_of(self, transactional_id: str = "t") -> TransactionState:
        return self.states[transactional_id].state

    # The shell

    def perform(self, effects: list[Effect]) -> None:
        assert not any(isinstance(effect, Append) for effect in effects[1:]), "what is decided goes into one batch"
        for effect in effects:
            self.performed.append(effect)
            if isinstance(effect, Append):
                self._append(effect)
            elif isinstance(effect, Send):
                self.sent.append(effect.message)
            else:
                self._answer(effect)

    def _append(self, append: Append) -> None:
        assert append.records, "a batch has records"
        for record in append.records:
            key, value = encode_record(record)
            self.log.append((key, value))
            decoded = decode_record(key, value)
            assert decoded is not None
            assert decoded.key == record.key
            if record.value is None:
                assert decoded.value is None
                del self.states[record.key]
            else:
                assert decoded.value == record.value._replace(last_producer_epoch=-1)
                known = self.states.get(record.key)
                assert (None if known is None else known.state) in ENTERED_FROM[record.value.state]
                self.states[record.key] = record.value
            # As the runner does: what was decided, not what would be read back.
            self.shard.replay(record)

    def _answer(self, answer: Answer) -> None:
        asked = self._asked.pop(answer.token)
        body: Any = answer.body
        if asked is not None:
            entity = messages.response_entity(API_KEYS[asked[0]], asked[1])
            body = messages.decode(entity, bytes(messages.encode(entity, answer.body)))
        self.answers[answer.token] = body
