"""Which partitions a change to one broker concerns, so that its failure costs what it touches and not a search through
the whole cluster.

Groups are dictionaries without values: they keep the order in which partitions came, which makes every decision that
goes through them the same when a log is replayed.
"""

from collections.abc import Mapping

from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import NO_LEADER

Group = dict[PartitionImage, None]

_NONE: Mapping[PartitionImage, None] = {}


class PartitionIndex:
    __slots__ = ("_eligible", "_in_sync", "_led", "leaderless", "not_preferred", "reassigning")

    def __init__(self) -> None:
        self._in_sync: dict[int, Group] = {}
        self._eligible: dict[int, Group] = {}
        self._led: dict[int, Group] = {}
        self.leaderless: Group = {}
        # Those that another than their first replica leads.
        self.not_preferred: Group = {}
        self.reassigning: Group = {}

    def in_sync_on(self, broker_id: int) -> list[PartitionImage]:
        """The partitions with that broker in the ISR."""
        return list(self._in_sync.get(broker_id, _NONE))

    def eligible_on(self, broker_id: int) -> list[PartitionImage]:
        """The partitions with that broker in the ELR."""
        return list(self._eligible.get(broker_id, _NONE))

    def led_by(self, broker_id: int) -> Mapping[PartitionImage, None]:
        return self._led.get(broker_id, _NONE)

    def add(self, partition: PartitionImage) -> None:
        for broker_id in partition.isr:
            _enter(self._in_sync, broker_id, partition)
        for broker_id in partition.eligible_leader_replicas:
            _enter(self._eligible, broker_id, partition)
        leader = partition.leader
        if leader == NO_LEADER:
            self.leaderless[partition] = None
        else:
            _enter(self._led, leader, partition)
            if leader != partition.preferred_leader:
                self.not_preferred[partition] = None
        if partition.is_reassigning:
            self.reassigning[partition] = None

    def remove(self, partition: PartitionImage) -> None:
        """To be called before the partition changes, or when it goes."""
        for broker_id in partition.isr:
            _leave(self._in_sync, broker_id, partition)
        for broker_id in partition.eligible_leader_replicas:
            _leave(self._eligible, broker_id, partition)
        if partition.leader == NO_LEADER:
            self.leaderless.pop(partition, None)
        else:
            _leave(self._led, partition.leader, partition)
            self.not_preferred.pop(partition, None)
        self.reassigning.pop(partition, None)


def _enter(groups: dict[int, Group], broker_id: int, partition: PartitionImage) -> None:
    group = groups.get(broker_id)
    if group is None:
        group = groups[broker_id] = {}
    group[partition] = None


def _leave(groups: dict[int, Group], broker_id: int, partition: PartitionImage) -> None:
    group = groups[broker_id]
    del group[partition]
    if not group:
        del groups[broker_id]
