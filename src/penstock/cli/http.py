"""penstock http: REST API, schema registry, metrics and console for a cluster that runs somewhere."""

from typing import Annotated

import typer

from penstock.cli.failures import Failed
from penstock.cli.options import DEFAULT_BROKERS, NONE_GIVEN, ClientProperties, parse_pairs
from penstock.cli.printing import bold, say

HttpPort = Annotated[
    int,
    typer.Option(
        "--http-port", metavar="P", min=0, max=65535, show_default=False, help="One port for all of HTTP, console at /."
    ),
]

LogFormat = Annotated[str, typer.Option("--log-format", help="text, or json with one object a line.")]


def http(
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap", "--brokers", envvar="PENSTOCK_BROKERS", metavar="HOST:PORT,...", help="Brokers to ask first."
        ),
    ] = DEFAULT_BROKERS,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    http_port: HttpPort = 0,
    body_bytes_max: Annotated[
        int, typer.Option("--body-bytes-max", min=1024, metavar="BYTES", help="The largest request body.")
    ] = 10 * 1024 * 1024,
    consumer_idle_ms: Annotated[
        int, typer.Option("--consumer-idle-ms", min=1000, help="Idle HTTP consumers leave their group after this.")
    ] = 300_000,
    consumers_max: Annotated[int, typer.Option("--consumers-max", min=1, help="How many HTTP consumers.")] = 200,
    slow_request_ms: Annotated[
        int, typer.Option("--slow-request-ms", min=1, help="Requests that take longer are logged.")
    ] = 1000,
    allow_origin: Annotated[
        list[str], typer.Option("--allow-origin", metavar="ORIGIN", help="A site whose pages may use this server.")
    ] = NONE_GIVEN,
    broker_metrics: Annotated[
        list[str], typer.Option("--broker-metrics", metavar="NODE=HOST:PORT", help="Where a broker's metrics are.")
    ] = NONE_GIVEN,
    log_format: LogFormat = "text",
    extra: ClientProperties = NONE_GIVEN,
) -> None:
    """Serve HTTP for a running cluster, in the foreground; Ctrl-C stops it."""
    from penstock.cli.log_format import log_to_stderr
    from penstock.http.options import CONSOLE_PORT, REGISTRY_PORT, REST_PORT, HttpOptions
    from penstock.http.process import HttpRefused, run

    log_to_stderr(log_format)
    options = HttpOptions(
        bootstrap,
        host,
        http_port or CONSOLE_PORT,
        http_port or REGISTRY_PORT,
        http_port or REST_PORT,
        client_properties=parse_pairs(extra, "-X"),
        broker_metrics=parse_pairs(broker_metrics, "--broker-metrics"),
        body_bytes_max=body_bytes_max,
        consumer_idle_ms=consumer_idle_ms,
        consumers_max=consumers_max,
        slow_request_ms=slow_request_ms,
        allowed_origins=tuple(allow_origin),
    )
    try:
        run(options, on_ready=lambda: announce(options))
    except HttpRefused as refusal:
        raise Failed(str(refusal)) from refusal


def announce(options: "HttpOptions") -> None:  # type: ignore[name-defined]  # noqa: F821
    say(f"{bold('ready')} " + " ".join(f"http://{options.host}:{port}" for port in options.ports))
