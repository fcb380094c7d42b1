"""ListOffsets (key 2), versions 1-11.

By timestamp, exact to the record, or by the special timestamps: latest (-1), earliest (-2), the record with the largest
timestamp (-3, KIP-734), earliest local (-4), latest tiered (-5), earliest not yet uploaded (-6). Nothing is tiered, so
-4 is the log's start and -5 and -6 have no answer (-1), as in Kafka without remote storage.

A new leader that does not know yet how much its predecessor had committed says OFFSET_NOT_AVAILABLE (KIP-207). Other
replicas are told where the log ends, not what is committed.
"""

import asyncio
from collections import Counter
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.partition_view import find_led
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import Struct

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
# The first version that knows each special timestamp.
_SPECIAL_FROM = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
# The first version that knows OFFSET_NOT_AVAILABLE.
_NOT_AVAILABLE_FROM = 5
# A log that nobody has used yet is opened for its answer: between so many, the others have their turn.
_PARTITIONS_PER_TURN = 50


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    read_committed = getattr(request, "isolation_level", 0) == 1
    asked = Counter((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    topics = []
    answered = 0
    for topic in request.topics:
        answers = []
        for one in {each.partition_index: each for each in topic.partitions}.values():
            if asked[topic.name, one.partition_index] > 1:
                answer = Struct(error_code=ErrorCode.invalid_request)
            else:
                led = find_led(broker, topic.name, one.partition_index, getattr(one, "current_leader_epoch", -1))
                answer = _answer(led, one.timestamp, context.version, request.replica_id >= 0, read_committed)
            answer.partition_index = one.partition_index
            answers.append(answer)
            answered += 1
            if answered % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        topics.append(Struct(name=topic.name, partitions=answers))
    return Struct(topics=topics)


def _answer(
    partition: Partition | ErrorCode, timestamp: int, version: int, is_replica: bool, read_committed: bool
) -> Struct:
    if isinstance(partition, ErrorCode):
        return Struct(error_code=partition)
    if timestamp < 0 and version < _SPECIAL_FROM.get(timestamp, 1 << 15):
        return Struct(error_code=ErrorCode.unsupported_version)
    try:
        upper_offset = _upper_offset(partition, is_replica, read_committed)
        found = _find(partition, timestamp, upper_offset)
        if (timestamp == _LATEST or found is None) and not (is_replica or partition.knows_what_is_committed):
            return Struct(error_code=_not_available(version))
        if found is None:
            return Struct(timestamp=-1, offset=-1, leader_epoch=-1)
        offset, found_timestamp = found
        # The record with the largest timestamp may be below the log's start by now, where epochs are forgotten.
        epoch = partition.leader_epoch if timestamp == _MAX_TIMESTAMP else partition.epoch_for_offset(offset)
        return Struct(timestamp=found_timestamp, offset=offset, leader_epoch=epoch)
    except Refused as problem:
        return Struct(error_code=problem.code)
    except DiskError:
        return Struct(error_code=ErrorCode.kafka_storage_error)


def _upper_offset(partition: Partition, is_replica: bool, read_committed: bool) -> int:
    if is_replica:
        return partition.log.log_end_offset
    return partition.last_stable_offset if read_committed else partition.high_watermark


def _not_available(version: int) -> ErrorCode:
    return ErrorCode.offset_not_available if version >= _NOT_AVAILABLE_FROM else ErrorCode.leader_not_available


def _find(partition: Partition, timestamp: int, upper_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp), or None where no record answers the question."""
    log = partition.log
    match timestamp:
        case -1:
            return upper_offset, -1
        case -2 | -4:
            return log.log_start_offset, -1
        case -5 | -6:
            return None
        case -3:
            found = log.max_timestamp_offset()
        case _:
            found = log.offset_for_timestamp(timestamp)
    return found if found is not None and found[0] < upper_offset else None


API = Api(2, "ListOffsets", 1, 11, handle)
