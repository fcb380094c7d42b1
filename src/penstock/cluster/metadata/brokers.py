"""Decisions about brokers: they register, send heartbeats, are fenced, unfenced and unregistered. As Kafka's (KIP-631).

A broker is born fenced, and serves once it has read the metadata log up to its own registration. A fenced one is in no
ISR and leads nothing. One that comes back as another incarnation without having been shut down cleanly may have lost
what it had acknowledged: it leaves ISR and ELR before anything else (KIP-966).
"""

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata import features
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.features import METADATA_VERSION_FEATURE
from penstock.cluster.metadata.image import BrokerImage, MetadataImage
from penstock.cluster.metadata.leadership import Leadership, TopicSettings
from penstock.cluster.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from penstock.cluster.metadata.sessions import Sessions

_FENCE = 1
_UNFENCE = -1
_IN_CONTROLLED_SHUTDOWN = 1
_NO_EPOCH = -1
# Kafka sets the ids below aside for directories that are not there.
_RESERVED_DIRECTORIES_END = 100


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker that introduces itself."""

    broker_id: int
    cluster_id: str
    incarnation_id: uuid.UUID
    # Name, host, port, security protocol.
    listeners: Sequence[tuple[str, str, int, int]]
    # Lowest and highest level by feature.
    features: Sequence[tuple[str, int, int]] = ()
    rack: str | None = None
    log_dirs: Sequence[uuid.UUID] = ()
    # The epoch that a clean shutdown left behind; -1 after any other end.
    previous_broker_epoch: int = _NO_EPOCH


@dataclass(frozen=True, slots=True)
class Heartbeat:
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Sequence[uuid.UUID] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    error_code: ErrorCode = ErrorCode.none


class Brokers:
    def __init__(
        self, image: MetadataImage, sessions: Sessions, topic_settings: TopicSettings, cluster_id: str
    ) -> None:
        self._image = image
        self._sessions = sessions
        self._topic_settings = topic_settings
        self._cluster_id = cluster_id

    # Registration

    def register(self, registration: Registration, now_ms: int, *, previous_is_gone: bool) -> Decision[int]:
        """The answer is the broker's epoch, which grows with every incarnation: the offset of the decision's first
        record, as in Kafka. Raises Refused."""
        if registration.cluster_id != self._cluster_id:
            raise Refused(
                ErrorCode.inconsistent_cluster_id,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {registration.cluster_id}",
            )
        broker_id = registration.broker_id
        known = self._image.brokers.get(broker_id)
        is_same = known is not None and known.incarnation == registration.incarnation_id
        if not is_same and not previous_is_gone and self._sessions.is_alive(broker_id, now_ms):
            raise Refused(ErrorCode.duplicate_broker_registration, "Another broker is registered with that broker id.")
        self._check_directories(registration)
        self._check_features(registration)
        records = features.opening_records(self._image)
        epoch = self._image.end_offset
        fenced, in_controlled_shutdown = True, False
        if known is not None and is_same:
            epoch, fenced, in_controlled_shutdown = known.epoch, known.fenced, known.in_controlled_shutdown
        elif known is not None:
            is_unclean = registration.previous_broker_epoch != known.epoch
            records += self._records_of_previous(known, is_unclean=is_unclean)
            self._sessions.end(broker_id)
        records.append(_registration_record(registration, epoch, fenced, in_controlled_shutdown))
        return Decision(epoch, records)

    def _records_of_previous(self, broker: BrokerImage, *, is_unclean: bool) -> list[MetadataRecord]:
        index = self._image.index
        concerned = index.in_sync_on(broker.id)
        if is_unclean:
            # The two are disjoint, so no partition is changed twice.
            concerned += index.eligible_on(broker.id)
        return self._leadership().without_broker(broker.id, concerned, is_unclean=is_unclean)

    def _check_directories(self, registration: Registration) -> None:
        for directory, times in Counter(registration.log_dirs).items():
            if directory.int < _RESERVED_DIRECTORIES_END:
                raise Refused(ErrorCode.invalid_registration, "Reserved directory ID in request")
            if times > 1:
                raise Refused(ErrorCode.invalid_registration, "Duplicate directory ID in request")
        for other in self._image.brokers.values():
            for directory in other.log_dirs:
                if other.id != registration.broker_id and directory in registration.log_dirs:
                    raise Refused(
                        ErrorCode.invalid_registration,
                        f"Broker {other.id} is already registered with directory {directory}. Is the data directory a "
                        "copy of that broker's?",
                    )

    def _check_features(self, registration: Registration) -> None:
        """A broker must be able to do every level in force."""
        supported = {name: (low, high) for name, low, high in registration.features}
        for name, level in self._image.features.items():
            # Whoever says nothing of it can do the first metadata.version only, and nothing of other features.
            low, high = supported.get(name, (1, 1) if name == METADATA_VERSION_FEATURE else (0, 0))
            if not low <= level <= high:
                raise Refused(
                    ErrorCode.unsupported_version,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                    f"broker wants a version between {low} and {high}, inclusive.",
                )

    def unregister(self, broker_id: int) -> Decision[None]:
        """Raises Refused."""
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise Refused(ErrorCode.broker_id_not_registered, f"Broker ID {broker_id} is not currently registered")
        records = self._records_of_previous(broker, is_unclean=True)
        records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
        self._sessions.end(broker_id)
        return Decision(None, records)

    # Heartbeats

    def heartbeat(self, heartbeat: Heartbeat, now_ms: int) -> Decision[HeartbeatAnswer]:
        """Raises Refused(STALE_BROKER_EPOCH)."""
        broker = self.checked(heartbeat.broker_id, heartbeat.broker_epoch)
        is_caught_up = heartbeat.current_metadata_offset >= broker.must_know_offset
        if broker.fenced:
            return self._heartbeat_of_fenced(broker, heartbeat, is_caught_up, now_ms)
        records: list[MetadataRecord] = []
        shut_down = False
        if heartbeat.want_fence:
            shut_down = heartbeat.want_shut_down
            records = self._fence(broker)
        elif self._sessions.is_shutting_down(broker.id):
            if not self._image.index.led_by(broker.id) and self._sessions.everybody_knows_of_shutdown(broker.id):
                shut_down = True
                records = self._fence(broker)
        elif heartbeat.want_shut_down:
            if self._image.index.led_by(broker.id):
                self._sessions.touch(broker.id, heartbeat.current_metadata_offset, now_ms)
                records = self._begin_controlled_shutdown(broker)
            else:
                shut_down = True
                records = self._fence(broker)
        is_fenced = heartbeat.want_fence or shut_down
        if not is_fenced:
            self._sessions.touch(broker.id, heartbeat.current_metadata_offset, now_ms)
            records += self._directories_offline(broker, heartbeat.offline_log_dirs)
        return Decision(HeartbeatAnswer(is_caught_up, is_fenced, shut_down), records)

    def _heartbeat_of_fenced(
        self, broker: BrokerImage, heartbeat: Heartbeat, is_caught_up: bool, now_ms: int
    ) -> Decision[HeartbeatAnswer]:
        if heartbeat.want_shut_down:
            return Decision(HeartbeatAnswer(is_caught_up, True, True))
        if heartbeat.want_fence or not is_caught_up:
            return Decision(HeartbeatAnswer(is_caught_up, True, False))
        self._sessions.touch(broker.id, heartbeat.current_metadata_offset, now_ms)
        records: list[MetadataRecord] = [
            BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_UNFENCE)
        ]
        records += self._leadership().with_broker(broker.id)
        return Decision(HeartbeatAnswer(is_caught_up, False, False), records)

    def _begin_controlled_shutdown(self, broker: BrokerImage) -> list[MetadataRecord]:
        """Others lead what the broker led, and it leaves the ISRs, while it still serves."""
        records: list[MetadataRecord] = []
        if not broker.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=_IN_CONTROLLED_SHUTDOWN
                )
            )
        records += self._leadership().without_broker(broker.id, self._image.index.in_sync_on(broker.id))
        self._sessions.begin_shutdown(broker.id, self._image.end_offset + len(records) - 1)
        return records

    def _directories_offline(self, broker: BrokerImage, offline: Sequence[uuid.UUID]) -> list[MetadataRecord]:
        failed = [directory for directory in broker.log_dirs if directory in offline]
        if not failed:
            return []
        if len(failed) == len(broker.log_dirs):
            # With nowhere to write it cannot hold anything; and a record with no directories would mean "as before".
            return self._fence(broker)
        concerned = [
            partition
            for partition in self._image.index.in_sync_on(broker.id)
            if partition.directory_of(broker.id) in failed
        ]
        records = self._leadership().without_broker(broker.id, concerned)
        left = tuple(directory for directory in broker.log_dirs if directory not in failed)
        records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left))
        return records

    # Fencing

    def fence(self, broker_id: int, broker_epoch: int) -> Decision[bool]:
        """The answer says whether there was anything to fence."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return Decision(False)
        return Decision(True, self._fence(broker))

    def fence_one_stale(self, now_ms: int) -> Decision[int | None]:
        """One at a time, so that the next is decided in the light of this. The answer is its id."""
        broker_id = self._sessions.find_stale(now_ms)
        broker = None if broker_id is None else self._image.brokers.get(broker_id)
        if broker is None:
            return Decision(None)
        return Decision(broker.id, self._fence(broker))

    def _fence(self, broker: BrokerImage) -> list[MetadataRecord]:
        self._sessions.end(broker.id)
        records = self._leadership().without_broker(broker.id, self._image.index.in_sync_on(broker.id))
        records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_FENCE))
        return records

    def checked(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """The broker, if it is the incarnation that is registered. Raises Refused(STALE_BROKER_EPOCH)."""
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise Refused(ErrorCode.stale_broker_epoch, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise Refused(
                ErrorCode.stale_broker_epoch,
                f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
            )
        return broker

    def _leadership(self) -> Leadership:
        return Leadership(self._image, self._topic_settings)


def register_controller(
    controller_id: int,
    incarnation_id: uuid.UUID,
    listeners: Sequence[tuple[str, str, int, int]],
    supported: Sequence[tuple[str, int, int]],
) -> Decision[None]:
    record = RegisterControllerRecord(
        controller_id=controller_id,
        incarnation_id=incarnation_id,
        end_points=tuple(
            ControllerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in listeners
        ),
        features=tuple(
            ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in supported
        ),
    )
    return Decision(None, [record])


def _registration_record(
    registration: Registration, epoch: int, fenced: bool, in_controlled_shutdown: bool
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=registration.broker_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=epoch,
        end_points=tuple(
            BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in registration.listeners
        ),
        features=tuple(
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in registration.features
        ),
        rack=registration.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=tuple(registration.log_dirs),
    )
