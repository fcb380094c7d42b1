"""Which brokers clients are told of: those that serve, and those that were away only for a moment.

A broker that restarts is fenced for a second or two. Clients of librdkafka from 2.10 on forget a broker as soon as the
metadata do not name it, and may wait for ever for the coordinator that they knew there. Kafka's brokers are missed only
after their session of nine seconds, and named until then; here a silent one is fenced much sooner, and named as long.
"""

from penstock.base.ports import Clock
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)

_MOMENT_MS = 9000


class Absences:
    def __init__(self, image: MetadataImage, clock: Clock) -> None:
        self._image = image
        self._clock = clock
        # When each broker was last fenced, as far as this node has seen it happen.
        self._since_ms: dict[int, int] = {}

    def follow(self, record: MetadataRecord) -> None:
        match record:
            case FenceBrokerRecord():
                self._since_ms[record.id] = self._clock.monotonic_ms()
            case RegisterBrokerRecord(fenced=True) | BrokerRegistrationChangeRecord(fenced=1):
                self._since_ms[record.broker_id] = self._clock.monotonic_ms()

    def named(self) -> list[int]:
        """Never nobody: whoever asks must find his way back to this cluster."""
        brokers = self._image.brokers.values()
        found = [one.id for one in brokers if not one.fenced or self._is_recent(one.id)]
        return sorted(found or [one.id for one in brokers])

    def _is_recent(self, broker_id: int) -> bool:
        since_ms = self._since_ms.get(broker_id)
        return since_ms is not None and self._clock.monotonic_ms() - since_ms < _MOMENT_MS
