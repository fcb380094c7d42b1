"""Reading partitions within the limits of one fetch: which slices of which files the answer is made of.

KIP-74: the first partition that has data gives at least one whole batch, however large, so that a consumer always gets
on; everything after it keeps to the limits.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.fetch.sessions import SessionPartition
from penstock.cluster.partition.partition import Partition
from penstock.protocol.fetch import FetchPartition, FetchRequest, PartitionAnswer

HostedTopics = Mapping[bytes, Mapping[int, Partition]]


class Plan(NamedTuple):
    answers: list[tuple[SessionPartition, PartitionAnswer]]
    bytes_found: int
    # There is an error, or something else that the client must not wait for.
    must_answer: bool
    # Whose records they are, for the counts of what was given out.
    found: list[tuple[Partition, int]]


def plan_fetch(
    wanted: list[SessionPartition],
    topics: HostedTopics,
    fetch: FetchRequest,
    *,
    bytes_max: int,
    uses_topic_ids: bool,
    is_held_back: Callable[[Partition], bool] | None = None,
    nearest: Callable[[Partition, int], int] | None = None,
) -> Plan:
    """Of a partition that is held back everything is told but its records. `nearest` gives the broker where a client
    should read on from an offset, or -1."""
    answers = []
    bytes_left = bytes_max
    bytes_found = 0
    must_answer = False
    found = []
    for one in wanted:
        hosted = topics.get(one.topic)
        request = one.request
        partition = None if hosted is None else hosted.get(request.partition)
        if partition is None:
            unknown = ErrorCode.unknown_topic_or_partition
            if hosted is None and uses_topic_ids:
                unknown = ErrorCode.unknown_topic_id
            # Not null as in other errors, as if nobody had asked: so Kafka answers it.
            answer = PartitionAnswer(request.partition, unknown, aborted=())
        else:
            partition.fetch_requests += 1
            elsewhere = -1 if nearest is None else nearest(partition, request.fetch_offset)
            is_silent = elsewhere >= 0 or (is_held_back is not None and is_held_back(partition))
            answer = read_partition(
                partition,
                request,
                fetch,
                0 if is_silent else bytes_left,
                at_least_one=not bytes_found and not is_silent,
            )
            if elsewhere >= 0 and not answer.error_code:
                answer = answer._replace(preferred_read_replica=elsewhere)
                must_answer = True
            if answer.records is not None:
                length = answer.records.length
                bytes_found += length
                bytes_left -= length
                found.append((partition, length))
        if answer.error_code or answer.diverging_epoch is not None:
            must_answer = True
        answers.append((one, answer))
    return Plan(answers, bytes_found, must_answer, found)


def read_partition(
    partition: Partition, request: FetchPartition, fetch: FetchRequest, bytes_left: int, *, at_least_one: bool
) -> PartitionAnswer:
    index = request.partition
    is_replica = fetch.replica_id >= 0
    if is_replica:
        error = _check_follower(partition, request, fetch)
    elif partition.is_leading or partition.follower is not None:
        # Consumers may read from followers too (KIP-392), as far as these know it to be committed.
        error = partition.check_leader_epoch(request.leader_epoch)
    else:
        error = ErrorCode.not_leader_or_follower
    if error:
        return PartitionAnswer(index, error)
    try:
        log = partition.log
        high_watermark = partition.high_watermark
        stable_offset = log.last_stable_offset(high_watermark)
        if request.last_fetched_epoch >= 0:
            diverging = partition.end_offset_for_epoch(request.last_fetched_epoch)
            if diverging[0] < 0:
                return PartitionAnswer(index, ErrorCode.offset_out_of_range)
            if diverging[0] < request.last_fetched_epoch or diverging[1] < request.fetch_offset:
                return PartitionAnswer(
                    index, 0, high_watermark, stable_offset, log.log_start_offset, diverging_epoch=diverging
                )
        if is_replica:
            upper_offset = log.log_end_offset
        else:
            upper_offset = stable_offset if fetch.read_committed else high_watermark
        records = None
        if bytes_left > 0 or at_least_one:
            records = log.read(
                request.fetch_offset,
                min(request.bytes_max, max(bytes_left, 0)),
                upper_offset,
                at_least_one=at_least_one,
            )
        aborted: list[tuple[int, int]] | None = None
        if fetch.read_committed:
            aborted = []
            if records is not None:
                found = log.aborted_transactions(request.fetch_offset, upper_offset, records)
                aborted = [(one.producer_id, one.first_offset) for one in found]
    except Refused as problem:
        return PartitionAnswer(index, problem.code)
    except DiskError:
        return PartitionAnswer(index, ErrorCode.kafka_storage_error)
    return PartitionAnswer(index, 0, high_watermark, stable_offset, log.log_start_offset, aborted, records=records)


def _check_follower(partition: Partition, request: FetchPartition, fetch: FetchRequest) -> ErrorCode:
    if partition.leader is None:
        return ErrorCode.not_leader_or_follower
    return partition.leader.check_follower(fetch.replica_id, fetch.replica_epoch, request.leader_epoch)
