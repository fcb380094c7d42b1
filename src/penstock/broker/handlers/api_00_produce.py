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
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.api import Answer, Broker, HotApi
from penstock.broker.connection import Connection, Deferred
from penstock.broker.handlers.produce_alike import append_alike, take_alike
from penstock.broker.transaction_verification import (
    VerifiedWrites,
    produce_client,
    refusal_of_produce,
    transactional_batches,
)
from penstock.cluster.partition.partition import Partition
from penstock.protocol.primitives import Malformed
from penstock.protocol.produce import (
    TOPIC_IDS_FROM,
    VERSION_MAX,
    VERSION_MIN,
    PartitionAnswer,
    TopicAnswer,
    TopicData,
    decode_produce_request,
    encode_produce_response,
    read_single,
    write_singles,
)

log = logging.getLogger("penstock.produce")

_ACKS_ALL = -1
_FAILED_UNTOLD = "a Produce request with acks=0 failed; closing is the only way to tell"

# By the topic as the request has it, and index.
Uncommitted = dict[tuple[bytes, int], Partition]


def handle_frame(
    broker: Broker, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
) -> Answer:
    single = read_single(version, frame, position)
    if single is not None and single.acks in (1, _ACKS_ALL):
        # Hot: one batch for one partition.
        topics = broker.topics_by_id if version >= TOPIC_IDS_FROM else broker.topics_by_name
        hosted = topics.get(single.topic)
        partition = None if hosted is None else hosted.get(single.partition)
        more = None if partition is None else take_alike(connection, frame, single)
        if partition is not None and more:
            return append_alike(broker, partition, version, correlation_id, single, more)
        if partition is not None and single.acks == 1:
            answer = partition.append(single.records, 1, version, broker.clock.now_ms())
            if answer.error_code:
                broker.metrics.failed_produce_requests[partition.topic] += 1
            return [write_singles(version, [correlation_id], single.topic, [answer])]
    transactional_id, acks, timeout_ms, requested = decode_produce_request(version, frame, position)
    if acks not in (-1, 0, 1):
        answers = _refuse_all(requested, ErrorCode.invalid_required_acks)
        return [encode_produce_response(version, correlation_id, answers)]
    writes = None
    if transactional_id is not None:
        try:
            writes = _transactional_writes(broker, version, transactional_id, requested)
        except Refused as refused:
            return [encode_produce_response(version, correlation_id, _refuse_all(requested, refused.code))]
        if writes is not None and not _is_ready(broker, writes):
            # The frame's buffer is used again once this returns.
            kept = memoryview(bytearray(frame))
            return _append_when_verified(broker, connection, version, correlation_id, kept, position, writes)
    answers, uncommitted, has_error = _append_all(broker, version, acks, requested, writes)
    if acks == 0:
        if has_error:
            # Answers that are owed already still go out before the connection is closed.
            raise Malformed(_FAILED_UNTOLD)
        return None
    if not uncommitted:
        return [encode_produce_response(version, correlation_id, answers)]
    return _answer_when_committed(broker, version, correlation_id, timeout_ms, answers, uncommitted, Deferred())


def _append_all(
    broker: Broker, version: int, acks: int, requested: list[TopicData], writes: VerifiedWrites | None
) -> tuple[list[TopicAnswer], Uncommitted, bool]:
    """(the answers, what they must wait for, whether one is an error)."""
    now_ms = broker.clock.now_ms()
    topics = broker.topics_by_id if version >= TOPIC_IDS_FROM else broker.topics_by_name
    uncommitted: Uncommitted = {}
    answers = []
    has_error = False
    for topic, partitions in requested:
        hosted = topics.get(topic)
        topic_answers = []
        for index, records in partitions:
            partition = None if hosted is None else hosted.get(index)
            if partition is None:
                answer = PartitionAnswer(index, _unknown(broker, topic, index, version))
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
            elif acks == _ACKS_ALL and partition is not None and broker.commits.is_due(partition):
                uncommitted[topic, index] = partition
            topic_answers.append(answer)
        if topic_answers:
            answers.append((topic, topic_answers))
    if len(answers) > 1:
        answers = _merged(answers)
    return answers, uncommitted, has_error


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
    broker: Broker,
    connection: Connection,
    version: int,
    correlation_id: int,
    frame: memoryview,
    position: int,
    writes: VerifiedWrites,
) -> Deferred | None:
    deferred = Deferred()
    _, acks, timeout_ms, requested = decode_produce_request(version, frame, position)

    async def append() -> None:
        try:
            async with broker.verification.verified(writes):
                answers, uncommitted, has_error = _append_all(broker, version, acks, requested, writes)
        except DiskError:
            answers, uncommitted, has_error = _refuse_all(requested, ErrorCode.kafka_storage_error), {}, True
        except Exception:
            log.exception("Produce version %d met a defect in the broker", version)
            deferred.fail("see the error above")
            return
        if acks == 0:
            if has_error:
                connection.close(_FAILED_UNTOLD)
        elif uncommitted:
            _answer_when_committed(broker, version, correlation_id, timeout_ms, answers, uncommitted, deferred)
        else:
            deferred.complete([encode_produce_response(version, correlation_id, answers)])

    broker.verification.keep(asyncio.ensure_future(append()))
    return None if acks == 0 else deferred


def _unknown(broker: Broker, topic: bytes, index: int, version: int) -> ErrorCode:
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


def _merged(answers: list[TopicAnswer]) -> list[TopicAnswer]:
    """A topic is answered once, also where the request names it twice."""
    by_topic: dict[bytes, list[PartitionAnswer]] = {}
    for topic, partitions in answers:
        by_topic.setdefault(topic, []).extend(partitions)
    return list(by_topic.items())


def _refuse_all(requested: list[TopicData], code: ErrorCode) -> list[TopicAnswer]:
    return [(topic, [PartitionAnswer(index, code) for index, _ in partitions]) for topic, partitions in requested]


def _with_errors(
    topic: bytes, answers: list[PartitionAnswer], errors: dict[tuple[bytes, int], ErrorCode]
) -> list[PartitionAnswer]:
    return [
        PartitionAnswer(answer.partition, error) if (error := errors.get((topic, answer.partition))) else answer
        for answer in answers
    ]


def _answer_when_committed(
    broker: Broker,
    version: int,
    correlation_id: int,
    timeout_ms: int,
    answers: list[TopicAnswer],
    uncommitted: Uncommitted,
    deferred: Deferred,
) -> Deferred:
    def done(outcome: dict[Partition, ErrorCode]) -> None:
        final = answers
        if any(outcome.values()):
            errors = {key: outcome[partition] for key, partition in uncommitted.items() if outcome[partition]}
            final = [(topic, _with_errors(topic, of_topic, errors)) for topic, of_topic in answers]
        deferred.complete([encode_produce_response(version, correlation_id, final)])

    broker.commits.when_committed(list(uncommitted.values()), timeout_ms, done)
    return deferred


API = HotApi(0, "Produce", VERSION_MIN, VERSION_MAX, handle_frame)
