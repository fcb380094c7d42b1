"""The door of the transaction coordinator: one object per partition of `__transaction_state`.

Every method takes the token its answer will carry, what is asked, and the time; it returns effects for the shell to
perform in order (`penstock.coordinator.effects` has the shell's duties). One more is its own: a `WriteMarkers` that was
sent is to be carried out until every partition has its marker, however often that takes, and each that has is told by
`markers_written`. A partition whose topic is gone counts as written.

While an end is under way nothing else can be decided for its id. Kafka turns such requests away, and clients come back
after 20 to 100 ms; here they wait in the shard, and are decided in the moment the end is complete, in the same batch.

Loading: `replay` for every record of the partition, then `on_loaded`, then requests. Afterwards `tick` whenever
`next_deadline_ms` has come.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import NO_PRODUCER_ID, Answer, Append, CoordinatorRecord, Effect, Send
from penstock.coordinator.requests import RequestContext, Settings
from penstock.coordinator.timers import Timers
from penstock.coordinator.transaction import ending, initialisation, membership, views
from penstock.coordinator.transaction.records import Transaction, completed
from penstock.coordinator.transaction.requests import Addition, ProducerIds, TopicPartition, WriteMarkers
from penstock.coordinator.transaction.states import ENTERED_FROM, PREPARING, RESTING, TransactionState
from penstock.coordinator.transaction.verdict import Decide
from penstock.protocol.messages import Struct

WAIT_MS_MAX = 1000
_WAITING_PER_ID_MAX = 100
_RETRY_MS = 500
_IDS_LOOKED_AT_PER_TICK = 2000
_EXPIRATION_TIMER = ("expiration",)


class Waiting(NamedTuple):
    """A request whose transaction has to be complete first."""

    token: int
    decide: Decide
    # What it is told if that takes too long.
    refusal: Struct
    until_ms: int


class Steps:
    """What decisions that follow one another come to: records, and what leaves once they are committed."""

    __slots__ = ("_leaving", "_records")

    def __init__(self) -> None:
        self._records: list[CoordinatorRecord] = []
        self._leaving: list[Answer | Send] = []

    def enter(self, transactional_id: str, entered: Transaction) -> Transaction:
        self._records.append(CoordinatorRecord(transactional_id, entered))
        return entered

    def leave(self, effect: Answer | Send) -> None:
        self._leaving.append(effect)

    def effects(self) -> list[Effect]:
        return [Append(self._records), *self._leaving] if self._records else [*self._leaving]


class TransactionShard:
    def __init__(self, settings: Settings, producer_ids: ProducerIds, coordinator_epoch: int) -> None:
        """`coordinator_epoch` is the leader epoch of the shard's partition."""
        self._settings = settings
        self._producer_ids = producer_ids
        self._coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}
        # Of the ids whose end is under way: the partitions whose marker is not confirmed.
        self._unmarked: dict[str, set[TopicPartition]] = {}
        self._waiting: dict[str, list[Waiting]] = {}
        self._timers = Timers()

    # Requests

    def init_producer_id(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        if error := initialisation.check(request, self._settings):
            return [Answer(token, initialisation.refused(error))]
        refusal = initialisation.refused(ErrorCode.concurrent_transactions)
        decide = initialisation.deciding(request, self._producer_ids)
        return self._handle(request.transactional_id, Waiting(token, decide, refusal, now_ms + WAIT_MS_MAX), now_ms)

    def add_partitions(self, token: int, addition: Addition, now_ms: int) -> list[Effect]:
        """The answer has `errors`, by partition."""
        if not addition.transactional_id:
            return [Answer(token, membership.answered(addition, ErrorCode.invalid_request))]
        refusal = membership.answered(addition, ErrorCode.concurrent_transactions)
        decide = membership.deciding(addition)
        return self._handle(addition.transactional_id, Waiting(token, decide, refusal, now_ms + WAIT_MS_MAX), now_ms)

    def verified(self, addition: Addition, now_ms: int) -> dict[TopicPartition, ErrorCode] | None:
        """What `add_partitions` would answer to an addition that is only to be verified; None where that takes more
        than a look."""
        current = self._transactions.get(addition.transactional_id)
        if not addition.transactional_id or (current is not None and current.state in PREPARING):
            return None
        answer, _ = membership.deciding(addition)(current, now_ms)
        assert answer is not None
        errors: dict[TopicPartition, ErrorCode] = answer.errors
        return errors

    def end_txn(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        if not request.transactional_id:
            return [Answer(token, ending.refused(ErrorCode.invalid_request))]
        refusal = ending.refused(ErrorCode.concurrent_transactions)
        decide = ending.deciding(request, context.version, self._producer_ids)
        return self._handle(request.transactional_id, Waiting(token, decide, refusal, now_ms + WAIT_MS_MAX), now_ms)

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        now_ms: int,
    ) -> list[Effect]:
        """These partitions have the marker that was sent for this producer."""
        unmarked = self._unmarked.get(transactional_id)
        if unmarked is None:
            return []
        current = self._transactions[transactional_id]
        if (current.producer_id, current.producer_epoch) != (producer_id, producer_epoch):
            return []
        unmarked.difference_update(partitions)
        if unmarked:
            return []
        steps = Steps()
        state: Transaction | None = steps.enter(transactional_id, completed(current, now_ms))
        for request in self._waiting.pop(transactional_id, ()):
            state = self._decide(transactional_id, state, request, steps, now_ms)
        return steps.effects()

    def unmarked(self, markers: WriteMarkers) -> tuple[TopicPartition, ...]:
        """The partitions that still need these markers; none if the end is complete, or another one is under way."""
        current = self._transactions.get(markers.transactional_id)
        if current is None or (current.producer_id, current.producer_epoch) != (
            markers.producer_id,
            markers.producer_epoch,
        ):
            return ()
        return tuple(sorted(self._unmarked.get(markers.transactional_id, ())))

    def describe_transactions(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        states = [self._describe(transactional_id) for transactional_id in request.transactional_ids]
        return [Answer(token, Struct(transaction_states=states))]

    def list_transactions(self, token: int, chosen: views.TransactionFilter, now_ms: int) -> list[Effect]:
        states = chosen.listed(self._transactions.items(), now_ms)
        return [Answer(token, Struct(transaction_states=states))]

    # The life of the shard

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Brings the state in line with a record of the log: while loading, and right after each append."""
        transactional_id: str = record.key
        transaction: Transaction | None = record.value
        if transaction is None:
            self._transactions.pop(transactional_id, None)
            self._unmarked.pop(transactional_id, None)
            return
        self._transactions[transactional_id] = transaction
        if transaction.state in PREPARING:
            self._unmarked[transactional_id] = set(transaction.partitions)
            return
        self._unmarked.pop(transactional_id, None)
        deadline_ms = transaction.deadline_ms
        if deadline_ms is not None:
            # It is not called off when the transaction ends: most end long before, and the next one only moves it.
            self._timers.schedule(("timeout", transactional_id), deadline_ms, partial(self._time_out, transactional_id))

    def replay_transaction_end(self, producer_id: int, is_committed: bool) -> None:
        """No transaction's records are in this log."""

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """Ends that were decided before are carried out again: how far that had come is not known."""
        self._schedule_expiration(now_ms)
        steps = Steps()
        for transactional_id in self._unmarked:
            self._carry_out(transactional_id, self._transactions[transactional_id], steps, now_ms)
        return steps.effects()

    def tick(self, now_ms: int) -> list[Effect]:
        """Does what is due. It stops at the first records, since what comes after them must see them replayed; the rest
        is due at once then."""
        effects: list[Effect] = []
        while (action := self._timers.pop_due(now_ms)) is not None:
            effects += action(now_ms)
            if any(isinstance(effect, Append) for effect in effects):
                break
        return effects

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    # Deciding

    def _handle(self, transactional_id: str, request: Waiting, now_ms: int) -> list[Effect]:
        steps = Steps()
        self._decide(transactional_id, self._transactions.get(transactional_id), request, steps, now_ms)
        return steps.effects()

    def _decide(
        self, transactional_id: str, current: Transaction | None, request: Waiting, steps: Steps, now_ms: int
    ) -> Transaction | None:
        """Decides the request, or puts it with those that wait. Returns the state it leaves."""
        while current is None or current.state not in PREPARING:
            answer, entered = request.decide(current, now_ms)
            if answer is not None:
                # Ahead of markers: whoever asked need not wait until they are under way.
                steps.leave(Answer(request.token, answer))
            if entered is not None:
                assert (None if current is None else current.state) in ENTERED_FROM[entered.state]
                current = self._carry_out(transactional_id, steps.enter(transactional_id, entered), steps, now_ms)
            if answer is not None:
                return current
            assert entered is not None, "without an answer there has to be something to wait for"
        self._wait(transactional_id, request, steps)
        return current

    def _carry_out(self, transactional_id: str, entered: Transaction, steps: Steps, now_ms: int) -> Transaction:
        """Sends the markers of an end that is decided. Where nothing was written it is complete at once."""
        if entered.state not in PREPARING:
            return entered
        if not entered.partitions:
            return steps.enter(transactional_id, completed(entered, now_ms))
        markers = WriteMarkers(
            transactional_id,
            entered.producer_id,
            entered.producer_epoch,
            self._coordinator_epoch,
            entered.state is TransactionState.PREPARE_COMMIT,
            tuple(sorted(entered.partitions)),
            entered.transaction_version,
        )
        steps.leave(Send(markers))
        return entered

    def _describe(self, transactional_id: str) -> Struct:
        if not transactional_id:
            return views.not_described(transactional_id, ErrorCode.invalid_request)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return views.not_described(transactional_id, ErrorCode.transactional_id_not_found)
        partitions = self._unmarked.get(transactional_id, transaction.partitions)
        return views.described(transactional_id, transaction, partitions)

    # Waiting

    def _wait(self, transactional_id: str, request: Waiting, steps: Steps) -> None:
        waiting = self._waiting.setdefault(transactional_id, [])
        if len(waiting) >= _WAITING_PER_ID_MAX:
            steps.leave(Answer(request.token, request.refusal))
            return
        waiting.append(request)
        if len(waiting) == 1:
            self._schedule_refusals(transactional_id, request.until_ms)

    def _schedule_refusals(self, transactional_id: str, at_ms: int) -> None:
        self._timers.schedule(("waiting", transactional_id), at_ms, partial(self._refuse_late, transactional_id))

    def _refuse_late(self, transactional_id: str, now_ms: int) -> list[Effect]:
        waiting = self._waiting.pop(transactional_id, [])
        late = [request for request in waiting if request.until_ms <= now_ms]
        on_time = [request for request in waiting if request.until_ms > now_ms]
        if on_time:
            self._waiting[transactional_id] = on_time
            self._schedule_refusals(transactional_id, on_time[0].until_ms)
        return [Answer(request.token, request.refusal) for request in late]

    # The passing of time

    def _time_out(self, transactional_id: str, now_ms: int) -> list[Effect]:
        current = self._transactions.get(transactional_id)
        deadline_ms = None if current is None else current.deadline_ms
        if current is None or deadline_ms is None:
            return []
        again_ms = deadline_ms
        if deadline_ms <= now_ms:
            aborted = initialisation.fenced(current, self._producer_ids, now_ms)
            if aborted is not None:
                steps = Steps()
                self._carry_out(transactional_id, steps.enter(transactional_id, aborted), steps, now_ms)
                return steps.effects()
            again_ms = now_ms + _RETRY_MS
        self._timers.schedule(("timeout", transactional_id), again_ms, partial(self._time_out, transactional_id))
        return []

    def _schedule_expiration(self, now_ms: int) -> None:
        at_ms = now_ms + self._settings["transaction.remove.expired.transaction.cleanup.interval.ms"]
        self._timers.schedule(_EXPIRATION_TIMER, at_ms, lambda at: self._expire(list(self._transactions), at))

    def _expire(self, transactional_ids: list[str], now_ms: int) -> list[Effect]:
        """Looks at a few ids at a time, so that nothing else waits for it."""
        updated_ms_max = now_ms - self._settings["transactional.id.expiration.ms"]
        expired = []
        for _ in range(min(_IDS_LOOKED_AT_PER_TICK, len(transactional_ids))):
            transactional_id = transactional_ids.pop()
            transaction = self._transactions.get(transactional_id)
            if transaction is not None and transaction.state in RESTING and transaction.update_ms <= updated_ms_max:
                expired.append(CoordinatorRecord(transactional_id, None))
        if transactional_ids:
            self._timers.schedule(_EXPIRATION_TIMER, now_ms, lambda at: self._expire(transactional_ids, at))
        else:
            self._schedule_expiration(now_ms)
        return [Append(expired)] if expired else []
