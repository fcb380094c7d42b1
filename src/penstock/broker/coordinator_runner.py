"""The shell around one coordinator shard: the part that group and transaction coordinators have in common.

A runner replays its partition's log into a shard, hands it requests and the passing of time, and performs the effects
in order. Records are replayed at once and appended at the end of the event loop's turn, all that came in it as one
batch (but for those of transactions, which need a batch of their own, and what no segment can hold); answers and
messages leave when the log that they rest on is committed. If an append fails, the shard is thrown away and loaded
anew; whoever waits is told to look for the coordinator again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Bytes, DiskError
from penstock.broker.deferred import answers_gathered
from penstock.broker.log_reader import read_batches
from penstock.cluster.partition.partition import Partition
from penstock.cluster.partition.verification import Verification
from penstock.coordinator.effects import NO_PRODUCER_ID, Answer, Append, CoordinatorRecord, Effect, Send
from penstock.coordinator.loading import LatestRecords
from penstock.log.end_marker import EndMarker, read_end_marker
from penstock.protocol.batch import TRANSACTIONAL, encode_batch
from penstock.protocol.messages import Struct
from penstock.protocol.records import encode_pairs, iterate_records

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.coordinators")

_FOUND_PER_TURN = 1000
_DECODED_PER_TURN = 100
_RELOAD_SECONDS = 1.0
_SLOW_SECONDS = 1.0


class Shard(Protocol):
    """What every coordinator core offers; its own requests come on top."""

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None: ...
    def replay_transaction_end(self, producer_id: int, is_committed: bool) -> None: ...
    def on_loaded(self, now_ms: int) -> list[Effect]: ...
    def tick(self, now_ms: int) -> list[Effect]: ...
    def next_deadline_ms(self) -> int | None: ...


S = TypeVar("S", bound=Shard)

# What a request asks of its shard, with the token of its answer and the time.
Invoke = Callable[[S, int, int], list[Effect]]
# Told once, and never within the call that it was given to: the answer, or why there is none.
Done = Callable[[Struct | None, Refused | None], None]


class ShardKind(NamedTuple, Generic[S]):
    """What tells the shards of one kind of coordinator from those of another."""

    make: Callable[[], S]
    encode: Callable[[CoordinatorRecord], tuple[bytes, bytes | None]]
    decode: Callable[[Bytes, Bytes | None], CoordinatorRecord | None]
    # Performs one `Send`; it may call back into the runner at once.
    send: Callable[["CoordinatorRunner[S]", Any], None]


class CoordinatorRunner(Generic[S]):
    def __init__(self, broker: "Broker", partition: Partition, kind: ShardKind[S]) -> None:
        self.partition = partition
        # Of the partition's leader: that of the coordinator too.
        self.epoch = partition.leader_epoch
        self._broker = broker
        self._kind = kind
        self._loop = asyncio.get_running_loop()
        self._now_ms = broker.clock.now_ms
        # None while it is being loaded.
        self._shard: S | None = None
        self._tokens = count()
        self._waiting: dict[int, Done] = {}
        # Of this turn of the loop: replayed but not yet in the log, and what may leave when they are.
        self._unwritten: list[Append] = []
        self._unsent: list[Answer | Send] = []
        self._is_write_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ms: int | None = None
        self._loading = self._loop.create_task(self._load())

    def call(self, invoke: Invoke[S], done: Done) -> None:
        """Tells `done` the answer, once it is committed. Raises Refused."""
        shard = self._shard
        if shard is None:
            raise Refused(ErrorCode.coordinator_load_in_progress, "the coordinator is reading its log")
        token = next(self._tokens)
        self._waiting[token] = done
        self._perform(invoke(shard, token, self._now_ms()))

    def handle(self, invoke: Invoke[S]) -> "asyncio.Future[Struct]":
        """The same for coroutines. Raises Refused, and so may the future."""
        future: asyncio.Future[Struct] = self._loop.create_future()

        def done(body: Struct | None, refusal: Refused | None) -> None:
            if future.done():
                return
            if refusal is None:
                assert body is not None
                future.set_result(body)
            else:
                future.set_exception(refusal)

        self.call(invoke, done)
        return future

    def handle_in_transaction(
        self, invoke: Invoke[S], producer_id: int, producer_epoch: int, verification: Verification
    ) -> "asyncio.Future[Struct]":
        """As `handle`, for a request whose records belong to the producer's transaction: they must not be too late for
        it, nor come before what was decided earlier."""
        self.write()
        try:
            error = self.partition.check_own_in_transaction(producer_id, producer_epoch, verification)
        except DiskError as problem:
            raise Refused(ErrorCode.coordinator_not_available, str(problem)) from problem
        if error:
            raise Refused(error, "the records are not part of an open transaction")
        future = self.handle(invoke)
        self.write()
        return future

    def end_transaction(
        self, marker: EndMarker, producer_id: int, producer_epoch: int, transaction_version: int
    ) -> ErrorCode:
        """Writes a transaction's marker, which the caller makes durable. Raises DiskError."""
        self.write()
        if self._shard is None:
            return ErrorCode.not_leader_or_follower
        now_ms = self._now_ms()
        error = self.partition.append_marker(marker, producer_id, producer_epoch, transaction_version, now_ms)
        if not error:
            self._shard.replay_transaction_end(producer_id, not marker.is_abort)
        return error

    def tell(self, invoke: Callable[[S, int], list[Effect]]) -> None:
        """For news that nobody waits for an answer to. While the log is being read there is nobody to be told."""
        if self._shard is not None:
            self._perform(invoke(self._shard, self._now_ms()))

    @property
    def shard(self) -> S | None:
        return self._shard

    @property
    def committed_shard(self) -> S | None:
        """The shard, if all that it knows is committed: what it says needs no waiting."""
        is_due = self._unwritten or (self._broker.commits.is_due(self.partition) and not self._is_committed())
        return None if is_due else self._shard

    def stop(self) -> None:
        self._loading.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _load(self) -> None:
        started_s = self._loop.time()
        try:
            shard = await self._replayed()
        except (DiskError, Refused) as problem:
            log.error("%s cannot be read, what it keeps has no coordinator: %s", self.partition.name, problem)
            self._timer = self._loop.call_later(_RELOAD_SECONDS, self._reload)
            return
        seconds = self._loop.time() - started_s
        if seconds > _SLOW_SECONDS:
            log.warning("%s took %.1f s to read, so long nothing was coordinated by it", self.partition.name, seconds)
        self._shard = shard
        self._perform(shard.on_loaded(self._now_ms()))

    async def _replayed(self) -> S:
        """A shard that knows what is in the log; others are served while a long one is read. Raises DiskError,
        Refused."""
        latest = LatestRecords()
        unyielding = 0
        for header, batch in read_batches(self.partition.log):
            if not header.is_control:
                producer_id = header.producer_id if header.attributes & TRANSACTIONAL else NO_PRODUCER_ID
                for record in iterate_records(batch, header):
                    if record.key is not None:
                        latest.note(record.key, record.value, producer_id)
            elif (marker := read_end_marker(batch, header)) is not None:
                latest.end_transaction(header.producer_id, not marker.is_abort)
            unyielding += header.record_count
            if unyielding >= _FOUND_PER_TURN:
                unyielding = 0
                await asyncio.sleep(0)
        shard = self._kind.make()
        for turn, (key, value, producer_id) in enumerate(latest):
            decoded = self._kind.decode(key, value)
            if decoded is not None:
                shard.replay(decoded, producer_id)
            if turn % _DECODED_PER_TURN == 0:
                await asyncio.sleep(0)
        return shard

    def _reload(self) -> None:
        self._loading = self._loop.create_task(self._load())

    def _perform(self, effects: list[Effect]) -> None:
        shard = self._shard
        assert shard is not None
        if not effects:
            self._schedule()
            return
        if not self._is_write_due:
            self._is_write_due = True
            self._loop.call_soon(self.write)
        for effect in effects:
            if isinstance(effect, Append):
                for record in effect.records:
                    shard.replay(record, effect.producer_id)
                self._unwritten.append(effect)
            else:
                self._unsent.append(effect)

    def write(self) -> None:
        """Ends the turn: its records go to the log, and its answers on their way."""
        self._is_write_due = False
        appends, self._unwritten = self._unwritten, []
        unsent, self._unsent = self._unsent, []
        if appends:
            if not self.partition.is_leading:
                self.resign()
                return
            now_ms = self._now_ms()
            try:
                for together in _neighbours(appends):
                    for batch in self._batches_of(together, now_ms):
                        self.partition.append_own(batch, now_ms)
            except (DiskError, Refused) as problem:
                self._fail(problem)
                return
        if self._shard is not None:
            self._schedule()
        if not unsent:
            return
        if not self._broker.commits.is_due(self.partition) or self._is_committed():
            self._release(unsent)
            return
        self._broker.commits.when_committed(
            [self.partition], None, lambda outcome: self._committed(outcome[self.partition], unsent)
        )

    def _is_committed(self) -> bool:
        """Whether there is nothing left to wait for."""
        partition_log = self.partition.log
        if self.partition.leader is not None:
            return self.partition.high_watermark >= partition_log.log_end_offset
        return partition_log.recovery_point >= partition_log.log_end_offset

    def _batches_of(self, appends: list[Append], now_ms: int) -> Iterator[bytearray]:
        """One, or as many as it takes for each to fit into a segment: what one append has stays together if it can."""
        records = [record for append in appends for record in append.records]
        producer_id = appends[0].producer_id
        batch = encode_batch(
            encode_pairs(list(map(self._kind.encode, records))),
            record_count=len(records),
            attributes=TRANSACTIONAL if producer_id != NO_PRODUCER_ID else 0,
            last_offset_delta=len(records) - 1,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=appends[0].producer_epoch,
        )
        if len(batch) <= self.partition.log.config.segment_bytes or len(records) == 1:
            yield batch
            return
        parts = appends if len(appends) > 1 else [appends[0]._replace(records=[record]) for record in records]
        middle = len(parts) // 2
        yield from self._batches_of(parts[:middle], now_ms)
        yield from self._batches_of(parts[middle:], now_ms)

    def _committed(self, error: ErrorCode, unsent: list[Answer | Send]) -> None:
        if not error:
            self._release(unsent)
        elif error == ErrorCode.not_leader_or_follower:
            self.resign()
        else:
            self._fail(f"it is not committed: {error.name}")

    def _release(self, unsent: list[Answer | Send]) -> None:
        with answers_gathered():
            for effect in unsent:
                if isinstance(effect, Send):
                    self._kind.send(self, effect.message)
                elif (done := self._waiting.pop(effect.token, None)) is not None:
                    done(effect.body, None)

    def resign(self) -> None:
        """Another node coordinates from now on: whoever waits has to ask there."""
        self.stop()
        self._forget(Refused(ErrorCode.not_coordinator, "another node coordinates this now"))

    def _fail(self, problem: DiskError | Refused | str) -> None:
        log.error("%s cannot be written, its coordinator is loaded anew: %s", self.partition.name, problem)
        self._forget(Refused(ErrorCode.coordinator_not_available, "the coordinator could not keep its state"))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_RELOAD_SECONDS, self._reload)

    def _forget(self, refusal: Refused) -> None:
        self._shard = None
        self._unwritten, self._unsent = [], []
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done(None, refusal)

    def _schedule(self) -> None:
        assert self._shard is not None
        deadline_ms = self._shard.next_deadline_ms()
        if self._timer is not None:
            if deadline_ms == self._timer_deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_deadline_ms = deadline_ms
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._now_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.tell(lambda shard, now_ms: shard.tick(now_ms))


def _neighbours(appends: list[Append]) -> list[list[Append]]:
    """Those that belong to no transaction stand together."""
    found: list[list[Append]] = []
    for append in appends:
        if found and found[-1][0].producer_id == append.producer_id == NO_PRODUCER_ID:
            found[-1].append(append)
        else:
            found.append([append])
    return found
