"""Produce (key 0), versions 3-13.

Each partition gets exactly one record batch of magic 2, appended as it is. acks 0, 1 and all (-1); an `acks=all` answer
waits for all replicas in sync, or for one group-committed fdatasync where there is only one. With acks=0 there is no
answer, and an error closes the connection, so that the client refreshes its metadata. Topic ids from version 13 on
(KIP-516).

Transactions: before the first batch of one in a partition, the coordinator is told of the partition (from version 12
on), or asked whether it was (KIP-890).
"""

import asyncio
import logging
from functools import partial
from time import perf_counter_ns

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.api import Answer, Broker, HotApi
from penstock.broker.appending import (
    ACKS_ALL,
    Requests,
    answer_when_committed,
    why_unknown,
)
from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred, note_time
from penstock.broker.transaction_verification import (
    VerifiedWrites,
    produce_client,
    refusal_of_produce,
    transactional_batches,
)
from penstock.protocol.fetch import Part
from penstock.protocol.primitives import Malformed
from penstock.protocol.produce import (
    TOPIC_IDS_FROM,
    VERSION_MAX,
    VERSION_MIN,
    PartitionAnswer,
    Shape,
    TopicData,
    decode_produce_request,
    read_single,
    read_singles,
    shape_of,
    write_singles,
)

log = logging.getLogger("penstock.produce")

_FAILED_UNTOLD = "a Produce request with acks=0 failed; closing is the only way to tell"


def handle_frame(
    broker: Broker, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
) -> Answer:
    single = read_single(version, frame, position)
    if single is not None and single.acks in (1, ACKS_ALL):
        shape = shape_of(version, frame, single)
        connection.take_usual = partial(_take_usual, broker, shape)
        return _serve_singles(broker, connection, shape, [correlation_id], [single.records])
    transactional_id, acks, timeout_ms, requested = decode_produce_request(version, frame, position)
    parts = [(topic, index, (records,)) for topic, partitions in requested for index, records in partitions]
    requests = Requests(version, [correlation_id], acks, timeout_ms, parts)
    if acks in (1, ACKS_ALL) and transactional_id is None:
        return broker.appending.take(connection, requests)
    if connection.settle is not None:
        connection.settle()
    if acks not in (-1, 0, 1):
        return _refused(requests, ErrorCode.invalid_required_acks)
    writes = None
    if transactional_id is not None:
        try:
            writes = _transactional_writes(broker, version, transactional_id, requested)
        except Refused as refused:
            return _refused(requests, refused.code)
        if writes is not None and not _is_ready(broker, writes):
            # The frame's buffer is used again once this returns.
            requests.parts = [(topic, index, [_kept(records)]) for topic, index, (records,) in parts]
            return _append_when_verified(broker, connection, requests, writes)
    has_error = _append_all(broker, requests, writes)
    if acks == 0:
        if has_error:
            # Answers that are owed already still go out before the connection is closed.
            raise Malformed(_FAILED_UNTOLD)
        return None
    answer_when_committed(broker, requests)
    return requests


def _take_usual(broker: Broker, shape: Shape, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
    """Hot: most producers' requests come by here, and only the first for a partition by `handle_frame`."""
    ids: list[int] = []
    batches: list[memoryview] = []
    position = read_singles(buffer, start, end, shape, ids, batches)
    if ids:
        started_ns = perf_counter_ns()
        connection.skip_to(position)
        answer = _serve_singles(broker, connection, shape, ids, batches)
        note_time(answer, broker.metrics.times[API.key], started_ns)
        connection.accept(answer)
    return position


def _serve_singles(
    broker: Broker, connection: Connection, shape: Shape, ids: list[int], batches: list[memoryview]
) -> Deferred | list[Part]:
    version, acks, timeout_ms, topic, index, _, _, _ = shape
    if acks == 1 and len(ids) == 1 and not connection.has_more:
        topics = broker.topics_by_id if version >= TOPIC_IDS_FROM else broker.topics_by_name
        partition = topics.get(topic, {}).get(index)
        if partition is not None:
            answer = partition.append(batches[0], 1, version, broker.clock.now_ms())
            if answer.error_code:
                broker.metrics.failed_produce_requests[partition.topic] += 1
            return [write_singles(version, ids, topic, [answer])]
    return broker.appending.take(connection, Requests(version, ids, acks, timeout_ms, [(topic, index, batches)]))


def _append_all(broker: Broker, requests: Requests, writes: VerifiedWrites | None) -> bool:
    """Batch by batch; whether there was an error."""
    now_ms = broker.clock.now_ms()
    version, acks = requests.version, requests.acks
    topics = broker.topics_by_id if version >= TOPIC_IDS_FROM else broker.topics_by_name
    has_error = False
    for position, (topic, index, (records,)) in enumerate(requests.parts):
        partition = topics.get(topic, {}).get(index)
        if partition is None:
            answer = PartitionAnswer(index, why_unknown(broker, topic, index, version))
        elif writes is None:
            answer = partition.append(records, acks, version, now_ms)
        elif error := writes.error_of(partition):
            code, message = refusal_of_produce(error)
            answer = PartitionAnswer(index, code, error_message=message)
        else:
            answer = partition.append(records, acks, version, now_ms, writes.verification_of(partition))
        if answer.error_code:
            has_error = True
            broker.metrics.failed_produce_requests["" if partition is None else partition.topic] += 1
        elif acks == ACKS_ALL and partition is not None and broker.commits.is_due(partition):
            requests.uncommitted[topic, index] = partition
        requests.answers[position] = [answer]
    return has_error


def _transactional_writes(
    broker: Broker, version: int, transactional_id: str, requested: list[TopicData]
) -> VerifiedWrites | None:
    """None where no batch is transactional. Raises Refused where they are of several producers."""
    topics = broker.topics_by_id if version >= TOPIC_IDS_FROM else broker.topics_by_name
    batches = list(transactional_batches(topics.get, requested))
    if len({(batch.producer_id, batch.epoch) for batch in batches}) > 1:
        raise Refused(ErrorCode.invalid_producer_id_mapping, "the batches of a transaction are of several producers")
    return VerifiedWrites(transactional_id, produce_client(version), batches) if batches else None


def _is_ready(broker: Broker, writes: VerifiedWrites) -> bool:
    try:
        return broker.verification.is_ready(writes)
    except DiskError:
        # The append will meet the same problem, and tell.
        return True


def _append_when_verified(
    broker: Broker, connection: Connection, requests: Requests, writes: VerifiedWrites
) -> Deferred | None:
    acks = requests.acks

    async def append() -> None:
        try:
            async with broker.verification.verified(writes):
                has_error = _append_all(broker, requests, writes)
        except DiskError:
            _refused(requests, ErrorCode.kafka_storage_error)
            has_error = True
        except Exception:
            log.exception("Produce version %d met a defect in the broker", requests.version)
            requests.fail("see the error above")
            return
        if acks == 0 and has_error:
            connection.close(_FAILED_UNTOLD)
        elif acks and not requests.is_done:
            answer_when_committed(broker, requests)

    broker.verification.keep(asyncio.ensure_future(append()))
    return requests if acks else None


def _kept(records: memoryview | None) -> memoryview | None:
    return None if records is None else memoryview(bytearray(records))


def _refused(requests: Requests, code: ErrorCode) -> Requests:
    """All of it."""
    requests.answers = [[PartitionAnswer(index, code)] for _, index, _ in requests.parts]
    requests.finish({})
    return requests


API = HotApi(0, "Produce", VERSION_MIN, VERSION_MAX, handle_frame)
