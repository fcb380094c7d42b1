"""Real clients (librdkafka) that write, read, copy and commit through whatever happens, and note what they were told.

Each is a thread with one loop, which makes a new client when the old one came to its end by a fatal error. What it is
for stands in its name: two clients of one name never follow each other, since numbers begin anew with each.
"""

import logging
import random
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.e2e.faults.history import Recorder

# Fatal errors too: they are what clients are given here.
_SILENT = logging.getLogger("tests.e2e.faults.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
SETTINGS: dict[str, Any] = {
    "log_level": 0,
    "logger": _SILENT,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "socket.timeout.ms": 8000,
    "topic.metadata.refresh.interval.ms": 10_000,
    # A client that begins anew when it reaches nobody still waits, in librdkafka 2.16, for the handles of coordinators
    # that it knew before, for ever (its issue 5511).
    "metadata.recovery.strategy": "none",
}
PADDING = "|" + "x" * 80
TRANSACTION_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 6000
_CALL_SECONDS_MAX = 8.0
# A client that gets nowhere for so long is given up.
PATIENCE_SECONDS = 16.0
_OUTSTANDING_MAX = 4000
_POLL_RECORDS_MAX = 500


def refuse_reset(error: KafkaError) -> None:
    """Nothing is ever deleted: an offset that is said not to be there is a defect, and must not be passed over."""
    assert error.code() != KafkaError._AUTO_OFFSET_RESET, str(error)


def value_of(message: Any) -> str:
    """Without the padding."""
    text: str = message.value().decode()
    return text.partition("|")[0]


class Client(threading.Thread):
    """A loop of clients."""

    def __init__(self, name: str, bootstrap: str, recorder: Recorder) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.recorder = recorder
        self.ended = threading.Event()
        self.lives = 0

    def run(self) -> None:
        while not self.ended.is_set():
            self.lives += 1
            try:
                self.live(f"{self.name}.{self.lives}")
            except Exception as problem:
                # A fatal error that is raised while deliveries are told of leaves confluent-kafka wrapped in another.
                known = problem.__cause__ if isinstance(problem, SystemError) else problem
                if not isinstance(known, KafkaException):
                    # Of the test itself.
                    self.recorder.write("defect", node=0, what=f"{self.name}: {traceback.format_exc()}")
                    return
                self.recorder.write("note", who=self.name, what=str(known))
                self.ended.wait(0.2)

    def live(self, life: str) -> None:
        """Until it has to end. Raises KafkaException."""
        raise NotImplementedError

    def committed(self, consumer: Consumer, partitions: list[TopicPartition], group: str) -> list[TopicPartition]:
        """Where the group is in each, 0 where it never was. Raises KafkaException where nobody says so for long: then
        the partitions have to be let go again."""
        if not partitions:
            # A member may be given nothing, where another one still has it all.
            return []
        began_s = self.recorder.now_s
        while self.recorder.now_s - began_s < 3 * _CALL_SECONDS_MAX and not self.ended.is_set():
            try:
                found: list[TopicPartition] = consumer.committed(partitions, _CALL_SECONDS_MAX)
            except KafkaException:
                found = []
            if found and all(one.error is None for one in found):
                for one in found:
                    one.offset = max(0, one.offset)
                    tp = f"{one.topic}-{one.partition}"
                    self.recorder.write("committed", g=group, tp=tp, o=one.offset, began=began_s)
                return found
            self.ended.wait(0.2)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def finish(self, seconds_max: float = 150) -> None:
        self.ended.set()
        self.join(seconds_max)
        if self.is_alive():
            self.recorder.write("stuck", what=f"the client {self.name} does not end", after_ms=int(seconds_max * 1000))


class PlainWriter(Client):
    """An idempotent producer with acks=all."""

    def __init__(
        self, name: str, bootstrap: str, recorder: Recorder, topic: str, partitions: int, rate_per_s: int
    ) -> None:
        super().__init__(name, bootstrap, recorder)
        self._topic, self._partitions, self._rate_per_s = topic, partitions, rate_per_s
        self._outstanding = 0
        self._acked: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._failed: dict[int, list[int]] = defaultdict(list)
        self._why = ""

    def live(self, life: str) -> None:
        producer = Producer(
            {
                **SETTINGS,
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "on_delivery": self._delivered,
            }
        )
        numbers = [0] * self._partitions
        burst = 5
        started_s, count = time.monotonic(), 0
        try:
            while not self.ended.is_set():
                for partition in range(self._partitions):
                    if self._outstanding >= _OUTSTANDING_MAX:
                        break
                    self._send(producer, life, partition, numbers[partition], burst)
                    numbers[partition] += burst
                    count += burst
                producer.poll(0)
                self._note(life)
                ahead_s = count / self._rate_per_s - (time.monotonic() - started_s)
                # After a hold-up it goes on at its rate, and does not make up for what it missed.
                started_s += max(0.0, -ahead_s - 1)
                self.ended.wait(max(0.01, min(ahead_s, 1)))
                if self._is_over:
                    return
        finally:
            self._flush(producer)
            self._note(life)

    def _flush(self, producer: Producer) -> None:
        try:
            producer.flush(120)
        except:  # noqa: E722
            # After a fatal error the client raises an error that is no exception, and that nothing else catches.
            self.recorder.write("note", who=self.name, what="fatal")

    def _send(self, producer: Producer, life: str, partition: int, first: int, count: int) -> None:
        self.recorder.write("sent", w=life, tp=f"{self._topic}-{partition}", s=[first, first + count - 1])
        self._outstanding += count
        for number in range(first, first + count):
            producer.produce(self._topic, f"{life}:{number}{PADDING}", partition=partition, key=str(number))

    @property
    def _is_over(self) -> bool:
        """After a failure order is not promised any more: a new producer begins."""
        return bool(self._why)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        self._outstanding -= 1
        number = int(message.key())
        if error is None:
            self._acked[message.partition()].append((number, message.offset()))
        else:
            self._failed[message.partition()].append(number)
            self._why = str(error)

    def _note(self, life: str) -> None:
        acked, self._acked = self._acked, defaultdict(list)
        failed, self._failed = self._failed, defaultdict(list)
        for partition, pairs in acked.items():
            numbers, offsets = zip(*pairs, strict=True)
            self.recorder.write("acked", w=life, tp=f"{self._topic}-{partition}", s=numbers, o=offsets)
        for partition, numbers_failed in failed.items():
            self.recorder.write(
                "failed", w=life, tp=f"{self._topic}-{partition}", s=sorted(numbers_failed), why=self._why
            )

    def run(self) -> None:
        while not self.ended.is_set():
            self._why = ""
            self._outstanding = 0
            self.lives += 1
            try:
                self.live(f"{self.name}.{self.lives}")
            except (KafkaException, BufferError) as problem:
                self.recorder.write("note", who=self.name, what=str(problem))
            except Exception:
                # Of the test itself.
                self.recorder.write("defect", node=0, what=f"{self.name}: {traceback.format_exc()}")
                return


class Transactional(Client):
    """What transactional writers and copiers share."""

    def make_producer(self) -> Producer:
        producer = Producer(
            {
                **SETTINGS,
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
            }
        )
        self.retried(producer.init_transactions)
        return producer

    def retried(self, call: Callable[[float], Any]) -> None:
        deadline_s = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                call(_CALL_SECONDS_MAX)
                return
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > deadline_s:
                    raise

    def end(self, producer: Producer, commit: Callable[[], None] | None) -> str:
        """Commits, or aborts where there is nothing to commit; how it ended. Raises KafkaException where that is not
        known, and this producer is of no more use."""
        if commit is not None:
            try:
                commit()
                return "committed"
            except KafkaException as problem:
                if not problem.args[0].txn_requires_abort():
                    raise
        self.retried(producer.abort_transaction)
        return "aborted"


class TransactionalWriter(Transactional):
    """Records in several partitions at a time, some of them given up on purpose."""

    def __init__(self, name: str, bootstrap: str, recorder: Recorder, topic: str, partitions: int, seed: int) -> None:
        super().__init__(name, bootstrap, recorder)
        self._topic, self._partitions = topic, partitions
        self._chance = random.Random(seed)

    def live(self, life: str) -> None:
        producer = self.make_producer()
        number = 0
        while not self.ended.is_set():
            self._transact(producer, life, number)
            number += 1
            self.ended.wait(self._chance.uniform(0.01, 0.1))

    def _transact(self, producer: Producer, life: str, number: int) -> None:
        count = self._chance.randint(2, 30)
        records = [(self._chance.randrange(self._partitions), index) for index in range(count)]
        placed: dict[int, list[tuple[int, int]]] = defaultdict(list)

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                placed[message.partition()].append((int(message.key()), message.offset()))

        outcome = "unknown"
        try:
            producer.begin_transaction()
            for partition, index in records:
                producer.produce(
                    self._topic,
                    f"{life}:{number}:{index}{PADDING}",
                    partition=partition,
                    key=str(index),
                    on_delivery=delivered,
                )
            if self._chance.random() < 0.2:
                producer.flush(_CALL_SECONDS_MAX)
                outcome = self.end(producer, None)
            else:
                outcome = self.end(producer, lambda: self.retried(producer.commit_transaction))
        finally:
            named = [[f"{self._topic}-{partition}", index] for partition, index in records]
            for partition, pairs in placed.items():
                indexes, offsets = zip(*pairs, strict=True)
                self.recorder.write("placed", w=life, n=number, tp=f"{self._topic}-{partition}", s=indexes, o=offsets)
            self.recorder.write("txn", w=life, n=number, of=named, out=outcome)


class Copier(Transactional):
    """Reads what is committed in one topic and writes it to another, with its own progress, exactly once.

    What it has in hand is of the generation in which it was given the partitions, and commits as that: another one may
    begin, and librdkafka tell of it, before the transaction ends.
    """

    def __init__(
        self, name: str, bootstrap: str, recorder: Recorder, source: str, target: str, partitions: int, group: str
    ) -> None:
        super().__init__(name, bootstrap, recorder)
        self._source, self._target, self._partitions, self._group = source, target, partitions, group
        self._chance = random.Random(name)
        self._generation: Any = None
        # By partition: up to where it is copied.
        self._copied: dict[int, int] = {}
        self._messages: list[Any] = []

    def live(self, life: str) -> None:
        self._messages.clear()
        producer = self.make_producer()
        consumer = Consumer(
            {
                **SETTINGS,
                "bootstrap.servers": self.bootstrap,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            consumer.subscribe([self._source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
            polled_s = time.monotonic()
            while not self.ended.is_set() and time.monotonic() - polled_s < PATIENCE_SECONDS:
                self._poll(consumer, self._chance.randint(1, _POLL_RECORDS_MAX))
                if self._messages:
                    self._copy(consumer, producer)
                    polled_s = time.monotonic()
        finally:
            consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = self.committed(consumer, partitions, self._group)
        consumer.assign(found)
        self._copied = {one.partition: one.offset for one in found}
        self._generation = consumer.consumer_group_metadata()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._messages.clear()

    def _poll(self, consumer: Consumer, count_max: int) -> None:
        """Some records, one by one: a rebalance then never comes between two that are already here."""
        message: Any = consumer.poll(0.2)
        while message is not None:
            error: KafkaError | None = message.error()
            if error is None:
                self._messages.append(message)
            else:
                refuse_reset(error)
            if len(self._messages) >= count_max:
                break
            message = consumer.poll(0)

    def _copy(self, consumer: Consumer, producer: Producer) -> None:
        messages, self._messages = self._messages, []
        producer.begin_transaction()
        for one in messages:
            value = f"{one.partition()}:{one.offset()}{PADDING}"
            producer.produce(self._target, value, partition=one.offset() % self._partitions)
        ends = {one.partition(): one.offset() + 1 for one in messages}
        offsets = [TopicPartition(self._source, partition, offset) for partition, offset in ends.items()]

        def commit() -> None:
            self.retried(lambda seconds: producer.send_offsets_to_transaction(offsets, self._generation, seconds))
            self.retried(producer.commit_transaction)

        is_given_up = self._chance.random() < 0.1
        if is_given_up:
            producer.flush(_CALL_SECONDS_MAX)
        outcome = self.end(producer, None if is_given_up else commit)
        self.recorder.write("copied", w=self.name, count=len(messages), out=outcome)
        for partition, end in ends.items():
            if outcome == "committed":
                self.recorder.write("commit", g=self._group, tp=f"{self._source}-{partition}", o=end)
                self._copied[partition] = end
            else:
                consumer.seek(TopicPartition(self._source, partition, self._copied[partition]))
