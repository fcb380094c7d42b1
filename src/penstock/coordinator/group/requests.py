"""What comes into a group coordinator besides kio's decoded requests: who asks, which topics there are, settings."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol
from uuid import UUID


class RequestContext(NamedTuple):
    """Who asks, and in which version of the API."""

    version: int
    client_id: str
    client_host: str


class TopicsView(Protocol):
    """The topics of the cluster as the coordinator sees them now."""

    version: int
    """Grows with every change."""

    def partition_count(self, topic_name: str) -> int | None: ...

    def topic_id(self, topic_name: str) -> UUID | None: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def names(self) -> Iterable[str]: ...


class Settings(Protocol):
    """Typed values by Kafka's names: a node's `NodeSettings`, or a plain dictionary."""

    def __getitem__(self, name: str, /) -> Any: ...


class Eviction(NamedTuple):
    """Why the coordinator put a member out, for people who ask later."""

    member_id: str
    at_ms: int
    reason: str
