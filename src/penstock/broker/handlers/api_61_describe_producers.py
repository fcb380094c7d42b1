"""DescribeProducers (key 61), version 0 (KIP-664).

Who writes to a partition with sequence numbers, and since which offset with an open transaction: how Kafka's tools find
transactions that hang.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.partition_view import find_led
from penstock.cluster.metadata.names import check_topic_name
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import Struct

_NO_SEQUENCE = -1


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    topics = []
    for topic in request.topics:
        answers = []
        for index in topic.partition_indexes:
            try:
                check_topic_name(topic.name)
                answer = _describe(find_led(broker, topic.name, index))
            except Refused as refused:
                answer = Struct(error_code=refused.code, error_message=refused.message)
            answer.partition_index = index
            answers.append(answer)
        topics.append(Struct(name=topic.name, partitions=answers))
    return Struct(topics=topics)


def _describe(partition: Partition | ErrorCode) -> Struct:
    if isinstance(partition, ErrorCode):
        return Struct(error_code=partition)
    try:
        producers = partition.log.producers.producers
    except DiskError as problem:
        return Struct(error_code=ErrorCode.kafka_storage_error, error_message=str(problem))
    return Struct(
        error_code=ErrorCode.none,
        active_producers=[
            Struct(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else _NO_SEQUENCE,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer_id, producer in producers.items()
        ],
    )


API = Api(61, "DescribeProducers", 0, 0, handle)
