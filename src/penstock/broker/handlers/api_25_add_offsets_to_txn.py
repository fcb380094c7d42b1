"""AddOffsetsToTxn (key 25), versions 0-4.

The partition of `__consumer_offsets` that keeps the group's offsets becomes part of the transaction. Clients of KIP-890
do without: their TxnOffsetCommit sees to it.
"""

from typing import Any

from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.coordinator_shards import partition_of
from penstock.broker.group_coordinator import OFFSETS_TOPIC
from penstock.broker.handlers.transaction_calls import fenced_as_known
from penstock.coordinator.transaction.requests import Addition
from penstock.protocol.messages import Struct

_FENCED_KNOWN_FROM = 2


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    topic = broker.image.topics.get(OFFSETS_TOPIC)
    count = broker.settings["offsets.topic.num.partitions"] if topic is None else len(topic.partitions)
    partition = OFFSETS_TOPIC, partition_of(request.group_id, count)
    addition = Addition(
        request.transactional_id, request.producer_id, request.producer_epoch, frozenset({partition}), False, 0
    )
    errors = await broker.transactions.add_partitions(addition)
    return Struct(error_code=fenced_as_known(errors[partition], is_known=context.version >= _FENCED_KNOWN_FROM))


API = Api(25, "AddOffsetsToTxn", 0, 4, handle)
