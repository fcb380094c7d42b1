"""How topics and partitions look to clients: what several handlers have in common."""

from collections.abc import Sequence

from penstock.base.errors import ErrorCode
from penstock.broker.api import Broker
from penstock.cluster.metadata.image import PartitionImage
from penstock.cluster.metadata.records import NO_LEADER
from penstock.cluster.partition.partition import Partition

# Bit fields of all operations on a topic and on the cluster, by Kafka's AclOperation numbers: what everybody may do
# while there is no authorizer.
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
# "Nobody asked."
NO_OPERATIONS = -(2**31)


def serving_brokers(broker: Broker) -> frozenset[int]:
    """The brokers that clients can be sent to."""
    return frozenset(other.id for other in broker.image.brokers.values() if not other.fenced)


def find_led(broker: Broker, topic: str, index: int, leader_epoch: int = -1) -> Partition | ErrorCode:
    """The partition, if this node leads it, in the epoch that the client knows: -1 says that it knows none."""
    partition = broker.topics_by_name.get(topic.encode(), {}).get(index)
    if partition is not None:
        epoch_error = partition.check_leader_epoch(leader_epoch)
        if epoch_error:
            return epoch_error
        return partition if partition.is_leading else ErrorCode.not_leader_or_follower
    known = broker.image.topics.get(topic)
    if known is None or index not in known.partitions:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.not_leader_or_follower


class PartitionAnswer:
    """A partition with the messages' field names. Slots and plain assignments, because an answer about all topics has
    tens of thousands of them, and a Struct takes three times as long to make."""

    __slots__ = (
        "eligible_leader_replicas",
        "error_code",
        "isr_nodes",
        "last_known_elr",
        "leader_epoch",
        "leader_id",
        "offline_replicas",
        "partition_index",
        "replica_nodes",
    )

    def __init__(self, index: int, partition: PartitionImage, serving: frozenset[int]) -> None:
        self.partition_index = index
        self.leader_epoch = partition.leader_epoch
        self.replica_nodes = replicas = partition.replicas
        self.isr_nodes = partition.isr
        self.eligible_leader_replicas = partition.eligible_leader_replicas
        self.last_known_elr = partition.last_known_elr
        self.offline_replicas: Sequence[int] = ()
        if not serving.issuperset(replicas):
            self.offline_replicas = [replica for replica in replicas if replica not in serving]
        if partition.leader in serving:
            self.error_code = ErrorCode.none
            self.leader_id = partition.leader
        else:
            self.error_code = ErrorCode.leader_not_available
            self.leader_id = NO_LEADER
