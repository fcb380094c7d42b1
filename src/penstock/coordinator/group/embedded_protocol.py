"""What classic consumers put into the opaque bytes of JoinGroup and SyncGroup: subscription and assignment.

Only groups that mix both protocols look into them. Each opens with its version; versions later than those known are
read as the latest known, as all of Kafka's clients do.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

import kio.schema.consumer_protocol_assignment.v0.data as assignment_v0
import kio.schema.consumer_protocol_assignment.v1.data as assignment_v1
import kio.schema.consumer_protocol_assignment.v2.data as assignment_v2
import kio.schema.consumer_protocol_assignment.v3.data as assignment_v3
import kio.schema.consumer_protocol_subscription.v0.data as subscription_v0
import kio.schema.consumer_protocol_subscription.v1.data as subscription_v1
import kio.schema.consumer_protocol_subscription.v2.data as subscription_v2
import kio.schema.consumer_protocol_subscription.v3.data as subscription_v3

from penstock.coordinator.group.requests import TopicsView
from penstock.protocol.messages import Malformed, Struct, decode_prefix, encode

_SUBSCRIPTIONS = (
    subscription_v0.ConsumerProtocolSubscription,
    subscription_v1.ConsumerProtocolSubscription,
    subscription_v2.ConsumerProtocolSubscription,
    subscription_v3.ConsumerProtocolSubscription,
)
_ASSIGNMENTS = (
    assignment_v0.ConsumerProtocolAssignment,
    assignment_v1.ConsumerProtocolAssignment,
    assignment_v2.ConsumerProtocolAssignment,
    assignment_v3.ConsumerProtocolAssignment,
)


class Subscription(NamedTuple):
    topic_names: frozenset[str]
    owned: dict[UUID, tuple[int, ...]]
    rack_id: str | None
