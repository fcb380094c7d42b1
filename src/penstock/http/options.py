"""What the HTTP process is told when it starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CONSOLE_PORT = 8080
REGISTRY_PORT = 8081
REST_PORT = 8082


@dataclass(frozen=True)
class HttpOptions:
    """As JSON can carry it: `penstock up` hands it to its child."""

    bootstrap: str
    host: str = "127.0.0.1"
    # All of them serve everything; what `/` answers depends on the port.
    console_port: int = CONSOLE_PORT
    registry_port: int = REGISTRY_PORT
    rest_port: int = REST_PORT
    # librdkafka's properties, for brokers that want TLS or passwords.
    client_properties: Mapping[str, str] = field(default_factory=dict)
    # Where the brokers' own metrics are, as `host:port` by node id.
    broker_metrics: Mapping[str, str] = field(default_factory=dict)
    body_bytes_max: int = 10 * 1024 * 1024
    consumer_idle_ms: int = 300_000
    consumers_max: int = 200
    tails_max: int = 64
    slow_request_ms: int = 1_000
    # Requests from pages of other sites are refused, unless their origin is one of these.
    allowed_origins: tuple[str, ...] = ()

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((self.console_port, self.registry_port, self.rest_port)))
