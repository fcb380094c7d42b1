"""A run's outcome: a table on the terminal, JSON and a timeline under results/faults."""

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.e2e.faults.checker import CONVERGENCE_MS_MAX, KINDS, Verdict
from tests.e2e.faults.history import read_history
from tests.e2e.faults.plan import FULL, KILL, PARTITION, PAUSE, POWER, RESTART, Stage

RESULTS = Path(__file__).parents[3] / "results" / "faults"
# What an hour must have.
GOALS = {KILL: 100, PAUSE: 40, PARTITION: 40, POWER: 10, FULL: 10, "acknowledged": 1_000_000}
AIMED_SHARE = 0.6
_COLOURS = {
    KILL: "indianred",
    PAUSE: "goldenrod",
    PARTITION: "steelblue",
    POWER: "black",
    FULL: "mediumpurple",
    RESTART: "seagreen",
}

Outcome = tuple[Stage, Path, Verdict]
Run = Callable[[Path, Callable[[str], None]], list[Outcome]]


def show(minutes: float, seed: int, run: Run) -> int:
    """The exit code."""
    console = Console(highlight=False)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    directory = RESULTS / stamp
    directory.mkdir(parents=True)
    console.print(f"{minutes:g} minutes with the seed {seed}: histories in {directory}")
    outcomes = run(directory, console.print)
    facts = summary(minutes, seed, outcomes)
    (directory / "summary.json").write_text(json.dumps(facts, indent=2) + "\n")
    draw(outcomes, facts, directory / "timeline.svg")
    console.print(_table(facts))
    for _, _, verdict in outcomes:
        for kind, details in verdict.details.items():
            for detail in details[:5]:
                console.print(f"{kind}: {detail}", style="red", markup=False)
    console.print(f"again: make faults MINUTES={minutes:g} SEED={seed}")
    return 0 if facts["is_good"] else 1


def summary(minutes: float, seed: int, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    seen: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    convergence_ms: list[int] = []
    for _, _, verdict in outcomes:
        seen += verdict.seen
        violations += verdict.counts
        convergence_ms += verdict.convergence_ms
    aimed = sum(count for name, count in seen.items() if name.startswith("kill of a"))
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "minutes": minutes,
        "seed": seed,
        "cores": os.cpu_count(),
        "is_good": not violations,
        "seen": dict(sorted(seen.items())),
        "kills aimed share": round(aimed / seen[KILL], 2) if seen[KILL] else 0,
        "violations": {kind: violations[kind] for kind in KINDS},
        "convergence ms": {
            "median": sorted(convergence_ms)[len(convergence_ms) // 2] if convergence_ms else None,
            "max": max(convergence_ms, default=None),
            "bound": CONVERGENCE_MS_MAX,
        },
    }


def _table(facts: dict[str, Any]) -> Table:
    table = Table(title=f"{facts['minutes']:g} minutes of faults, seed {facts['seed']}")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("for an hour", justify="right")
    for name, count in facts["seen"].items():
        table.add_row(name, f"{count:,}", f"≥ {GOALS[name]:,}" if name in GOALS else "")
    table.add_row(
        "kills of leader, controller, coordinator", f"{facts['kills aimed share']:.0%}", f"≥ {AIMED_SHARE:.0%}"
    )
    table.add_section()
    for name, count in facts["violations"].items():
        table.add_row(name, f"{count:,}", "0", style="red" if count else "green")
    table.add_section()
    times = facts["convergence ms"]
    table.add_row("convergence, median", f"{times['median']} ms", "")
    table.add_row("convergence, longest", f"{times['max']} ms", f"≤ {times['bound']:,} ms")
    return table


def draw(outcomes: Sequence[Outcome], facts: dict[str, Any], path: Path) -> None:
    """Above what was acknowledged in each second, below what was broken meanwhile, a panel for each stage."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    # The same picture from the same history.
    plt.rcParams["svg.hashsalt"] = "faults"
    kinds = list(_COLOURS)
    chart, axes = plt.subplots(
        2 * len(outcomes),
        1,
        figsize=(14, 4 * len(outcomes)),
        height_ratios=[2, 1] * len(outcomes),
        layout="constrained",
        squeeze=False,
    )
    for index, (stage, history, _) in enumerate(outcomes):
        rates, spans, waits = _timeline(history)
        rate, faults = axes[2 * index][0], axes[2 * index + 1][0]
        rate.fill_between(range(len(rates)), rates, step="mid", color="lightsteelblue")
        rate.set_ylabel("acknowledged/s")
        rate.set_title(f"{stage.name}: {sum(rates):,} acknowledged", fontsize=9, loc="left")
        for start, end, kind in spans:
            faults.barh(kinds.index(kind), max(end - start, 0.5), left=start, color=_COLOURS[kind], height=0.8)
        for start, end in waits:
            faults.barh(len(kinds), max(end - start, 0.3), left=start, color="lightgrey", height=0.8)
        faults.set_yticks(range(len(kinds) + 1), [*kinds, "healing"], fontsize=7)
        faults.invert_yaxis()
        for axis in (rate, faults):
            axis.set_xlim(0, len(rates))
            axis.spines[["top", "right"]].set_visible(False)
        faults.set_xlabel("s")
    verdict = "nothing lost, duplicated or reordered" if facts["is_good"] else f"VIOLATIONS: {facts['violations']}"
    chart.suptitle(f"{facts['minutes']:g} minutes, seed {facts['seed']}: {verdict}", fontsize=10)
    chart.savefig(path, metadata={"Date": None})
    plt.close(chart)


def _timeline(path: Path) -> tuple[list[int], list[tuple[float, float, str]], list[tuple[float, float]]]:
    """Acknowledged records of each second; faults; how long healing took."""
    rates: Counter[int] = Counter()
    spans: list[tuple[float, float, str]] = []
    waits: list[tuple[float, float]] = []
    open_faults: dict[str, float] = {}
    last_s = 0.0
    for event in read_history(path):
        last_s = event["t"]
        match event["e"]:
            case "acked" | "placed":
                rates[int(last_s)] += len(event["s"])
            case "fault":
                open_faults[event["kind"]] = last_s
            case "over":
                spans.append((open_faults.pop(event["kind"]), last_s, event["kind"]))
            case "converged":
                waits.append((last_s - event["ms"] / 1000, last_s))
    return [rates[second] for second in range(int(last_s) + 1)], spans, waits
