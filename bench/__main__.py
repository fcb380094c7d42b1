"""python -m bench: runs the scenarios, Kafka and Penstock by turns, and reports medians."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import brokers, processes, report, turns
from bench.figures import Comparison
from bench.scenarios import SCENARIOS
from bench.session import FULL, QUICK, Sizes

FREE_DISK_BYTES_MIN = 40_000_000_000
LOAD_AVERAGE_QUIET = 0.5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", default=",".join(SCENARIOS), help=f"some of {','.join(SCENARIOS)}")
    parser.add_argument("--rounds", type=int, default=3, help="how often each broker has its turn (3)")
    parser.add_argument("--quick", action="store_true", help="small sizes, for developing: not for quoting")
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",")) - set(SCENARIOS)
    if unknown:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


def _run(wanted: Sequence[str], rounds: int, sizes: Sizes, directory: Path, console: Console) -> list[Comparison]:
    comparisons = {figure.key: Comparison(figure) for name in wanted for figure in SCENARIOS[name].FIGURES}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Redrawn by us: a thread that does it would be part of what is measured on two cores.
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        tell = partial(progress.console.print, markup=False, highlight=False)
        plans = [turns.plan(wanted, index) for index in range(rounds)]
        total = sum(len(SCENARIOS[name].FIGURES) * len(kinds) for plan in plans for name, kinds in plan)
        task = progress.add_task("", total=total)
        for index in range(rounds):
            progress.update(task, description=f"round {index + 1}")
            progress.refresh()
            with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as round_directory:
                for kind, name, key, sample in turns.samples_of_round(
                    wanted, index, sizes, Path(round_directory), tell
                ):
                    comparison = comparisons[key]
                    (comparison.kafka if kind is brokers.ApacheKafka else comparison.penstock).append(sample)
                    figure = comparison.figure
                    line = f"round {index + 1}, {kind.name}: {figure.label} ({figure.client or 'broker'})"
                    line += f": {report.shown_value(sample.value, figure.unit)} {sample.note}"
                    tell(line)
                    progress.update(task, description=f"round {index + 1}: {name}", advance=1)
                    progress.refresh()
    return list(comparisons.values())


def main() -> int:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 190)
    wanted = [name for name in SCENARIOS if name in arguments.only.split(",")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        if not arguments.quick and shutil.disk_usage(directory).free < FREE_DISK_BYTES_MIN:
            raise brokers.Unavailable(
                f"the benchmark needs {FREE_DISK_BYTES_MIN // 10**9} GB free in {directory.parent}"
            )
        brokers.java_command()
        machine = report.machine_facts(arguments.rounds, arguments.quick)
        if float(machine["load_average"]) > LOAD_AVERAGE_QUIET:
            console.print(f"Other work runs here (load average {machine['load_average']}): the figures will suffer.")
        started_s = time.monotonic()
        sizes = QUICK if arguments.quick else FULL
        comparisons = _run(wanted, arguments.rounds, sizes, directory, console)
        report.print_table(console, comparisons, machine)
        paths = report.save(comparisons, machine)
        console.print(f"{(time.monotonic() - started_s) / 60:.1f} minutes; saved {', '.join(map(str, paths))}")
        print(report.markdown(comparisons, machine))
    except brokers.Unavailable as error:
        console.print(f"The benchmark cannot run: {error}.", markup=False)
        return 2
    except processes.Failed as error:
        console.print(f"The benchmark broke off: {error}.", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; everything that was started is being ended.")
        return 130
    finally:
        processes.end_all()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
