"""Metadata (key 3), versions 0-13.

Brokers, and topics with their partitions: those asked for by name, or by id from version 12 (KIP-516), or all of them
(null; in version 0 the empty list).

A topic that is not there is made when both the client (`allow_auto_topic_creation`, always before version 4) and the
broker (`auto.create.topics.enable`) agree. The controller is at hand, so the answer has the new topic at once; Kafka's
brokers answer UNKNOWN_TOPIC_OR_PARTITION first and let the client ask again. Internal topics are never made this way:
their coordinators make them, with the settings they need.

For ourselves the address is told by which the client has reached us (unless `advertised.listeners` says otherwise).
Authorized operations (KIP-430) are all there are while there is no authorizer. A rebootstrap error (KIP-1102)
is never sent.
"""

import uuid
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.broker.handlers.partition_view import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    PartitionAnswer,
    serving_brokers,
)
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.metadata.names import INTERNAL_TOPICS, is_legal_topic_name
from penstock.cluster.metadata.topics import NewTopic
from penstock.protocol.messages import Struct

_VERSION_WITH_TOPIC_IDS = 12
# These have a field for the id, but Kafka has never answered by it.
_VERSIONS_WITH_USELESS_IDS = (10, 11)


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct | Coroutine[Any, None, Struct]:
    if context.version in _VERSIONS_WITH_USELESS_IDS and any(
        topic.topic_id is not None or topic.name is None for topic in request.topics or ()
    ):
        return _refuse_ids(request)
    names = _names_to_create(broker, request, context.version)
    if names:
        return _create_and_answer(broker, context, request, names)
    return _answer(broker, context, request, {})


def _refuse_ids(request: Any) -> Struct:
    topics = [
        Struct(error_code=ErrorCode.invalid_request, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics
    ]
    return Struct(topics=topics, controller_id=-1, cluster_id=None)


async def _create_and_answer(broker: Broker, context: RequestContext, request: Any, names: Sequence[str]) -> Struct:
    try:
        created = await broker.create_topics([NewTopic(name) for name in names])
    except Refused as refused:
        return _answer(broker, context, request, dict.fromkeys(names, refused.code))
    refusals = {topic.name: topic.error_code for topic in created if topic.error_code}
    return _answer(broker, context, request, refusals)


def _answer(broker: Broker, context: RequestContext, request: Any, refusals: Mapping[str, ErrorCode]) -> Struct:
    """`refusals` say why topics that should have been made are not there."""
    serving = serving_brokers(broker)
    return Struct(
        brokers=[_broker_answer(broker, context, broker_id) for broker_id in broker.absences.named()],
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        topics=_topics(broker, request, context.version, refusals, serving),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if getattr(request, "include_cluster_authorized_operations", False)
        else NO_OPERATIONS,
    )


def _wants_all(request: Any, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _names_to_create(broker: Broker, request: Any, version: int) -> list[str]:
    if _wants_all(request, version) or not getattr(request, "allow_auto_topic_creation", True):
        return []
    if not broker.settings["auto.create.topics.enable"]:
        return []
    names = {topic.name: None for topic in request.topics if getattr(topic, "topic_id", None) is None}
    return [
        name
        for name in names
        if name is not None
        and name not in broker.image.topics
        and name not in INTERNAL_TOPICS
        and is_legal_topic_name(name)
    ]


def _broker_answer(broker: Broker, context: RequestContext, broker_id: int) -> Struct:
    host, port, rack = broker.endpoint_for(context, broker_id)
    return Struct(node_id=broker_id, host=host, port=port, rack=rack)


def _topics(
    broker: Broker, request: Any, version: int, refusals: Mapping[str, ErrorCode], serving: frozenset[int]
) -> list[Struct]:
    operations = NO_OPERATIONS
    if getattr(request, "include_topic_authorized_operations", False):
        operations = TOPIC_OPERATIONS
    if _wants_all(request, version):
        return [_known(topic, operations, serving) for topic in broker.image.topics.values()]
    answers = []
    answered = set()
    for name, topic_id in dict.fromkeys(_asked(topic) for topic in request.topics):
        if topic_id is not None:
            found = broker.image.topics_by_id.get(topic_id)
            error_code = ErrorCode.unknown_topic_id
        elif name is not None:
            found = broker.image.topics.get(name)
            error_code = _why_unknown(name, refusals)
        else:
            found = None
            error_code = ErrorCode.invalid_request
        if found is not None:
            # Once, also when it is asked for both by name and by id.
            if found.id not in answered:
                answered.add(found.id)
                answers.append(_known(found, operations, serving))
        else:
            answers.append(_unknown(error_code, name, topic_id, version))
    return answers


def _asked(topic: Any) -> tuple[str | None, uuid.UUID | None]:
    """An id decides, whatever name stands beside it: Java's clients send an empty one."""
    topic_id = getattr(topic, "topic_id", None)
    return (topic.name, None) if topic_id is None else (None, topic_id)


def _known(topic: TopicImage, operations: int, serving: frozenset[int]) -> Struct:
    return Struct(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[PartitionAnswer(index, partition, serving) for index, partition in topic.partitions.items()],
        topic_authorized_operations=operations,
    )


def _why_unknown(name: str, refusals: Mapping[str, ErrorCode]) -> ErrorCode:
    if not is_legal_topic_name(name):
        return ErrorCode.invalid_topic_exception
    return refusals.get(name, ErrorCode.unknown_topic_or_partition)


def _unknown(error_code: ErrorCode, name: str | None, topic_id: uuid.UUID | None, version: int) -> Struct:
    return Struct(
        error_code=error_code,
        # Versions before 12 have no null here, though 10 and 11 can be asked about an id.
        name=name if version >= _VERSION_WITH_TOPIC_IDS else name or "",
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
    )


API = Api(3, "Metadata", 0, 13, handle)
