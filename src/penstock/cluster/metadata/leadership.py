"""What becomes of partitions when a broker comes, goes, or asks for another ISR: the changes of many at once.

Decisions about one broker go through the index, so that they cost what the broker holds. A topic's settings are looked
up once per decision, for the failure of a node with thousands of partitions of one topic is one decision.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from penstock.cluster.metadata.features import has_elr
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.partition_change import Election, PartitionChange
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import UNASSIGNED_DIRECTORY, MetadataRecord

TopicSettings = Callable[[str], Mapping[str, Any]]


class Leadership:
    """One decision's view of who may lead what. Made anew for each, since it keeps what it has looked up."""

    def __init__(self, image: MetadataImage, topic_settings: TopicSettings) -> None:
        self._image = image
        self._topic_settings = topic_settings
        self._has_elr = has_elr(image)
        # By topic id: min.insync.replicas in force, and whether elections may be unclean.
        self._rules: dict[uuid.UUID, tuple[int, bool]] = {}
        self._active = {broker.id for broker in image.brokers.values() if broker.is_active}
        # Brokers with several directories, of which one may be offline.
        self._directories = {broker.id: broker.log_dirs for broker in image.brokers.values() if broker.log_dirs}

    def rules_of(self, partition: PartitionImage) -> tuple[int, bool]:
        rules = self._rules.get(partition.topic_id)
        if rules is None:
            topic = self._image.topics_by_id[partition.topic_id]
            settings = self._topic_settings(topic.name)
            # As many as there are replicas will do; a topic's partitions all have as many as the first one.
            isr_min = min(settings["min.insync.replicas"], len(topic.partitions[0].replicas))
            rules = self._rules[partition.topic_id] = (isr_min, settings["unclean.leader.election.enable"])
        return rules

    def change(self, partition: PartitionImage, election: Election | None = None) -> PartitionChange:
        """A change to be filled in. The election is the one that the topic's settings allow, unless one is named."""
        isr_min, may_be_unclean = self.rules_of(partition)
        if election is None:
            election = Election.UNCLEAN if may_be_unclean else Election.ONLINE
        active, directories = self._active, self._directories

        def is_acceptable(broker_id: int) -> bool:
            if broker_id not in active:
                return False
            directory = partition.directory_of(broker_id)
            return directory is None or directory in directories.get(broker_id, (directory,))

        return PartitionChange(partition, is_acceptable, isr_min, has_elr=self._has_elr, election=election)

    def directory_of(self, broker_id: int) -> uuid.UUID | None:
        """Where a broker puts a new replica: left open unless it has one directory only."""
        log_dirs = self._directories.get(broker_id, ())
        return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY

    def without_broker(
        self, broker_id: int, partitions: Iterable[PartitionImage], *, is_unclean: bool = False
    ) -> list[MetadataRecord]:
        """Takes the broker out of the ISRs and from leadership; where its shutdown was unclean, out of the ELRs too."""
        self._active.discard(broker_id)
        unclean_shutdown = (broker_id,) if is_unclean else ()
        return self._records(partitions, removed=broker_id, unclean_shutdown=unclean_shutdown)

    def with_broker(self, broker_id: int) -> list[MetadataRecord]:
        """Lets the broker, who serves from now on, lead what nobody leads."""
        self._active.add(broker_id)
        return self._records(list(self._image.index.leaderless))

    def _records(
        self,
        partitions: Iterable[PartitionImage],
        removed: int | None = None,
        unclean_shutdown: Collection[int] = (),
    ) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        for partition in partitions:
            change = self.change(partition)
            if removed is not None and removed in change.isr:
                change.isr = tuple(one for one in change.isr if one != removed)
            change.unclean_shutdown = unclean_shutdown
            record = change.record(self.directory_of)
            if record is not None:
                records.append(record)
        return records
