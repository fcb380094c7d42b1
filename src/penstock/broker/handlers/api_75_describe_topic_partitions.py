"""DescribeTopicPartitions (key 75), version 0 (KIP-966).

Topics in the order of their names, all of them when none is named, with eligible leader replicas. At most
`response_partition_limit` partitions (and `max.request.partition.size.limit`) are answered at a time; the cursor says
where the next request goes on.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.partition_view import (
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    PartitionAnswer,
    serving_brokers,
)
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.metadata.names import INTERNAL_TOPICS, is_legal_topic_name
from penstock.protocol.messages import Struct


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    wanted = sorted({topic.name for topic in request.topics})
    names = wanted or sorted(broker.image.topics)
    first_index = 0
    if request.cursor is not None:
        first_index = request.cursor.partition_index
        names = [name for name in names if name >= request.cursor.topic_name]
        if first_index < 0 or (wanted and request.cursor.topic_name not in wanted):
            return Struct(topics=[_refused(name, ErrorCode.invalid_request, NO_OPERATIONS) for name in wanted])
        if not names or names[0] != request.cursor.topic_name:
            # The topic was deleted since; its successor starts from the beginning.
            first_index = 0
    room = min(max(request.response_partition_limit, 1), broker.settings["max.request.partition.size.limit"])
    serving = serving_brokers(broker)
    topics = []
    for name in names:
        topic = broker.image.topics.get(name)
        if topic is None:
            topics.append(_refused(name, _why_unknown(name), TOPIC_OPERATIONS))
            continue
        if room == 0:
            return Struct(topics=topics, next_cursor=Struct(topic_name=name, partition_index=0))
        last_index = min(len(topic.partitions), first_index + room)
        topics.append(_described(topic, first_index, last_index, serving))
        room -= max(last_index - first_index, 0)
        if last_index < len(topic.partitions):
            return Struct(topics=topics, next_cursor=Struct(topic_name=name, partition_index=last_index))
        first_index = 0
    return Struct(topics=topics)


def _described(topic: TopicImage, first_index: int, last_index: int, serving: frozenset[int]) -> Struct:
    return Struct(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            PartitionAnswer(index, topic.partitions[index], serving) for index in range(first_index, last_index)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _why_unknown(name: str) -> ErrorCode:
    if is_legal_topic_name(name):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.invalid_topic_exception


def _refused(name: str, error_code: ErrorCode, operations: int) -> Struct:
    return Struct(
        error_code=error_code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


API = Api(75, "DescribeTopicPartitions", 0, 0, handle)
