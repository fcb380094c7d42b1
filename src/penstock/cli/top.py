"""penstock top: what the cluster does now, in the terminal: brokers, topics, requests, groups; refreshed as it goes.

Everything comes from the HTTP server: /api/overview, /api/topics, /api/groups and the brokers' metrics.
"""

import json
import re
import urllib.error
import urllib.request
from typing import Annotated, Any

import typer

from penstock.cli.failures import Failed
from penstock.cli.options import DEFAULT_URL, HttpUrl

_QUANTILE = re.compile(r'kafka_network_requestmetrics_totaltimems\{request="(\w+)",quantile="([\d.]+)"\} (\S+)')
_COUNT = re.compile(r'kafka_network_requestmetrics_totaltimems_count\{request="(\w+)"\} (\d+)')
_TIMEOUT_S = 5.0
ROWS_MAX = 50


def top(
    url: HttpUrl = DEFAULT_URL,
    interval: Annotated[float, typer.Option("--interval", min=0.5, metavar="SECONDS", help="Between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look as text and end.")] = False,
) -> None:
    """Watch the cluster: traffic, slow requests, lag. q ends it."""
    source = Source(url)
    first = source.look()
    if once:
        from penstock.cli.printing import say

        say(as_text(Tables(None, first, interval)))
        return
    from penstock.cli.top_screen import TopScreen

    TopScreen(source, first, interval).run()


class Source:
    """Asks the HTTP server; blocks. Raises Failed."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def look(self) -> dict[str, Any]:
        overview = self._json("/api/overview")
        pages = [self._text(f"/metrics/brokers/{one['id']}") for one in overview["brokers"] if one["started"]]
        return {
            "overview": overview,
            "topics": self._json("/api/topics?internal=false")["topics"],
            "groups": self._json("/api/groups")["groups"],
            "requests": [requests_of(page) for page in pages],
        }

    def _json(self, path: str) -> Any:
        return json.loads(self._text(path))

    def _text(self, path: str) -> str:
        try:
            with urllib.request.urlopen(self.url + path, timeout=_TIMEOUT_S) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as problem:
            raise Failed(f"{self.url}{path} answered {problem.code}: {problem.read()[:200].decode()}") from problem
        except OSError as problem:
            raise Failed(
                f"no HTTP server at {self.url} ({problem}). Start one with `penstock up`, or name yours with --url."
            ) from problem


def requests_of(page: str) -> dict[str, dict[str, float]]:
    """Count and percentiles in milliseconds by API, from a broker's metrics."""
    found: dict[str, dict[str, float]] = {}
    for name, quantile, value in _QUANTILE.findall(page):
        found.setdefault(name, {})[quantile] = float(value)
    for name, count in _COUNT.findall(page):
        found.setdefault(name, {})["count"] = float(count)
    return found


class Tables:
    """Two looks, made into rows: rates come from the difference."""

    def __init__(self, before: dict[str, Any] | None, now: dict[str, Any], seconds: float) -> None:
        self._seconds = seconds
        overview = now["overview"]
        earlier = {} if before is None else before["overview"]
        self.headline = (
            f"{overview['cluster_id']}  {len(overview['brokers'])} brokers  {overview['topics']} topics  "
            f"{overview['partitions']} partitions  {overview['under_replicated']} behind  "
            f"{overview['offline']} offline  "
            f"in {self._rate(earlier, overview, 'messages_in_total')} msg/s "
            f"{self._rate(earlier, overview, 'bytes_in_total', 1e6)} MB/s  "
            f"out {self._rate(earlier, overview, 'bytes_out_total', 1e6)} MB/s"
        )
        self.brokers = [
            [
                str(one["id"]) + ("*" if one["is_controller"] else ""),
                f"{one['host']}:{one['port']}",
                str(one["leaders"]),
                str(one["replicas"]),
                _megabytes(one["log_bytes"]),
                _megabytes(one["disk_free_bytes"]),
                _megabytes(one["resident_bytes"]),
                "" if one["loop_lag_max_seconds"] is None else f"{one['loop_lag_max_seconds'] * 1000:.0f} ms",
            ]
            for one in overview["brokers"]
        ]
        then = {} if before is None else {one["name"]: one for one in before["topics"]}
        topics = sorted(now["topics"], key=lambda one: one["messages_in_total"] - _earlier(then, one), reverse=True)
        self.topics = [
            [
                one["name"],
                str(one["partitions"]),
                self._rate(then.get(one["name"], {}), one, "messages_in_total"),
                self._rate(then.get(one["name"], {}), one, "bytes_in_total", 1e6),
                self._rate(then.get(one["name"], {}), one, "bytes_out_total", 1e6),
                _megabytes(one["log_bytes"]),
            ]
            for one in topics[:ROWS_MAX]
        ]
        groups = sorted(now["groups"], key=lambda one: -one["lag"])
        self.groups = [
            [one["group"], one["state"].lower(), str(one["members"]), f"{one['lag']:,}"] for one in groups[:ROWS_MAX]
        ]
        self.requests = self._requests(before, now)

    def _requests(self, before: dict[str, Any] | None, now: dict[str, Any]) -> list[list[str]]:
        rows = []
        for number, requests in enumerate(now["requests"]):
            earlier = before["requests"][number] if before and number < len(before["requests"]) else {}
            for name, figures in requests.items():
                count = figures.get("count", 0) - earlier.get(name, {}).get("count", figures.get("count", 0))
                rows.append((count / self._seconds, name, figures))
        rows.sort(key=lambda row: (-row[0], row[1]))
        return [
            [name, f"{rate:,.0f}", *(f"{figures.get(quantile, 0):.2f}" for quantile in ("0.5", "0.95", "0.99"))]
            for rate, name, figures in rows[:ROWS_MAX]
        ]

    def _rate(self, earlier: dict[str, Any], now: dict[str, Any], name: str, unit: float = 1) -> str:
        if name not in earlier:
            return "-"
        rate = max(0.0, now[name] - earlier[name]) / self._seconds / unit
        return f"{rate:,.0f}" if unit == 1 else f"{rate:,.1f}"


TITLES = {
    "brokers": ("broker", "address", "leads", "replicas", "log MB", "free MB", "memory MB", "loop lag"),
    "topics": ("topic", "partitions", "msg/s in", "MB/s in", "MB/s out", "log MB"),
    "requests": ("request", "per s", "p50 ms", "p95 ms", "p99 ms"),
    "groups": ("group", "state", "members", "lag"),
}


def _earlier(then: dict[str, Any], one: dict[str, Any]) -> float:
    total: float = then.get(one["name"], {}).get("messages_in_total", 0)
    return total


def _megabytes(count: float | None) -> str:
    return "" if count is None else f"{count / 1e6:,.1f}"


def as_text(tables: Tables) -> str:
    lines = [tables.headline]
    for name, titles in TITLES.items():
        rows = [list(titles), *getattr(tables, name)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
        lines += ["", *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)]
    return "\n".join(line.rstrip() for line in lines)
