"""Which replica a consumer is sent to, to read near by instead of from the leader (KIP-392).

As Kafka's RackAwareReplicaSelector: among the living replicas in the client's rack that have the offset, the leader if
it is one of them, otherwise the one that has most.
"""

from collections.abc import Mapping

from penstock.cluster.metadata.image import BrokerImage
from penstock.cluster.partition.partition import Partition

NO_REPLICA = -1
RACK_AWARE = "RackAwareReplicaSelector"


def nearest_replica(
    partition: Partition, fetch_offset: int, rack: str, node_id: int, brokers: Mapping[int, BrokerImage]
) -> int:
    """The id of another broker, or NO_REPLICA where the leader, which is asked, is the one to read from."""
    leader = partition.leader
    if leader is None or not rack or _rack_of(node_id, brokers) == rack:
        return NO_REPLICA
    candidates = [
        follower
        for follower in leader.followers.values()
        if _rack_of(follower.broker_id, brokers) == rack
        and 0 <= follower.log_start_offset <= fetch_offset <= follower.log_end_offset
    ]
    if not candidates:
        return NO_REPLICA
    return max(candidates, key=lambda one: (one.log_end_offset, one.last_caught_up_ms)).broker_id


def _rack_of(broker_id: int, brokers: Mapping[int, BrokerImage]) -> str | None:
    """None where it cannot be reached, or stands nowhere in particular."""
    broker = brokers.get(broker_id)
    return None if broker is None or broker.fenced else broker.rack
