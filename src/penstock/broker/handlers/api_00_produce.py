"""Produce (key 0), versions 3-13.

Each partition gets exactly one record batch of magic 2, appended as it is. acks 0, 1 and all (-1); an `acks=all` answer
waits for one group-committed fdatasync where the topic has a single replica. With acks=0 there is no answer, and an
error closes the connection, so that the client refreshes its metadata. Topic ids from version 13 on (KIP-516).

Not here yet: transactional batches.
"""

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.broker.api import Answer, Broker, HotApi
from penstock.broker.connection import Connection, Deferred
from penstock.cluster.partition.partition import Partition
from penstock.log.log import Flush
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
)


def handle_frame(
    broker: Broker, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
) -> Answer:
    _, acks, _, requested = decode_produce_request(version, frame, position)
    if acks not in (-1, 0, 1):
        answers = _refuse_all(requested, ErrorCode.invalid_required_acks)
        return [encode_produce_response(version, correlation_id, answers)]

    now_ms = broker.clock.now_ms()
    topics = broker.topics_by_id if version >= TOPIC_IDS_FROM else broker.topics_by_name
    to_sync: list[tuple[Partition, Flush]] = []
    answers = []
    has_error = False
    for topic, partitions in requested:
        hosted = topics.get(topic)
        topic_answers = []
        for index, records in partitions:
            partition = None if hosted is None else hosted.get(index)
            if partition is None:
                answer = PartitionAnswer(index, _unknown(hosted is None, version))
            else:
                answer = partition.append(records, acks, version, now_ms)
            if answer.error_code:
                has_error = True
            elif acks == -1 and partition is not None and partition.must_sync:
                to_sync.append((partition, partition.log.flush()))
            topic_answers.append(answer)
        if topic_answers:
            answers.append((topic, topic_answers))
    if len(answers) > 1:
        answers = _merged(answers)

    if acks == 0:
        if has_error:
            # Answers that are owed already still go out before the connection is closed.
            raise Malformed("a Produce request with acks=0 failed; closing is the only way to tell")
        return None
    if not to_sync:
        return [encode_produce_response(version, correlation_id, answers)]
    return _answer_when_synced(broker, version, correlation_id, answers, to_sync)


def _unknown(is_topic_unknown: bool, version: int) -> ErrorCode:
    if is_topic_unknown and version >= TOPIC_IDS_FROM:
        return ErrorCode.unknown_topic_id
    return ErrorCode.unknown_topic_or_partition


def _merged(answers: list[TopicAnswer]) -> list[TopicAnswer]:
    """A topic is answered once, also where the request names it twice."""
    by_topic: dict[bytes, list[PartitionAnswer]] = {}
    for topic, partitions in answers:
        by_topic.setdefault(topic, []).extend(partitions)
    return list(by_topic.items())


def _refuse_all(requested: list[TopicData], code: ErrorCode) -> list[TopicAnswer]:
    return [(topic, [PartitionAnswer(index, code) for index, _ in partitions]) for topic, partitions in requested]


def _answer_when_synced(
    broker: Broker,
    version: int,
    correlation_id: int,
    answers: list[TopicAnswer],
    to_sync: list[tuple[Partition, Flush]],
) -> Deferred:
    deferred = Deferred()

    def done(problem: DiskError | None) -> None:
        final = answers
        if problem is None:
            for partition, flush in to_sync:
                partition.log.mark_flushed(flush)
        else:
            # After a failed fsync nobody knows what the disk has: these partitions take no more writes until recovery.
            for partition, _ in to_sync:
                partition.has_failed = True
            final = [
                (topic, [PartitionAnswer(a.partition, a.error_code or ErrorCode.kafka_storage_error) for a in of_topic])
                for topic, of_topic in answers
            ]
        deferred.complete([encode_produce_response(version, correlation_id, final)])

    broker.group_commit.submit([file for _, flush in to_sync for file in flush.files], done)
    return deferred


API = HotApi(0, "Produce", VERSION_MIN, VERSION_MAX, handle_frame)
