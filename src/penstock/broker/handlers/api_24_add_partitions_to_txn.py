"""AddPartitionsToTxn (key 24), versions 0-5.

Up to version 3 from clients, about their one transaction; from 4 on from brokers, about many, and perhaps only to
verify that partitions are part of them (KIP-890). If one partition of a transaction does not exist, none is added.
"""

import asyncio
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.transaction_calls import fenced_as_known
from penstock.coordinator.transaction.records import TRANSACTIONS_V2
from penstock.coordinator.transaction.requests import Addition, TopicPartition
from penstock.protocol.messages import Struct

_FROM_BROKERS_FROM = 4
_FENCED_KNOWN_FROM = 2


class Asked(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: Any


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if context.version < _FROM_BROKERS_FROM:
        asked = Asked(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            False,
            request.v3_and_below_topics,
        )
        return Struct(results_by_topic_v3_and_below=await _add(broker, context, asked))
    transactions = [
        Asked(one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only, one.topics)
        for one in request.transactions
    ]
    results = await asyncio.gather(*(_add(broker, context, asked) for asked in transactions))
    return Struct(
        error_code=ErrorCode.none,
        results_by_transaction=[
            Struct(transactional_id=asked.transactional_id, topic_results=topics)
            for asked, topics in zip(transactions, results, strict=True)
        ],
    )


async def _add(broker: Broker, context: RequestContext, asked: Asked) -> list[Struct]:
    partitions = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    errors = _missing(broker, partitions)
    if not errors:
        addition = Addition(
            asked.transactional_id,
            asked.producer_id,
            asked.producer_epoch,
            frozenset(partitions),
            asked.verify_only,
            TRANSACTIONS_V2 if context.version >= _FROM_BROKERS_FROM else 0,
        )
        errors = await broker.transactions.add_partitions(addition)
    is_known = context.version >= _FENCED_KNOWN_FROM
    return [
        Struct(
            name=topic.name,
            results_by_partition=[
                Struct(
                    partition_index=index,
                    partition_error_code=fenced_as_known(errors[topic.name, index], is_known=is_known),
                )
                for index in topic.partitions
            ],
        )
        for topic in asked.topics
        if topic.partitions
    ]


def _missing(broker: Broker, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """Empty if all of the partitions exist."""
    topics = broker.image.topics
    missing = [
        (name, index) for name, index in partitions if name not in topics or index not in topics[name].partitions
    ]
    if not missing:
        return {}
    errors = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
    return errors | dict.fromkeys(missing, ErrorCode.unknown_topic_or_partition)


API = Api(24, "AddPartitionsToTxn", 0, 5, handle)
