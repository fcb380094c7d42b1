"""Groups: members and what they own, by the classic protocol and by KIP-848, and the offsets they have committed.

`GroupShard` is the door; one of them serves one partition of `__consumer_offsets`.
"""

from penstock.coordinator.group.requests import Eviction, TopicsView
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.requests import RequestContext

__all__ = ["Eviction", "GroupShard", "RequestContext", "TopicsView"]
