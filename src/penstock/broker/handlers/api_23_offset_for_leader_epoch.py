"""OffsetForLeaderEpoch (key 23), versions 2-4.

Where a leader epoch ended in our log (KIP-101, KIP-279), by which consumers find out that a log was truncated and
replicas find the point at which they part.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import Struct


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    topics = []
    for topic in request.topics:
        hosted = broker.topics_by_name.get(topic.topic.encode(), {})
        answers = []
        for one in topic.partitions:
            answer = _answer(hosted.get(one.partition), one)
            answer.partition = one.partition
            answers.append(answer)
        topics.append(Struct(topic=topic.topic, partitions=answers))
    return Struct(topics=topics)


def _answer(partition: Partition | None, one: Any) -> Struct:
    if partition is None:
        return Struct(error_code=ErrorCode.unknown_topic_or_partition)
    epoch_error = partition.check_leader_epoch(one.current_leader_epoch)
    if epoch_error:
        return Struct(error_code=epoch_error)
    try:
        epoch, end_offset = partition.end_offset_for_epoch(one.leader_epoch)
    except DiskError:
        return Struct(error_code=ErrorCode.kafka_storage_error)
    return Struct(leader_epoch=epoch, end_offset=end_offset)


API = Api(23, "OffsetForLeaderEpoch", 2, 4, handle)
