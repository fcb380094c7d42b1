"""DeleteRecords (key 21), versions 0-2.

Moves the log start offset up; -1 stands for the high watermark. Whole segments below it are deleted, and the new start
is on the disk before the answer leaves, with all living replicas following: what the answer names as low watermark is
where the one that begins first begins. Refused for topics that are only compacted, as Kafka does.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.partition_view import find_led
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import Struct

_TO_HIGH_WATERMARK = -1


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    begun = []
    for topic in request.topics:
        for one in topic.partitions:
            led = find_led(broker, topic.name, one.partition_index)
            offset = one.offset if isinstance(led, ErrorCode) else await _begin_at(broker, led, one.offset)
            begun.append((led, offset))
    # The replicas of all of them follow at the same time.
    deadline_ms = broker.clock.monotonic_ms() + round(request.timeout.total_seconds() * 1000)
    outcomes = iter([await _replicated(broker, led, offset, deadline_ms) for led, offset in begun])
    topics = []
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            low_watermark, error_code = next(outcomes)
            answers.append(
                Struct(partition_index=one.partition_index, low_watermark=low_watermark, error_code=error_code)
            )
        topics.append(Struct(name=topic.name, partitions=answers))
    return Struct(topics=topics)


async def _begin_at(broker: Broker, partition: Partition, offset: int) -> int | ErrorCode:
    """The new log start offset of this replica."""
    if "delete" not in partition.config.cleanup_policy:
        return ErrorCode.policy_violation
    try:
        if offset == _TO_HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            return ErrorCode.offset_out_of_range
        await broker.advance_log_start(partition, offset)
    except DiskError:
        return ErrorCode.kafka_storage_error
    return offset


async def _replicated(
    broker: Broker, partition: Partition | ErrorCode, offset: int | ErrorCode, deadline_ms: int
) -> tuple[int, ErrorCode]:
    """(low watermark, error), once no living replica has records below `offset`."""
    if isinstance(partition, ErrorCode):
        return -1, partition
    if isinstance(offset, ErrorCode):
        return -1, offset
    seconds_left = max(0, deadline_ms - broker.clock.monotonic_ms()) / 1000
    await broker.replication.until_all_begin_at(partition, offset, seconds_left)
    if not partition.is_leading:
        return -1, ErrorCode.not_leader_or_follower
    low_watermark = partition.low_watermark
    return low_watermark, ErrorCode.none if low_watermark >= offset else ErrorCode.request_timed_out


API = Api(21, "DeleteRecords", 0, 2, handle)
