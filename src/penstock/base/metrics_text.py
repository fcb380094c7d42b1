"""Prometheus' text format: families put together from lines that are formatted already, since pages have ten thousands
of them.
"""

from collections.abc import Iterable


def family(name: str, kind: str, meaning: str, lines: Iterable[str]) -> str:
    """Nothing at all where it has no lines."""
    body = "\n".join(lines)
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n{body}\n" if body else ""


def gauges(*metrics: tuple[str, str, float]) -> str:
    """Each of a single value without labels: name, meaning, value."""
    return "".join(family(name, "gauge", meaning, [f"{name} {value}"]) for name, meaning, value in metrics)


def counters(*metrics: tuple[str, str, float]) -> str:
    return "".join(family(name, "counter", meaning, [f"{name} {value}"]) for name, meaning, value in metrics)


def escaped(text: str) -> str:
    """As the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
