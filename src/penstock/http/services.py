"""What the endpoints share: the options, the clients of the cluster, the registry where there is one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.http.errors import ApiError
from penstock.http.options import HttpOptions

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock.http.administration import Administration
    from penstock.http.broker_metrics import BrokerMetricsPages
    from penstock.http.charts import Charts
    from penstock.http.cluster_metrics import ClusterMetrics
    from penstock.http.consuming import Consumers
    from penstock.http.metrics import HttpMetrics
    from penstock.http.producing import Producing
    from penstock.http.schema_values import SchemaValues


@dataclass
class Services:
    """Filled when the app starts."""

    options: HttpOptions
    metrics: "HttpMetrics"
    producing: "Producing"
    consumers: "Consumers"
    administration: "Administration"
    cluster_metrics: "ClusterMetrics"
    broker_metrics: "BrokerMetricsPages"
    charts: "Charts"
    registry: Any = None
    values: "SchemaValues | None" = None
    tails: int = 0

    def schema_values(self) -> "SchemaValues":
        """Raises ApiError."""
        if self.values is None:
            raise ApiError(50101, "this server runs without a schema registry", "Send base64, JSON or text.")
        return self.values


def services_of(request: "Request") -> Services:
    services: Services = request.app.state.services
    return services
