"""Progress bars, for people who watch: on stderr, and only when that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.cli.printing import is_terminal

Advance = Callable[[int], None]


def _ignore(amount: int) -> None:
    pass


@contextmanager
def byte_progress(title: str, total: int) -> Iterator[Advance]:
    """Bytes of a known total; nothing is drawn when it is unknown (0) or nobody watches."""
    if not total or not is_terminal(sys.stderr):
        yield _ignore
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    with _bar(
        title, total, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), TextColumn("")
    ) as advance:
        yield advance


@contextmanager
def count_progress(title: str, total: int) -> Iterator[Advance]:
    if not is_terminal(sys.stderr):
        yield _ignore
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    with _bar(title, total, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as advance:
        yield advance


@contextmanager
def _bar(title: str, total: int, *columns: object) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    with Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True), transient=True) as progress:  # type: ignore[arg-type]
        task = progress.add_task(title, total=total)
        yield lambda amount: progress.advance(task, amount)
