"""Copies a topic into another, exactly once, as a process that can be killed and stopped.

    python transactional_copier.py BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL-ID TRANSACTION-TIMEOUT-MS

Each turn reads some records, writes them to the other topic and commits the offsets, all in one transaction; one in ten
is aborted on purpose. An error that ends the producer ends the process: whoever started it starts another.

So does a call that comes to nothing for long. Kafka and Penstock leave a broker that is gone out of their metadata, for
which librdkafka 2.16 gives up its handle; where that was the coordinator of the group, `send_offsets_to_transaction`
goes on waiting for the old handle when the broker has long been back. A consumer's does so too, which shows by nothing
coming any more.
"""

import random
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

_SECONDS_MAX = 5.0
_TRIES_MAX = 2
_IDLE_SECONDS_MAX = 15.0
_ABORTED_ON_PURPOSE = 0.1
_SETTINGS = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    # When its only broker was away, librdkafka 2.16 begins anew from the bootstrap servers, but for the coordinators
    # that it remembers: it waits for their old handles forever.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Copier:
    def __init__(self, bootstrap: str, source: str, target: str, group: str, identity: str, timeout_ms: int) -> None:
        self._source, self._target = source, target
        self._generation: Any = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                # Who comes back takes its partitions over at once.
                "group.instance.id": identity,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "fetch.wait.max.ms": 50,
                **_SETTINGS,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": identity,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 1,
                **_SETTINGS,
            }
        )

    def run(self) -> None:
        self._retried(self._producer.init_transactions)
        self._consumer.subscribe([self._source], on_assign=self._assigned)
        last_s = time.monotonic()
        while time.monotonic() - last_s < _IDLE_SECONDS_MAX:
            messages = [one for one in self._consumer.consume(random.randint(1, 200), 0.1) if one.error() is None]
            if messages:
                self._copy(messages)
                last_s = time.monotonic()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # What is read from now on is committed as of this generation, whichever it is by then.
        self._generation = consumer.consumer_group_metadata()

    def _copy(self, messages: list[Any]) -> None:
        self._producer.begin_transaction()
        try:
            for message in messages:
                self._producer.produce(self._target, message.value(), key=message.key())
            ends = {(one.topic(), one.partition()): one.offset() + 1 for one in messages}
            offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
            if random.random() < _ABORTED_ON_PURPOSE:
                self._producer.flush(_SECONDS_MAX)
                self._abort()
                return
            self._retried(
                lambda seconds: self._producer.send_offsets_to_transaction(offsets, self._generation, seconds)
            )
            self._retried(self._producer.commit_transaction)
        except KafkaException as problem:
            error = problem.args[0]
            if not error.txn_requires_abort():
                raise
            self._abort()

    def _abort(self) -> None:
        self._retried(self._producer.abort_transaction)
        for one in self._consumer.committed(self._consumer.assignment(), _SECONDS_MAX):
            if one.error:
                raise KafkaException(one.error)
            self._consumer.seek(TopicPartition(one.topic, one.partition, max(0, one.offset)))

    def _retried(self, call: Any) -> None:
        for tries_left in reversed(range(_TRIES_MAX)):
            try:
                call(_SECONDS_MAX)
                return
            except KafkaException as problem:
                if not problem.args[0].retriable() or not tries_left:
                    raise


if __name__ == "__main__":
    _, bootstrap, source, target, group, identity, timeout_ms = sys.argv
    Copier(bootstrap, source, target, group, identity, int(timeout_ms)).run()
