"""OffsetForLeaderEpoch (key 23), versions 2-4.

Where a leader epoch ended in our log (KIP-101, KIP-279), by which consumers find out that a log was truncated and
replicas find the point at which they part.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.partition_view import find_led
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import Struct


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    topics = []
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            answer = _answer(find_led(broker, topic.topic, one.partition, one.current_leader_epoch), one)
            answer.partition = one.partition
            answers.append(answer)
        topics.append(Struct(topic=topic.topic, partitions=answers))
    return Struct(topics=topics)


def _answer(partition: Partition | ErrorCode, one: Any) -> Struct:
    if isinstance(partition, ErrorCode):
        return Struct(error_code=partition)
    try:
        epoch, end_offset = partition.end_offset_for_epoch(one.leader_epoch)
    except DiskError:
        return Struct(error_code=ErrorCode.kafka_storage_error)
    return Struct(leader_epoch=epoch, end_offset=end_offset)


API = Api(23, "OffsetForLeaderEpoch", 2, 4, handle)
