"""The screen of `penstock top`: four tables that change in place."""

from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.widgets import DataTable, Footer, Static

from penstock.cli.failures import Failed
from penstock.cli.top import TITLES, Source, Tables


class TopScreen(App[None]):
    CSS = "Grid { grid-size: 2 2; } DataTable { height: 100%; border: round $primary; } #headline { height: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "Quit"), Binding("space", "pause", "Pause")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, source: Source, first: dict[str, Any], interval_s: float) -> None:
        super().__init__()
        self._source = source
        self._before: dict[str, Any] | None = None
        self._now = first
        self._interval_s = interval_s
        self._is_paused = False

    def compose(self) -> ComposeResult:
        yield Static(id="headline")
        with Grid():
            for name in TITLES:
                yield DataTable[str](id=name, cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        for name, titles in TITLES.items():
            table = self.query_one(f"#{name}", DataTable)
            table.border_title = name
            table.add_columns(*titles)
        self._show()
        self.set_interval(self._interval_s, self._begin_to_look)

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused

    def _begin_to_look(self) -> None:
        if not self._is_paused:
            self.run_worker(self._look, thread=True, exclusive=True, exit_on_error=False)

    def _look(self) -> None:
        """In a thread: the server may take its time."""
        try:
            seen = self._source.look()
        except Failed as failure:
            self.call_from_thread(self._say, str(failure))
            return
        self.call_from_thread(self._take, seen)

    def _take(self, seen: dict[str, Any]) -> None:
        self._before, self._now = self._now, seen
        self._show()

    def _say(self, text: str) -> None:
        self.query_one("#headline", Static).update(text)

    def _show(self) -> None:
        tables = Tables(self._before, self._now, self._interval_s)
        self._say(tables.headline)
        for name in TITLES:
            table = self.query_one(f"#{name}", DataTable)
            row = table.cursor_row
            table.clear()
            table.add_rows(getattr(tables, name))
            table.move_cursor(row=min(row, max(0, table.row_count - 1)))
