"""The controller: decides every change of the metadata, and changes nothing itself.

The caller's duties: append a decision's records to the metadata log as one batch, make them durable, replay them into
the image in order, and only then let the answer go. A decision rests on the image as it was, so no other may be taken
before its records are replayed.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random
from penstock.base.settings import NodeSettings
from penstock.cluster.metadata import alter_partition, configs, directories, elections, features, reassignments, topics
from penstock.cluster.metadata.alter_partition import AlteredPartition, IsrProposal
from penstock.cluster.metadata.brokers import Brokers, Heartbeat, HeartbeatAnswer, Registration, register_controller
from penstock.cluster.metadata.configs import AlteredResource, ResourceChanges
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.directories import DirectoryAssignment
from penstock.cluster.metadata.elections import ElectedPartition
from penstock.cluster.metadata.features import FeatureUpdate, UpdatedFeature
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.reassignments import OngoingReassignment, ReassignedPartition, Reassignment
from penstock.cluster.metadata.records import ProducerIdsRecord
from penstock.cluster.metadata.sessions import Sessions
from penstock.cluster.metadata.topics import CreatedTopic, DeletedTopic, MorePartitions, NewTopic, PartitionsResult

PRODUCER_ID_BLOCK = 1000
_INT64_MAX = 2**63 - 1


class Controller:
    def __init__(self, image: MetadataImage, settings: NodeSettings, random: Random, cluster_id: str) -> None:
        self._image = image
        self._settings = settings
        self._random = random
        self._sessions = Sessions(settings["broker.session.timeout.ms"])
        self._brokers = Brokers(image, self._sessions, self.topic_settings, cluster_id)

    # Topics and settings

    def create_topics(
        self, requested: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Decision[list[CreatedTopic]]:
        return topics.create_topics(self._image, self._settings, self._random, requested, validate_only=validate_only)

    def delete_topics(self, requested: Sequence[tuple[str | None, uuid.UUID | None]]) -> Decision[list[DeletedTopic]]:
        return topics.delete_topics(self._image, self._settings, requested)

    def create_partitions(
        self, requested: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Decision[list[PartitionsResult]]:
        return topics.create_partitions(self._image, self._random, requested, validate_only=validate_only)

    def alter_configs(
        self, requested: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Decision[list[AlteredResource]]:
        return configs.alter_configs(self._image, self._settings, requested, validate_only=validate_only)

    def incremental_alter_configs(
        self, requested: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Decision[list[AlteredResource]]:
        return configs.incremental_alter_configs(self._image, self._settings, requested, validate_only=validate_only)

    # Brokers

    def activate(self, now_ms: int, heard_ms: Mapping[int, int] | None = None) -> None:
        """This node has become the active controller, and has replayed the whole log. `heard_ms` says when it last
        heard of the controller before it, by the id of that."""
        self._sessions.start(self._image.brokers.values(), now_ms, heard_ms or {})

    def register_broker(
        self, registration: Registration, now_ms: int, *, previous_is_gone: bool = False
    ) -> Decision[int]:
        """The answer is the broker's epoch. `previous_is_gone` says that the caller knows that no earlier incarnation
        runs any more, as a process knows of itself. Raises Refused."""
        return self._brokers.register(registration, now_ms, previous_is_gone=previous_is_gone)

    def heartbeat(self, heartbeat: Heartbeat, now_ms: int) -> Decision[HeartbeatAnswer]:
        """Raises Refused(STALE_BROKER_EPOCH)."""
        return self._brokers.heartbeat(heartbeat, now_ms)

    def on_connection_lost(self, broker_id: int, broker_epoch: int) -> Decision[bool]:
        """Fences a broker that is known to be dead, without waiting for its session to run out."""
        return self._brokers.fence(broker_id, broker_epoch)

    def next_deadline_ms(self) -> int | None:
        """When to call `on_deadline`; None while nobody has a session."""
        return self._sessions.next_deadline_ms()

    def on_deadline(self, now_ms: int) -> Decision[int | None]:
        """Fences one broker that was silent for too long; the answer is its id. To be called again at the deadline that
        is next then, which may be now."""
        return self._brokers.fence_one_stale(now_ms)

    def unregister_broker(self, broker_id: int) -> Decision[None]:
        """Raises Refused."""
        return self._brokers.unregister(broker_id)

    def register_controller(
        self,
        controller_id: int,
        incarnation_id: uuid.UUID,
        listeners: Sequence[tuple[str, str, int, int]],
        supported: Sequence[tuple[str, int, int]],
    ) -> Decision[None]:
        return register_controller(controller_id, incarnation_id, listeners, supported)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Decision[range]:
        """A block of ids that nobody was or will be given. What the broker does not use of it is lost. Raises
        Refused."""
        self._brokers.checked(broker_id, broker_epoch)
        first = self._image.next_producer_id
        if first > _INT64_MAX - PRODUCER_ID_BLOCK:
            raise Refused(ErrorCode.unknown_server_error, "All producer ids have been given out.")
        block = range(first, first + PRODUCER_ID_BLOCK)
        record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.stop)
        return Decision(block, [record])

    def update_features(
        self, requested: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> Decision[list[UpdatedFeature]]:
        return features.update_features(self._image, requested, validate_only=validate_only)

    # Leaders and replicas

    def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrProposal]
    ) -> Decision[list[AlteredPartition]]:
        """Raises Refused(STALE_BROKER_EPOCH)."""
        self._brokers.checked(broker_id, broker_epoch)
        return alter_partition.alter_partitions(self._image, self.topic_settings, broker_id, proposals)

    def assign_directories(
        self, broker_id: int, broker_epoch: int, requested: Sequence[DirectoryAssignment]
    ) -> Decision[list[ErrorCode]]:
        """Raises Refused(STALE_BROKER_EPOCH)."""
        self._brokers.checked(broker_id, broker_epoch)
        return directories.assign_directories(self._image, self.topic_settings, broker_id, requested)

    def elect_leaders(
        self, election_type: int, requested: Sequence[tuple[str, int]] | None
    ) -> Decision[list[ElectedPartition]]:
        """None asks for all partitions. Raises Refused."""
        return elections.elect_leaders(self._image, self.topic_settings, election_type, requested)

    def elect_preferred(self) -> Decision[bool]:
        """To be called every `leader.imbalance.check.interval.seconds`, again at once where the answer is True."""
        return elections.elect_preferred(self._image, self.topic_settings)

    def elect_unclean(self) -> Decision[bool]:
        """To be called when `unclean.leader.election.enable` was set, again at once where the answer is True."""
        return elections.elect_unclean(self._image, self.topic_settings)

    def alter_reassignments(
        self, requested: Sequence[Reassignment], *, may_change_factor: bool = True
    ) -> Decision[list[ReassignedPartition]]:
        return reassignments.alter_reassignments(
            self._image, self.topic_settings, requested, may_change_factor=may_change_factor
        )

    def list_reassignments(self, requested: Iterable[tuple[str, int]] | None) -> list[OngoingReassignment]:
        return reassignments.list_reassignments(self._image, requested)

    def topic_settings(self, name: str) -> Mapping[str, Any]:
        """A topic's settings in force, typed, by name."""
        return self._settings.topic_values(self._image.topic_configs(name))
