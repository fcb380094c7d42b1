"""Transactional producers: transactions over several partitions, committed or aborted, some of which consume, transform
and produce, with the offsets of a group in the transaction."""

import asyncio
import contextlib
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.protocol.batch import TRANSACTIONAL
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record, build_batch
from tests.simulation.client import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    GROUP_KEY,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    PRODUCE,
    TRANSACTION_KEY,
    TXN_OFFSET_COMMIT,
    SimClient,
    Unavailable,
    records_of,
)
from tests.simulation.cluster import SimCluster
from tests.simulation.history import ABORTED, COMMITTED, History, Transaction, Violation, Write
from tests.simulation.workload_produce import RETRIABLE, Stop, produce_body

_TRANSACTION_TIMEOUT_MS = 6000
_GIVE_UP_SECONDS = 15.0
_GHOST = b"of a ghost"
# The producer was put out, or does not know where it stands: it must get an epoch anew. What became of its transaction
# is the coordinator's to say.
_FENCED = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_txn_state,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.unknown_producer_id,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.transactional_id_not_found,
        ErrorCode.transaction_abortable,
    }
)


class Lost(Exception):
    """The transaction cannot go on: the producer begins again from InitProducerId."""


class TransactionalProducer:
    """With `is_new`, as clients that know KIP-890: partitions join by the first batch, and each end bumps the epoch."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        stop: Stop,
        name: str,
        *,
        topic: str,
        partitions: int,
        is_new: bool,
        source: str | None = None,
    ) -> None:
        """`source` is a topic whose partition 0 is copied, with its offsets in the transactions."""
        self.client = SimClient(cluster, name)
        self._history = history
        self._stop = stop
        self._topic = topic
        self._partitions = partitions
        self._is_new = is_new
        self._source = None if source is None else (source, 0)
        self.group = f"group-of-{name}"
        self._id = f"tx-{name}"
        self._producer_id = self._epoch = -1
        # What the instance before had, at its beginning.
        self._former: tuple[int, int] | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()
        self._numbers: dict[tuple[str, int], int] = {}
        self.is_done = False
        self.client.run(self._run)

    async def _run(self) -> None:
        pace_s = self.client.random.choice((0.2, 0.5, 1.2)) * self.client.cluster.pace
        while not self._stop.is_set:
            if self._producer_id < 0 and not await self._initialise():
                continue
            transaction = Transaction(self.client.name, len(self._history.transactions))
            self._history.transactions.append(transaction)
            try:
                await self._transact(transaction)
            except (Lost, Unavailable):
                self._producer_id = -1
            transaction.is_ended = True
            await self.client.pause(pace_s)
        # Whatever it left open is put to an end by its successor.
        while self._producer_id < 0 and not await self._initialise():
            pass
        self.is_done = True

    async def _initialise(self) -> bool:
        body = Struct(
            transactional_id=self._id,
            transaction_timeout=_TRANSACTION_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=False,
            keep_prepared_txn=False,
        )
        try:
            answer = await self.client.ask_coordinator(TRANSACTION_KEY, self._id, INIT_PRODUCER_ID, 5, body)
        except Unavailable:
            await self.client.pause(0.2)
            return False
        if answer.error_code:
            await self.client.pause(0.2)
            return False
        if self._former is not None and self.client.random.random() < 0.3:
            former = self._former
            self.client.run(lambda: self._haunt(*former))
        self._former = (answer.producer_id, answer.producer_epoch)
        self._producer_id, self._epoch = self._former
        self._sequences.clear()
        return True

    async def _haunt(self, producer_id: int, epoch: int) -> None:
        """As the instance before this one, which does not know that it was replaced."""
        key = (self._topic, self.client.random.randrange(self._partitions))
        batch = build_batch(
            [Record(0, 0, None, _GHOST)],
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )
        body = produce_body(key, bytes(batch), acks=-1, transactional_id=self._id)
        with contextlib.suppress(Unavailable):
            answer = await self.client.ask(await self.client.leader_of(key), PRODUCE, body, 12 if self._is_new else 11)
            written = answer.responses[0].partition_responses[0]
            if written.error_code:
                return
            # That may be the offset of a batch which the one before wrote itself: it has the same sequence number.
            found = await self.client.fetch(key, written.base_offset, max_wait_ms=0)
            if any(record.value == _GHOST for _, record in records_of(found.records)):
                raise Violation(19, "fencing", f"{key} took a batch of epoch {epoch} of producer {producer_id}")

    async def _transact(self, transaction: Transaction) -> None:
        chance = self.client.random
        self._added.clear()
        consumed = None if self._source is None else await self._consume()
        if self._source is not None and consumed is None:
            transaction.outcome = ABORTED
            return
        keys = [(self._topic, index) for index in range(self._partitions) if chance.random() < 0.7]
        for key in keys or [(self._topic, 0)]:
            await self._produce(key, transaction)
        if consumed is not None:
            assert self._source is not None
            transaction.offsets[self._source] = consumed
            await self._send_offsets(consumed)
        if chance.random() < 0.1:
            # Forgets about it: its time-out must end it, or the next InitProducerId.
            if chance.random() < 0.5:
                await asyncio.sleep(_TRANSACTION_TIMEOUT_MS / 1000 + 1)
            transaction.outcome = ABORTED
            raise Lost
        if chance.random() < 0.1:
            # Ends while it asks for the commit: whether it was heard, the coordinator must know for good.
            body = self._end_body(is_commit=True)
            self.client.run(lambda: self._end_once(transaction, body))
            await self.client.pause(0.05)
            raise Lost
        await self._end(transaction, is_commit=chance.random() < 0.75)

    # Steps

    async def _produce(self, key: tuple[str, int], transaction: Transaction) -> None:
        number = self._numbers[key] = self._numbers.get(key, 0) + 1
        write = Write(
            f"{self.client.name} {key[1]} {number}".encode(), None, key, -1, self.client.name, number, transaction
        )
        self._history.sent(write)
        transaction.writes.append(write)
        if not self._is_new and key not in self._added:
            await self._add_partition(key)
        now_ms = 1_700_000_000_000 + int(self.client.now_s * 1000)
        batch = build_batch(
            [Record(0, now_ms, None, write.value)],
            attributes=TRANSACTIONAL,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.get(key, 0),
        )
        body = produce_body(key, bytes(batch), acks=-1, transactional_id=self._id)

        async def attempt() -> Any:
            try:
                answer = await self.client.ask(
                    await self.client.leader_of(key), PRODUCE, body, 12 if self._is_new else 11
                )
            except Unavailable:
                self.client.leaders.pop(key, None)
                raise
            return answer.responses[0].partition_responses[0]

        def on_retriable() -> None:
            self.client.leaders.pop(key, None)

        answer = await self._insist(attempt, on_retriable)
        self._sequences[key] = self._sequences.get(key, 0) + 1
        if answer.base_offset >= 0:
            self._history.acked(write, answer.base_offset)

    async def _add_partition(self, key: tuple[str, int]) -> None:
        body = Struct(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[Struct(name=key[0], partitions=[key[1]])],
        )

        async def attempt() -> Any:
            answer = await self.client.ask_coordinator(TRANSACTION_KEY, self._id, ADD_PARTITIONS_TO_TXN, 3, body)
            (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            return Struct(error_code=result.partition_error_code)

        await self._insist(attempt)
        self._added.add(key)

    def _end_body(self, *, is_commit: bool) -> Struct:
        return Struct(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )

    def _ask_end(self, body: Struct) -> Any:
        version = 5 if self._is_new else 4
        return self.client.ask_coordinator(TRANSACTION_KEY, self._id, END_TXN, version, body)

    async def _end_once(self, transaction: Transaction, body: Struct) -> None:
        with contextlib.suppress(Unavailable):
            answer = await self._ask_end(body)
            if not answer.error_code:
                transaction.outcome = COMMITTED

    async def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        body = self._end_body(is_commit=is_commit)
        if not is_commit:
            # Whatever is answered: nobody has ever asked for it to be committed.
            transaction.outcome = ABORTED

        answer = await self._insist(lambda: self._ask_end(body))
        transaction.outcome = COMMITTED if is_commit else ABORTED
        if self._is_new and answer.producer_id >= 0:
            if (answer.producer_id, answer.producer_epoch) != (self._producer_id, self._epoch):
                self._sequences.clear()
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _insist(self, attempt: Any, on_retriable: Any = None) -> Any:
        """Asks until there is an answer. Raises Lost where the transaction is over."""
        give_up_s = self.client.now_s + _GIVE_UP_SECONDS
        while self.client.now_s < give_up_s:
            try:
                answer = await attempt()
            except Unavailable:
                await self.client.pause(0.2)
                continue
            code = ErrorCode(answer.error_code)
            if not code:
                return answer
            if code in _FENCED:
                raise Lost
            if code not in RETRIABLE:
                raise Violation(19, "one outcome", f"{self.client.name} was told {code.name}")
            if on_retriable is not None:
                on_retriable()
            await self.client.pause(0.1)
        raise Lost

    # Consuming

    async def _consume(self) -> int | None:
        """The offset after what this transaction has read of its source; None where there is nothing new."""
        assert self._source is not None
        offset = await self._committed_offset()
        answer = await self.client.fetch(self._source, offset, isolation_level=1, max_wait_ms=200)
        if answer.error_code:
            self.client.leaders.pop(self._source, None)
            return None
        last = max((record.offset for _, record in records_of(answer.records)), default=-1)
        return last + 1 if last >= offset else None

    async def _committed_offset(self) -> int:
        """Raises Unavailable."""
        assert self._source is not None
        topics = [Struct(name=self._source[0], partition_indexes=[0])]
        body = Struct(
            groups=[Struct(group_id=self.group, member_id=None, member_epoch=-1, topics=topics)], require_stable=True
        )
        answer = await self.client.ask_coordinator(GROUP_KEY, self.group, OFFSET_FETCH, 9, body)
        (group,) = answer.groups
        partition = group.topics[0].partitions[0]
        if group.error_code or partition.error_code:
            raise Unavailable("offsets are not stable yet")
        self._check_offset(partition.committed_offset)
        return max(0, int(partition.committed_offset))

    def _check_offset(self, offset: int) -> None:
        """18: the offsets are those of the last transaction that was committed, or of one that nobody knows of."""
        assert self._source is not None
        allowed = [-1]
        for transaction in self._history.transactions:
            if transaction.producer != self.client.name or self._source not in transaction.offsets:
                continue
            if transaction.outcome == COMMITTED:
                allowed = [transaction.offsets[self._source]]
            elif transaction.outcome != ABORTED:
                allowed.append(transaction.offsets[self._source])
        if offset not in allowed:
            raise Violation(18, "all or nothing", f"{self.group} is at {offset}; it can be at {allowed}")

    async def _send_offsets(self, offset: int) -> None:
        assert self._source is not None
        if not self._is_new:
            adding = Struct(
                transactional_id=self._id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=self.group,
            )

            async def add() -> Any:
                return await self.client.ask_coordinator(TRANSACTION_KEY, self._id, ADD_OFFSETS_TO_TXN, 3, adding)

            await self._insist(add)
        partition = Struct(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
        body = Struct(
            transactional_id=self._id,
            group_id=self.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[Struct(name=self._source[0], partitions=[partition])],
        )

        async def attempt() -> Any:
            version = 5 if self._is_new else 3
            answer = await self.client.ask_coordinator(GROUP_KEY, self.group, TXN_OFFSET_COMMIT, version, body)
            return answer.topics[0].partitions[0]

        await self._insist(attempt)
