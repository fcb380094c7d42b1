"""python -m bench: runs the scenarios in turns, Kafka and Penstock one after the other, and reports medians."""

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import brokers, processes, report
from bench.figures import Comparison, Sample
from bench.scenarios import ONCE_FOR_KAFKA, SCENARIOS, Scenario
from bench.session import FULL, QUICK, Session, Sizes
from penstock.base.errors import Refused

FREE_DISK_BYTES_MIN = 10_000_000_000
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


def _samples(scenario: Scenario, session: Session) -> Iterator[tuple[str, Sample]]:
    """The scenario's samples; when it breaks off, the reason for each figure that is missing."""
    missing = [figure.key for figure in scenario.FIGURES]
    key = missing[-1]
    try:
        for key, sample in scenario.measure(session):
            missing.remove(key)
            yield key, sample
    except (processes.Failed, Refused, OSError, ValueError) as error:
        # A scenario that fails after its last sample spoils that one: see Comparison.
        for failed in missing or [key]:
            yield failed, Sample(None, note=f"failed: {error}")
        # Whatever state it is in: the next scenario gets another one.
        with contextlib.suppress(processes.Failed):
            session.end_shared()


class Turn(NamedTuple):
    title: str
    kind: type[brokers.Broker]
    scenarios: list[str]


def _turns(wanted: Sequence[str], rounds: int) -> list[Turn]:
    """Kafka and Penstock in each round; the order changes, so that neither always comes second."""
    turns = []
    for index in range(rounds):
        kafka = [name for name in wanted if index == 0 or name not in ONCE_FOR_KAFKA]
        title = f"round {index + 1}, "
        pair = [
            Turn(title + brokers.ApacheKafka.name, brokers.ApacheKafka, kafka),
            Turn(title + brokers.Penstock.name, brokers.Penstock, list(wanted)),
        ]
        turns += pair if index % 2 == 0 else pair[::-1]
    return turns


def _take_turn(session: Session, turn: Turn, comparisons: dict[str, Comparison], progress: Progress) -> None:
    (task,) = progress.task_ids
    for name in turn.scenarios:
        progress.update(task, description=f"{turn.title}: {name}")
        progress.refresh()
        for key, sample in _samples(SCENARIOS[name], session):
            comparison = comparisons[key]
            (comparison.kafka if turn.kind is brokers.ApacheKafka else comparison.penstock).append(sample)
            figure = comparison.figure
            line = f"{turn.title}: {figure.label} ({figure.client or 'broker'})"
            line += f": {report.shown_value(sample.value, figure.unit)} {sample.note}"
            progress.console.print(line, markup=False, highlight=False)
            progress.advance(task)
            progress.refresh()


def _run(wanted: Sequence[str], rounds: int, sizes: Sizes, directory: Path, console: Console) -> list[Comparison]:
    comparisons = {figure.key: Comparison(figure) for name in wanted for figure in SCENARIOS[name].FIGURES}
    turns = _turns(wanted, rounds)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Redrawn by us: a thread that does it would be part of what is measured on two cores.
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        progress.add_task("", total=sum(len(SCENARIOS[name].FIGURES) for turn in turns for name in turn.scenarios))
        for turn in turns:
            with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as turn_directory:
                session = Session(turn.kind, sizes, Path(turn_directory))
                _take_turn(session, turn, comparisons, progress)
                try:
                    session.end_shared()
                except processes.Failed as error:
                    console.print(str(error), markup=False)
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
