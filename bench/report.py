"""A run's outcome: the table on the terminal, JSON and a chart under bench/results, a block for the README."""

import json
import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.brokers import KAFKA_VERSION, REPOSITORY
from bench.figures import Comparison, Verdict

RESULTS = REPOSITORY / "bench" / "results"
_BAR_COLOURS = {
    Verdict.MET: "seagreen",
    Verdict.MISSED: "indianred",
    Verdict.NO_GOAL: "grey",
    Verdict.NOT_MEASURED: "grey",
}
_COLOURS = {Verdict.MET: "green", Verdict.MISSED: "red", Verdict.NO_GOAL: "", Verdict.NOT_MEASURED: "yellow"}


def shown_value(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def _row(comparison: Comparison) -> list[str]:
    figure = comparison.figure
    goal = figure.goal.shown(figure.unit) if figure.goal else ""
    if figure.cpu_goal:
        goal += f", CPU {figure.cpu_goal.shown('')}"
    return [
        figure.label,
        figure.client,
        shown_value(comparison.kafka_value, figure.unit),
        shown_value(comparison.penstock_value, figure.unit),
        "–" if comparison.ratio is None else f"{comparison.ratio:.2f}x",
        goal,
        comparison.verdict.value,
        _pair(comparison.kafka_cpu, comparison.penstock_cpu),
        _pair(*comparison.client_cpu),
    ]


def _pair(kafka: float | None, penstock: float | None) -> str:
    if kafka is None and penstock is None:
        return ""
    return " / ".join("–" if each is None else f"{each:.2f}" for each in (kafka, penstock))


_COLUMNS = (
    "figure",
    "client",
    "Apache Kafka",
    "Penstock",
    "ratio",
    "goal",
    "verdict",
    "broker CPU s/M",
    "client CPU s/M",
)


def print_table(console: Console, comparisons: Sequence[Comparison], machine: dict[str, str | int | float]) -> None:
    title = f"Penstock beside Apache Kafka {KAFKA_VERSION}, medians of {machine['rounds']} rounds"
    table = Table(title=f"{title} ({machine['sizes']} sizes)")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("figure", "client", "verdict") else "right")
    for comparison in comparisons:
        table.add_row(*_row(comparison), style=_COLOURS[comparison.verdict])
    console.print(table)
    for comparison in comparisons:
        for note in comparison.notes:
            console.print(f"{comparison.figure.label}: {note}", style="dim", markup=False, highlight=False)
    counts = {verdict: sum(each.verdict is verdict for each in comparisons) for verdict in Verdict}
    console.print(
        f"{counts[Verdict.MET]} goals met, {counts[Verdict.MISSED]} missed, {counts[Verdict.NOT_MEASURED]} not measured"
    )


def markdown(comparisons: Sequence[Comparison], machine: dict[str, str | int | float]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---|---|--:|--:|--:|--:|---|--:|--:|"]
    lines += [f"| {' | '.join(_row(comparison))} |" for comparison in comparisons]
    lines.append("")
    lines.append(
        f"Medians of {machine['rounds']} rounds ({machine['sizes']} sizes), "
        "both brokers in the same run with the same clients, "
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, {str(machine['date'])[:10]}."
    )
    return "\n".join(lines)


def machine_facts(rounds: int, is_quick: bool) -> dict[str, str | int | float]:
    processor = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": rounds,
        "sizes": "quick" if is_quick else "full",
        "processor": processor,
        "cores": os.cpu_count() or 0,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load_average": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "apache_kafka": KAFKA_VERSION,
    }


def save(comparisons: Sequence[Comparison], machine: dict[str, str | int | float]) -> list[Path]:
    """Writes the JSON and the chart, named after the moment and as `latest`; the paths of the former."""
    RESULTS.mkdir(exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    data = {"machine": machine, "figures": [_as_json(comparison) for comparison in comparisons]}
    saved = RESULTS / f"{stamp}.json"
    saved.write_text(json.dumps(data, indent=2) + "\n")
    paths = [saved]
    if any(comparison.ratio is not None for comparison in comparisons):
        chart = RESULTS / f"{stamp}.svg"
        _draw(comparisons, machine, chart)
        paths.append(chart)
    for path in paths:
        shutil.copyfile(path, RESULTS / f"latest{path.suffix}")
    return paths


def _as_json(comparison: Comparison) -> dict[str, object]:
    return {
        **asdict(comparison.figure),
        "apache_kafka": comparison.kafka_value,
        "penstock": comparison.penstock_value,
        "ratio": comparison.ratio,
        "cpu_ratio": comparison.cpu_ratio,
        "verdict": comparison.verdict.value,
        "rounds": {
            "apache_kafka": [asdict(sample) for sample in comparison.kafka],
            "penstock": [asdict(sample) for sample in comparison.penstock],
        },
    }


def _draw(comparisons: Sequence[Comparison], machine: dict[str, str | int | float], path: Path) -> None:
    """Bars of how many times better Penstock is, so that longer is better for rates and for times alike."""
    # Here, because it takes half a second that no other command of the benchmark should spend.
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    bars = []
    for comparison in comparisons:
        figure, ratio = comparison.figure, comparison.ratio
        if ratio:
            is_rate = figure.unit == "records/s"
            label = f"{figure.label} ({figure.client})" if figure.client else figure.label
            bound = None if figure.goal is None or figure.goal.is_absolute else figure.goal.bound
            bars.append((label, ratio if is_rate else 1 / ratio, bound, _BAR_COLOURS[comparison.verdict]))
    chart, axes = plt.subplots(figsize=(11, 0.42 * len(bars) + 1.4), layout="constrained")
    rows = range(len(bars))
    # From 1x on, to the right when better and to the left when worse: on a log scale bars have no zero to start from.
    axes.barh(rows, [bar[1] - 1 for bar in bars], left=1, color=[bar[3] for bar in bars], height=0.6)
    for row, (_, value, bound, _) in zip(rows, bars, strict=True):
        axes.text(max(value, 1), row, f" {value:.2f}x", va="center", fontsize=8)
        if bound is not None:
            axes.plot([bound, bound], [row - 0.4, row + 0.4], color="black", linewidth=1.5)
    axes.axvline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.set_yticks(rows, [bar[0] for bar in bars], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}x")
    axes.set_title(
        f"Penstock against Apache Kafka {KAFKA_VERSION}: times better (black: goal), "
        f"{machine['rounds']} rounds, {machine['cores']} cores",
        fontsize=10,
    )
    axes.spines[["top", "right"]].set_visible(False)
    chart.savefig(path)
    plt.close(chart)
