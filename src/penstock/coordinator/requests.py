"""What comes into any coordinator besides kio's decoded requests: who asks, and settings."""

from datetime import timedelta
from typing import Any, NamedTuple, Protocol


class RequestContext(NamedTuple):
    """Who asks, and in which version of the API. The host is shown to people, by Kafka's tools too: `/10.0.0.1`."""

    version: int
    client_id: str
    client_host: str


class Settings(Protocol):
    """Typed values by Kafka's names: a node's `NodeSettings`, or a plain dictionary."""

    def __getitem__(self, name: str, /) -> Any: ...


def milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
