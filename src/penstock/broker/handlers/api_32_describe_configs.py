"""DescribeConfigs (key 32), versions 1-4.

Topics, this node, all nodes (the broker named ""), groups. Values with their source and, if asked for, everything they
override (KIP-226), their type and documentation (KIP-569). Secrets have no value. A key that is no setting is left out.
Broker loggers are an empty list: no logger can be altered over the wire. There are no client metrics subscriptions.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.settings import (
    Described,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.image import (
    ALL_BROKERS,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from penstock.cluster.metadata.names import check_topic_name
from penstock.protocol.messages import Struct


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    with_synonyms = request.include_synonyms
    with_documentation = getattr(request, "include_documentation", False)
    results = []
    for resource in request.resources:
        try:
            entries = _entries(broker, resource)
        except Refused as refused:
            results.append(_result(resource, refused.code, refused.message, ()))
        else:
            shown = [_trim(entry, with_synonyms, with_documentation) for entry in entries]
            results.append(_result(resource, ErrorCode.none, "", shown))
    return Struct(results=results)


def _result(resource: Any, error_code: ErrorCode, message: str, entries: Sequence[Described]) -> Struct:
    return Struct(
        error_code=error_code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _trim(entry: Described, with_synonyms: bool, with_documentation: bool) -> Described:
    if with_synonyms and with_documentation:
        return entry
    return replace(
        entry,
        synonyms=entry.synonyms if with_synonyms else (),
        documentation=entry.documentation if with_documentation else None,
    )


def _entries(broker: Broker, resource: Any) -> list[Described]:
    name = resource.resource_name
    # An empty list of keys asks for all of them, like null.
    keys = resource.configuration_keys or None
    if resource.resource_type == RESOURCE_TOPIC:
        return _topic(broker, name, keys)
    if resource.resource_type == RESOURCE_BROKER:
        if name == ALL_BROKERS:
            return describe_cluster_default(broker.settings, keys)
        _check_own_id(broker, name, " or empty string,")
        return describe_broker(broker.settings, keys)
    if resource.resource_type == RESOURCE_BROKER_LOGGER:
        _check_own_id(broker, name, "")
        return []
    if resource.resource_type == RESOURCE_GROUP:
        if not name:
            raise Refused(ErrorCode.invalid_request, "Group name must not be empty")
        return describe_group(broker.settings, broker.image.config_of(RESOURCE_GROUP, name), keys)
    raise Refused(ErrorCode.invalid_request, f"Unsupported resource type: {resource.resource_type}")


def _topic(broker: Broker, name: str, keys: Sequence[str] | None) -> list[Described]:
    check_topic_name(name)
    if name not in broker.image.topics:
        raise Refused(ErrorCode.unknown_topic_or_partition, "")
    return describe_topic(broker.settings, broker.image.topic_configs(name), keys)


def _check_own_id(broker: Broker, name: str, or_what: str) -> None:
    if not name:
        raise Refused(ErrorCode.invalid_request, "Broker id must not be empty")
    if not (name.isascii() and name.removeprefix("-").isdecimal()):
        raise Refused(ErrorCode.invalid_request, f"Broker id must be an integer, but it is: {name}")
    if int(name) != broker.node_id:
        raise Refused(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {broker.node_id}{or_what} but received {name}"
        )


API = Api(32, "DescribeConfigs", 1, 4, handle)
