"""Produce requests that follow each other on a connection and are for the same partition, served together.

A producer that does not wait for its batches to fill sends many small ones at once. What they have in common is looked
at once, their batches reach the log with one write, and their answers leave as one.
"""

from struct import Struct
from time import perf_counter_ns

from penstock.base.errors import ErrorCode
from penstock.broker.api import Answer, Broker
from penstock.broker.connection import Connection, Deferred
from penstock.cluster.partition.partition import Partition
from penstock.protocol.produce import (
    PartitionAnswer,
    SingleBatch,
    read_single_records,
    write_singles,
)

_PRODUCE = 0
_ACKS_ALL = -1
_CORRELATION_ID = Struct(">4xi")
# Of larger ones the write is so much of the work that a copy beforehand does not pay.
_BYTES_MAX = 64 * 1024
_REQUESTS_MAX = 64

# Correlation id and records of a request.
Alike = tuple[int, memoryview]


def take_alike(connection: Connection, frame: memoryview, single: SingleBatch) -> list[Alike]:
    """The requests that follow `frame` and differ from it only in their records."""
    size_position = single.size_position
    frames = connection.take_alike(bytes(frame[:4]), bytes(frame[8:size_position]), _REQUESTS_MAX, _BYTES_MAX)
    taken: list[Alike] = []
    for alike in frames:
        records = read_single_records(alike, size_position)
        if records is None:
            connection.give_back(frames[len(taken) :])
            break
        taken.append((_CORRELATION_ID.unpack_from(alike)[0], records))
    return taken


def append_alike(
    broker: Broker, partition: Partition, version: int, correlation_id: int, single: SingleBatch, more: list[Alike]
) -> Answer:
    """Appends the batches of all, and answers all."""
    started_ns = perf_counter_ns()
    times = broker.metrics.times[_PRODUCE]
    topic, acks = single.topic, single.acks
    correlation_ids = [correlation_id, *[each for each, _ in more]]
    batches = [single.records, *[records for _, records in more]]
    answers = partition.append_all(batches, acks, version, broker.clock.now_ms())
    failures = sum([answer.error_code != 0 for answer in answers])
    if failures:
        broker.metrics.failed_produce_requests[partition.topic] += failures
    if acks != _ACKS_ALL or failures == len(answers) or not broker.commits.is_due(partition):
        times.record(started_ns, len(more))
        return [write_singles(version, correlation_ids, topic, answers)]
    deferred = Deferred()

    def done(outcome: dict[Partition, ErrorCode]) -> None:
        times.record_deferred(started_ns, len(more))
        error = outcome[partition]
        final = (
            [PartitionAnswer(partition.index, answer.error_code or error) for answer in answers] if error else answers
        )
        deferred.complete([write_singles(version, correlation_ids, topic, final)])

    broker.commits.when_committed([partition], single.timeout_ms, done)
    return deferred
