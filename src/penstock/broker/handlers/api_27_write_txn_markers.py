"""WriteTxnMarkers (key 27), versions 1-2.

What a transaction's coordinator tells the leaders of its partitions, and how Kafka's tools end a transaction that
hangs. The answer waits until the markers are durable. From version 2 on the marker says which transaction version it is
of, so that a late one cannot end the next transaction (KIP-1228).
"""

import asyncio
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.transaction_markers import Outcome
from penstock.coordinator.transaction.requests import TopicPartition, WriteMarkers
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    futures = [_write(broker, marker) for marker in request.markers]
    # A producer that is named twice is answered once, as in Kafka.
    by_producer: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker, future in zip(request.markers, futures, strict=True):
        by_producer.setdefault(marker.producer_id, {}).update(await future)
    return Struct(
        markers=[
            Struct(producer_id=producer_id, topics=_by_topic(outcome)) for producer_id, outcome in by_producer.items()
        ]
    )


def _write(broker: Broker, marker: Any) -> asyncio.Future[Outcome]:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    markers = WriteMarkers(
        transactional_id="",
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        is_commit=marker.transaction_result,
        partitions=tuple((topic.name, index) for topic in marker.topics for index in topic.partition_indexes),
        transaction_version=getattr(marker, "transaction_version", 0),
    )
    broker.markers.write_here(markers, future.set_result)
    return future


def _by_topic(outcome: Outcome) -> list[Struct]:
    topics: dict[str, list[Struct]] = {}
    for (topic, index), error in outcome.items():
        topics.setdefault(topic, []).append(Struct(partition_index=index, error_code=error))
    return [Struct(name=topic, partitions=partitions) for topic, partitions in topics.items()]


API = Api(27, "WriteTxnMarkers", 1, 2, handle)
