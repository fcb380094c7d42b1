"""Many values at once into a column, by a program: what its kernel makes of them, and which ones it leaves alone."""

import importlib
import sys
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.pipeline.schemas.column_slots import Filled, Layout, Node, Slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# Importing numba takes as long as reading about this many rows one by one.
_ROWS_WORTH_NUMBA = 100_000

_asked_rows = 0


class Program(Protocol):
    """Of a schema."""

    @property
    def layout(self) -> Layout: ...

    @property
    def root(self) -> Node: ...

    @property
    def defaults(self) -> tuple[tuple[int, int], ...]:
        """(Column, the struct it is in): where that is set, the column's slots are, if only to 0."""

    @abstractmethod
    def fill(self, data: Any, starts: Any, ends: Any, first_row: int, slots: Slots, is_bad: "NDArray[np.bool_]") -> int:
        """Sets slots from the first row on. The row it stopped before as there is no room for its items, or the number
        of rows."""


def is_numba_worth(rows: int) -> bool:
    """If there is numba, and if it pays. What this process asked for before counts."""
    global _asked_rows
    _asked_rows += rows
    if _asked_rows < _ROWS_WORTH_NUMBA and "numba" not in sys.modules:
        return False
    try:
        importlib.import_module("numba")
    except ImportError:
        return False
    return True


def read_column(
    program: Program, data: "NDArray[np.uint8]", starts: "Ints", ends: "Ints"
) -> tuple[pa.Array, "NDArray[np.bool_]"]:
    """See `values.ColumnReader`."""
    from penstock.pipeline.schemas.column_kernel import gather

    # Of one kind, so that the kernel is compiled once.
    data = data.view()
    data.flags.writeable = False
    rows = len(starts)
    slots = Slots(program.layout, rows)
    is_bad: NDArray[np.bool_] = np.zeros(rows, np.bool_)
    row = program.fill(data, starts, ends, 0, slots, is_bad)
    while row < rows:
        slots.grow()
        row = program.fill(data, starts, ends, row, slots, is_bad)
    for column, parent in program.defaults:
        slots.flags(column)[:] = slots.flags(parent)
    return program.root.array(Filled(slots, data, gather), rows), is_bad
