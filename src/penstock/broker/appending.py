"""Produce requests that follow each other on a connection and are for the same partition, served together.

A producer that does not wait for its batches to fill sends many small ones at once. What they have in common is looked
at once, their batches reach the log with one write, and their answers leave as one.
"""

from time import perf_counter_ns

from penstock.base.errors import ErrorCode
from penstock.broker.api import Answer, Broker
from penstock.broker.connection import Alike, Connection, Deferred
from penstock.cluster.partition.partition import Partition
from penstock.protocol.produce import (
    PartitionAnswer,
    SingleBatch,
    read_single_records,
    write_singles,
)

_PRODUCE = 0
_ACKS_ALL = -1


def take_alike(connection: Connection, frame: memoryview, single: SingleBatch) -> list[Alike]:
    """The correlation ids and records of the requests that follow `frame` and differ from it only in their records."""
    alike = connection.take_alike(frame, single.size_position)
    taken: list[Alike] = []
    for correlation_id, each in alike:
        records = read_single_records(each, single.size_position)
        if records is None:
            connection.give_back(alike[len(taken) :])
            break
        taken.append((correlation_id, records))
    return taken


def append_alike(
    broker: Broker, partition: Partition, version: int, correlation_id: int, single: SingleBatch, more: list[Alike]
) -> Answer:
    """Appends the batches of all, and answers all."""
    started_ns = perf_counter_ns()
    topic, acks = single.topic, single.acks
    correlation_ids = [correlation_id, *[each for each, _ in more]]
    batches = [single.records, *[records for _, records in more]]
    answers = partition.append_all(batches, acks, version, broker.clock.now_ms())
    failures = sum([answer.error_code != 0 for answer in answers])
    if failures:
        broker.metrics.failed_produce_requests[partition.topic] += failures
    if acks != _ACKS_ALL or failures == len(answers) or not broker.commits.is_due(partition):
        # The router counts one.
        broker.metrics.times[_PRODUCE].record(started_ns, len(more))
        return [write_singles(version, correlation_ids, topic, answers)]
    deferred = Deferred(len(batches))

    def done(outcome: dict[Partition, ErrorCode]) -> None:
        final = answers
        if error := outcome[partition]:
            lost = PartitionAnswer(partition.index, error)
            final = [answer if answer.error_code else lost for answer in answers]
        deferred.complete([write_singles(version, correlation_ids, topic, final)])

    broker.commits.when_committed([partition], single.timeout_ms, done)
    return deferred
