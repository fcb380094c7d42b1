"""Produce requests of one turn of the event loop: their batches are appended together.

A batch costs less by far where it is part of a longer write, and is checked beside others. So requests are not served
as they are read but when all connections that have something to say were heard: then each partition gets the batches
of all clients in one write, and each client its answers in one.

Nobody can tell the difference. The order of one client's requests is kept: before anything else is done for it, what it
has put off is done (`Connection.settle`), which also goes for its receive buffer, where the batches still are.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred, answers_gathered
from penstock.cluster.partition.partition import Partition
from penstock.protocol.produce import (
    TOPIC_IDS_FROM,
    PartitionAnswer,
    PartitionAnswers,
    Placed,
    encode_produce_response,
    share_of,
    spelt_out,
    write_singles,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.produce")

ACKS_ALL = -1
# What is longer is worth a write of its own: waiting for more made batches of 16 KB no faster.
_SHORT_BYTES = 8 * 1024

# Topic as the request has it, index, and one batch of every request.
Part = tuple[bytes, int, Sequence[memoryview | None]]


class Requests(Deferred):
    """One request, or several for one partition that differ in nothing but their batches; and what is answered."""

    __slots__ = ("acks", "answers", "correlation_ids", "parts", "timeout_ms", "uncommitted", "version")

    def __init__(
        self, version: int, correlation_ids: Sequence[int], acks: int, timeout_ms: int, parts: Sequence[Part]
    ) -> None:
        # As Deferred does, and a call less.
        self.requests = len(correlation_ids)
        self.timed = self._connection = self._parts = None
        self.version = version
        self.correlation_ids = correlation_ids
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.parts = parts
        # To each batch of each part.
        self.answers: list[PartitionAnswers] = [()] * len(parts)
        # What is in the log, and the answer has to wait for: by the topic as the request has it, and index.
        self.uncommitted: dict[tuple[bytes, int], Partition] = {}

    def finish(self, outcome: Mapping[tuple[bytes, int], ErrorCode]) -> None:
        """`outcome` tells what has become of `uncommitted`."""
        ids, parts, answers = self.correlation_ids, self.parts, self.answers
        if outcome and any(outcome.values()):
            answers = [
                _with_error(of_part, outcome.get((topic, index), ErrorCode.none))
                for (topic, index, _), of_part in zip(parts, answers, strict=True)
            ]
        if len(ids) > 1:
            self.complete([write_singles(self.version, ids, parts[0][0], answers[0])])
            return
        by_topic: dict[bytes, list[PartitionAnswer]] = {}
        for (topic, _, _), of_part in zip(parts, answers, strict=True):
            by_topic.setdefault(topic, []).extend(spelt_out(of_part))
        self.complete([encode_produce_response(self.version, ids[0], list(by_topic.items()))])


def _with_error(answers: PartitionAnswers, error: ErrorCode) -> PartitionAnswers:
    """What was refused keeps its own reason."""
    if not error:
        return answers
    return [answer if answer.error_code else PartitionAnswer(answer.partition, error) for answer in spelt_out(answers)]


def _size(requests: Requests) -> int:
    return sum(len(batch) for _, _, batches in requests.parts for batch in batches if batch is not None)


class Appending:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._put_off: list[tuple[Connection, Requests]] = []

    def take(self, connection: Connection, requests: Requests) -> Requests:
        """With acks 1 or all, and in no transaction. Where the client has sent nothing else, it waits for the answer:
        then it is served at once."""
        if not connection.has_more and len(requests.correlation_ids) == 1:
            self._append([(connection, requests)])
            return requests
        if not self._put_off:
            # Once more: who was answered a moment ago has mostly sent more by then.
            connection.hearing.when_all_were_heard(self.run, once_more=_size(requests) < _SHORT_BYTES)
        self._put_off.append((connection, requests))
        connection.settle = self.run
        return requests

    def run(self) -> None:
        """Appends what was put off, and answers what need not wait for its commit."""
        put_off, self._put_off = self._put_off, []
        for connection, _ in put_off:
            connection.settle = None
        with answers_gathered():
            try:
                self._append(put_off)
            except Exception:
                log.exception("Produce met a defect in the broker")
                for _, requests in put_off:
                    requests.fail("see the error above")

    def _append(self, put_off: Sequence[tuple[Connection, Requests]]) -> None:
        # Hot: a few steps for each request, and a few for each partition.
        broker = self._broker
        now_ms = broker.clock.now_ms()
        together: dict[tuple[Partition, int, int], list[tuple[Requests, int]]] = {}
        for _, requests in put_off:
            version, acks = requests.version, requests.acks
            topics = broker.topics_by_id if version >= TOPIC_IDS_FROM else broker.topics_by_name
            for position, (topic, index, batches) in enumerate(requests.parts):
                hosted = topics.get(topic)
                partition = None if hosted is None else hosted.get(index)
                if partition is None:
                    unknown = PartitionAnswer(index, why_unknown(broker, topic, index, version))
                    requests.answers[position] = [unknown] * len(batches)
                    broker.metrics.failed_produce_requests[""] += len(batches)
                    continue
                key = partition, acks, version
                if key in together:
                    together[key].append((requests, position))
                else:
                    together[key] = [(requests, position)]
        for (partition, acks, version), shares in together.items():
            self._append_to(partition, acks, version, shares, now_ms)
        for _, requests in put_off:
            answer_when_committed(broker, requests)

    def _append_to(
        self, partition: Partition, acks: int, version: int, shares: Sequence[tuple[Requests, int]], now_ms: int
    ) -> None:
        if len(shares) == 1:
            requests, position = shares[0]
            batches = requests.parts[position][2]
        else:
            batches = [batch for requests, position in shares for batch in requests.parts[position][2]]
        answers = partition.append_all(batches, acks, version, now_ms)
        failures = 0 if isinstance(answers, Placed) else len([answer for answer in answers if answer.error_code])
        if failures:
            self._broker.metrics.failed_produce_requests[partition.topic] += failures
        is_due = acks == ACKS_ALL and failures < len(batches) and self._broker.commits.is_due(partition)
        start = 0
        for requests, position in shares:
            end = start + len(requests.correlation_ids)
            requests.answers[position] = share_of(answers, start, end)
            start = end
            if is_due:
                topic, index, _ = requests.parts[position]
                requests.uncommitted[topic, index] = partition


def answer_when_committed(broker: "Broker", requests: Requests) -> None:
    if not requests.uncommitted:
        requests.finish({})
        return

    def done(outcome: dict[Partition, ErrorCode]) -> None:
        requests.finish({key: outcome[partition] for key, partition in requests.uncommitted.items()})

    broker.commits.when_committed(list(requests.uncommitted.values()), requests.timeout_ms, done)


def why_unknown(broker: "Broker", topic: bytes, index: int, version: int) -> ErrorCode:
    """Why a partition is not here."""
    if version >= TOPIC_IDS_FROM:
        known = broker.image.topics_by_id.get(UUID(bytes=topic))
        if known is None:
            return ErrorCode.unknown_topic_id
    else:
        known = broker.image.topics.get(topic.decode(errors="replace"))
    if known is None or index not in known.partitions:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.not_leader_or_follower
