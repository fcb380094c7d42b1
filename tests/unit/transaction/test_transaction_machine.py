"""Producers that come and go, messages that are late or come twice, coordinators that fail: what must hold all the
same.

The reference is plain: a transaction is the pair of a producer id and an epoch (KIP-890); partitions keep what is
written under a pair apart until a marker ends it. Invariants 18 (all or nothing, across partitions) and 19 (one
outcome, which is the one that the producer was told); and at the end nothing is left open, and nobody waits.
"""

from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction.requests import TopicPartition, WriteMarkers
from tests.unit.transaction.coordinator import Coordinator

Pair = tuple[int, int]

IDS = ["t", "u"]
PARTITIONS: list[TopicPartition] = [("orders", 0), ("orders", 1), ("payments", 0)]
indexes = st.integers(0, 1000)
# Most things go as they should, or nothing would ever come about.
mostly = st.sampled_from([True, True, True, False])


class Partition:
    """What a partition does with batches and markers."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.open: dict[int, tuple[Pair, list[int]]] = {}
        self.committed: list[tuple[Pair, int]] = []
        self.aborted: list[tuple[Pair, int]] = []

    def is_open(self, pair: Pair) -> bool:
        return pair[0] in self.open and self.open[pair[0]][0] == pair

    def append(self, pair: Pair, record: int) -> bool:
        producer_id, epoch = pair
        if epoch < self.epochs.get(producer_id, -1):
            return False
        self.epochs[producer_id] = epoch
        known = self.open.setdefault(producer_id, (pair, []))
        assert known[0] == pair, "two transactions of one producer are open at once"
        known[1].append(record)
        return True

    def end(self, markers: WriteMarkers) -> bool:
        producer_id, epoch = markers.producer_id, markers.producer_epoch
        if markers.coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            return False
        self.coordinator_epochs[producer_id] = markers.coordinator_epoch
        current = self.epochs.get(producer_id, -1)
        if epoch < current or (epoch == current and producer_id in self.open):
            return False
        self.epochs[producer_id] = epoch
        pair, records = self.open.pop(producer_id, ((producer_id, epoch), []))
        ended = self.committed if markers.is_commit else self.aborted
        ended.extend((pair, record) for record in records)
        return True


class Client:
    """One life of a producer."""

    def __init__(self, transactional_id: str, *, is_two_phase: bool) -> None:
        self.transactional_id = transactional_id
        self.is_two_phase = is_two_phase
        self.pair: Pair | None = None
        # The transaction that its end is about, if that is not its own: one that it took over.
        self.kept: Pair | None = None
        self.unacknowledged: set[int] = set()
        self.has_failed_write = False
        self.is_over = False
        # What it asked for and has no answer to.
        self.ending: bool | None = None

    @property
    def transaction(self) -> Pair:
        assert self.pair is not None
        return self.kept or self.pair


class Message(NamedTuple):
    client: Client
    kind: str
    pair: Pair
    transaction: Pair
    partition: TopicPartition = PARTITIONS[0]
    record: int = 0
    commit: bool = False


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(transaction_two_phase_commit_enable="true")
        self.partitions = {partition: Partition() for partition in PARTITIONS}
        self.clients: list[Client] = []
        self.under_way: list[Message] = []
        self.markers: list[WriteMarkers] = []
        self.confirmations: list[WriteMarkers] = []
        # Who waits for which answer of this coordinator.
        self.waiting: dict[int, tuple[Client, Message | None]] = {}
        self.records = 0
        self.acknowledged: dict[Pair, list[int]] = {}
        self.told: dict[Pair, bool] = {}
        self.given: set[Pair] = set()

    # Producers

    @initialize(is_two_phase=st.booleans())
    def start_one_of_each(self, is_two_phase: bool) -> None:
        for transactional_id in IDS:
            self.start(transactional_id, is_two_phase, keeps=False, is_needed=False)

    @rule(transactional_id=st.sampled_from(IDS), is_two_phase=mostly, keeps=mostly, is_needed=st.booleans())
    def start(self, transactional_id: str, is_two_phase: bool, keeps: bool, is_needed: bool) -> None:
        if is_needed and any(one.transactional_id == transactional_id and not one.is_over for one in self.clients):
            return
        client = Client(transactional_id, is_two_phase=is_two_phase)
        self.clients.append(client)
        token = self.coordinator.send_init(
            transactional_id, enable2_pc=is_two_phase, keep_prepared_txn=keeps and is_two_phase
        )
        self.waiting[token] = client, None
        self.hear()

    @rule(which=indexes, partition=st.sampled_from(PARTITIONS), is_prompt=mostly)
    def write(self, which: int, partition: TopicPartition, is_prompt: bool) -> None:
        client = self.living(which)
        if client is None or client.pair is None or client.kept is not None or client.ending is not None:
            return
        self.records += 1
        client.unacknowledged.add(self.records)
        self.post(Message(client, "write", client.pair, client.pair, partition, self.records), is_prompt)

    @rule(which=indexes, commit=mostly, is_prompt=mostly)
    def end(self, which: int, commit: bool, is_prompt: bool) -> None:
        client = self.living(which)
        if client is None or client.pair is None:
            return
        if client.ending is not None:
            # It repeats itself, since it has no answer.
            commit = client.ending
        elif commit and (client.unacknowledged or client.has_failed_write or not self.has_written(client)):
            return
        client.ending = commit
        self.post(Message(client, "end", client.pair, client.transaction, commit=commit), is_prompt)

    # The network

    def post(self, message: Message, is_prompt: bool) -> None:
        if is_prompt:
            self.send(message)
        else:
            self.under_way.append(message)

    @rule(which=indexes)
    def deliver(self, which: int) -> None:
        if self.under_way:
            self.send(self.under_way.pop(which % len(self.under_way)))

    @rule(which=indexes)
    def deliver_twice(self, which: int) -> None:
        if self.under_way:
            self.send(self.under_way[which % len(self.under_way)])

    @rule(which=indexes, is_prompt=mostly)
    def write_markers(self, which: int, is_prompt: bool) -> None:
        self.markers += self.coordinator.sent
        self.coordinator.sent = []
        if self.markers:
            self.mark(self.markers.pop(which % len(self.markers)))
            if is_prompt:
                self.confirm_markers(len(self.confirmations) - 1, is_last=True)

    @rule(which=indexes, only=st.sampled_from(PARTITIONS))
    def write_some_markers_and_lose_the_rest_for_now(self, which: int, only: TopicPartition) -> None:
        self.markers += self.coordinator.sent
        self.coordinator.sent = []
        if self.markers:
            markers = self.markers[which % len(self.markers)]
            self.mark(markers._replace(partitions=tuple(one for one in markers.partitions if one == only)))

    @rule(duration_ms=st.sampled_from([1, 1, 1, 999, 1001, 61_000]))
    def advance(self, duration_ms: int) -> None:
        self.coordinator.advance(duration_ms)
        self.hear()

    @rule(are_markers_lost=st.booleans())
    def restart(self, are_markers_lost: bool) -> None:
        """The markers that the old coordinator sent may still arrive, or not."""
        self.markers = [] if are_markers_lost else self.markers + self.coordinator.sent
        self.coordinator.restart()
        for client, message in self.waiting.values():
            if message is None or message.kind == "write":
                # Its connection is gone. Whether the write got through it does not know, so it may not commit.
                client.has_failed_write = True
                client.is_over = client.is_over or message is None
        self.waiting.clear()

    # What comes of it

    def has_written(self, client: Client) -> bool:
        return client.transaction in self.acknowledged

    def living(self, which: int) -> Client | None:
        living = [client for client in self.clients if not client.is_over]
        return living[which % len(living)] if living else None

    def send(self, message: Message) -> None:
        coordinator, transactional_id = self.coordinator, message.client.transactional_id
        if message.kind == "end":
            token = coordinator.send_end(transactional_id, message.pair, commit=message.commit)
        elif self.partitions[message.partition].is_open(message.pair):
            self.append(message)
            return
        else:
            token = coordinator.send_add(transactional_id, message.pair, message.partition)
        self.waiting[token] = message.client, message
        self.hear()

    def mark(self, markers: WriteMarkers) -> None:
        written = tuple(one for one in markers.partitions if self.partitions[one].end(markers))
        self.confirmations.append(markers._replace(partitions=written))

    @rule(which=indexes, is_last=st.booleans())
    def confirm_markers(self, which: int, is_last: bool) -> None:
        if not self.confirmations:
            return
        which %= len(self.confirmations)
        confirmed = self.confirmations.pop(which) if is_last else self.confirmations[which]
        self.coordinator.perform(
            self.coordinator.shard.markers_written(
                confirmed.transactional_id,
                confirmed.producer_id,
                confirmed.producer_epoch,
                confirmed.partitions,
                self.coordinator.now_ms,
            )
        )
        self.hear()

    def hear(self) -> None:
        """Clients and partitions take the answers that are there."""
        for token in [token for token in self.waiting if token in self.coordinator.answers]:
            client, message = self.waiting.pop(token)
            answer = self.coordinator.answers.pop(token)
            if message is None:
                self.hear_init(client, answer)
            elif message.kind == "end":
                self.hear_end(client, message, answer)
            elif answer.errors[message.partition] == ErrorCode.none:
                self.append(message)
            else:
                self.fail_write(message)

    def hear_init(self, client: Client, answer: Any) -> None:
        if answer.error_code:
            assert answer.error_code == ErrorCode.concurrent_transactions
            client.is_over = True
            return
        client.pair = answer.producer_id, answer.producer_epoch
        if answer.ongoing_txn_producer_id != -1:
            client.kept = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
            assert client.kept in self.given, "it is told of the transaction that was prepared, as its producer knew it"
        self.given.add(client.pair)

    def hear_end(self, client: Client, message: Message, answer: Any) -> None:
        if answer.error_code == ErrorCode.none:
            assert self.told.setdefault(message.transaction, message.commit) == message.commit
        if client.pair != message.pair or client.is_over:
            return
        if answer.error_code == ErrorCode.none:
            client.pair = answer.producer_id, answer.producer_epoch
            self.given.add(client.pair)
            client.kept, client.ending, client.has_failed_write = None, None, False
            client.unacknowledged.clear()
        elif answer.error_code != ErrorCode.concurrent_transactions:
            assert answer.error_code in (
                ErrorCode.producer_fenced,
                ErrorCode.invalid_producer_id_mapping,
                ErrorCode.invalid_txn_state,
            )
            # To commit nothing is not allowed; all else means that somebody took its place.
            client.is_over = True

    def append(self, message: Message) -> None:
        if not self.partitions[message.partition].append(message.pair, message.record):
            self.fail_write(message)
            return
        self.acknowledged.setdefault(message.pair, []).append(message.record)
        if message.client.pair == message.pair:
            message.client.unacknowledged.discard(message.record)

    def fail_write(self, message: Message) -> None:
        if message.client.pair == message.pair:
            message.client.has_failed_write = True

    # What holds

    @invariant()
    def transactions_have_one_outcome_everywhere_and_it_is_the_one_told(self) -> None:
        committed = {pair for one in self.partitions.values() for pair, _ in one.committed}
        aborted = {pair for one in self.partitions.values() for pair, _ in one.aborted}
        assert not committed & aborted
        for pair, is_commit in self.told.items():
            assert pair not in (aborted if is_commit else committed)

    def teardown(self) -> None:
        """Faults end, everything arrives; those that wait for a decision get one."""
        while self.under_way:
            self.send(self.under_way.pop())
        for transactional_id in IDS:
            token = self.coordinator.send_init(transactional_id)
            self.waiting[token] = Client(transactional_id, is_two_phase=False), None
        for _ in range(6):
            self.markers += self.coordinator.sent
            self.coordinator.sent = []
            while self.markers:
                self.mark(self.markers.pop())
            while self.confirmations:
                self.confirm_markers(0, is_last=True)
            self.advance(1)
        assert self.waiting == {}, "somebody was never answered"
        for partition in self.partitions.values():
            assert partition.open == {}, "a transaction is left open, and readers wait for it for ever"
        self.transactions_have_one_outcome_everywhere_and_it_is_the_one_told()
        committed = {record for one in self.partitions.values() for _, record in one.committed}
        for pair, is_commit in self.told.items():
            assert not is_commit or set(self.acknowledged.get(pair, ())) <= committed


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
