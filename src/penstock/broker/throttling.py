"""Which replicas of this node are throttled, and how much (KIP-73), as the metadata says: topics name the replicas,
`leader.replication.throttled.replicas` and `follower.…`, and each broker has a rate, `….replication.throttled.rate`.
"""

from collections.abc import Mapping

from penstock.cluster.metadata.image import ALL_BROKERS, RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from penstock.cluster.partition.partition import Partition
from penstock.cluster.partition.throttle import Throttle

_LEADER, _FOLLOWER = "leader", "follower"
_RATE, _REPLICAS = ".replication.throttled.rate", ".replication.throttled.replicas"
_ALL = "*"
# What `reconfigure` is for.
SETTINGS = frozenset(side + setting for side in (_LEADER, _FOLLOWER) for setting in (_RATE, _REPLICAS))


class _Side(Throttle):
    """What this node sends as a leader, or receives as a follower."""

    def __init__(self, node_id: int, image: MetadataImage, side: str) -> None:
        super().__init__()
        self._node_id = node_id
        self._image = image
        self._rate = side + _RATE
        self._replicas = side + _REPLICAS
        # By topic name, the partitions; None: all of them.
        self._throttled: dict[str, frozenset[int] | None] = {}

    def covers(self, partition: Partition) -> bool:
        if partition.topic not in self._throttled:
            return False
        indexes = self._throttled[partition.topic]
        return indexes is None or partition.index in indexes

    def reconfigure(self) -> None:
        own = self._image.config_of(RESOURCE_BROKER, str(self._node_id))
        rate = own.get(self._rate) or self._image.config_of(RESOURCE_BROKER, ALL_BROKERS).get(self._rate)
        self.bytes_per_second = int(rate) if rate is not None and rate.isdecimal() else None
        self._throttled = {
            name: self._indexes(configs[self._replicas])
            for (kind, name), configs in self._image.configs.items()
            if kind == RESOURCE_TOPIC and configs.get(self._replicas)
        }

    def _indexes(self, text: str) -> frozenset[int] | None:
        if text.strip() == _ALL:
            return None
        pairs = (item.strip().split(":") for item in text.split(",") if item.strip())
        return frozenset(int(index) for index, broker_id in pairs if int(broker_id) == self._node_id)


class Throttling:
    def __init__(self, node_id: int, image: MetadataImage) -> None:
        self.leader = _Side(node_id, image, _LEADER)
        self.follower = _Side(node_id, image, _FOLLOWER)

    def reconfigure(self, partitions: Mapping[bytes, Mapping[int, Partition]]) -> None:
        """Settings of topics or brokers have changed."""
        self.leader.reconfigure()
        self.follower.reconfigure()
        for hosted in partitions.values():
            for partition in hosted.values():
                if partition.follower is not None:
                    partition.follower.is_throttled = self.follower.covers(partition)
