"""DeleteRecords (key 21), versions 0-2.

Moves the log start offset up; -1 stands for the high watermark. Whole segments below it are deleted, and the new start
is on the disk before the answer leaves. Refused for topics that are only compacted, as Kafka does.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import Struct

_TO_HIGH_WATERMARK = -1


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    topics = []
    for topic in request.topics:
        hosted = broker.topics_by_name.get(topic.name.encode(), {})
        answers = []
        for one in topic.partitions:
            low_watermark, error_code = await _delete(broker, hosted.get(one.partition_index), one.offset)
            answers.append(
                Struct(partition_index=one.partition_index, low_watermark=low_watermark, error_code=error_code)
            )
        topics.append(Struct(name=topic.name, partitions=answers))
    return Struct(topics=topics)


async def _delete(broker: Broker, partition: Partition | None, offset: int) -> tuple[int, ErrorCode]:
    """(low watermark, error)."""
    if partition is None:
        return -1, ErrorCode.unknown_topic_or_partition
    if "delete" not in partition.config.cleanup_policy:
        return -1, ErrorCode.policy_violation
    try:
        if offset == _TO_HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            return -1, ErrorCode.offset_out_of_range
        await broker.advance_log_start(partition, offset)
    except DiskError:
        return -1, ErrorCode.kafka_storage_error
    return partition.log.log_start_offset, ErrorCode.none


API = Api(21, "DeleteRecords", 0, 2, handle)
