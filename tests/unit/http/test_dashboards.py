"""The dashboard and the alert rules ask for metrics that there are."""

import json
import re
from pathlib import Path

from penstock.broker import metrics_page
from penstock.http import cluster_metrics

ROOT = Path(__file__).parents[3]
_METRIC = re.compile(r"\b(?:kafka|penstock|process)_[a-z_]+")
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


def written_metrics() -> set[str]:
    """Every name in the sources that write metrics; the families of topics are put together there."""
    names: set[str] = set()
    for module in (metrics_page, cluster_metrics):
        assert module.__file__ is not None
        names |= set(_METRIC.findall(Path(module.__file__).read_text()))
    names |= {f"kafka_server_brokertopicmetrics_{short}_total" for short, _ in metrics_page._OF_A_TOPIC}
    names |= {f"kafka_consumergroup_{one}" for one in ("members", "current_offset", "lag", "lag_sum")}
    return names


def missing(expression: str) -> set[str]:
    return {name for name in _METRIC.findall(expression) if _SUFFIX.sub("", name) not in written_metrics()}


def test_every_panel_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) >= 12
    assert {expression: missing(expression) for expression in expressions if missing(expression)} == {}


def test_every_rule_asks_for_metrics_that_there_are_and_says_what_to_do() -> None:
    text = (ROOT / "docs" / "alert-rules.yml").read_text()
    expressions = re.findall(r"expr: (.*)", text)
    assert len(expressions) >= 10
    assert {expression: missing(expression) for expression in expressions if missing(expression)} == {}
    assert text.count("action: ") == len(expressions)
