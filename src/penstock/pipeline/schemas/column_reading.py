"""Many values at once into a column, by a program: what the kernel makes of them, and which ones it leaves alone."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.pipeline.schemas.avro_program import Program
from penstock.pipeline.schemas.column_slots import Filled, Slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# Importing numba takes as long as reading about this many rows one by one.
_ROWS_WORTH_NUMBA = 100_000
_KERNEL = "penstock.pipeline.schemas.column_kernel"

_asked_rows = 0


def kernel_for(rows: int) -> ModuleType | None:
    """`column_kernel`, if there is numba and if it pays. What this process asked for before counts."""
    global _asked_rows
    _asked_rows += rows
    if _asked_rows < _ROWS_WORTH_NUMBA and "numba" not in sys.modules:
        return None
    try:
        return importlib.import_module(_KERNEL)
    except ImportError:
        return None


def read_column(
    program: Program, data: "NDArray[np.uint8]", starts: "Ints", ends: "Ints", kernel: ModuleType
) -> tuple[pa.Array, "NDArray[np.bool_]"]:
    """See `values.ColumnReader`."""
    # Of one kind, so that the kernel is compiled once.
    data = data.view()
    data.flags.writeable = False
    rows = len(starts)
    slots = Slots(program.layout, rows)
    is_bad: NDArray[np.bool_] = np.zeros(rows, np.bool_)
    row = 0
    while True:
        row = kernel.fill(program.code, program.table, program.depth_max, data, starts, ends, row, slots, is_bad)
        if row == rows:
            return program.root.array(Filled(slots, data, kernel.gather), rows), is_bad
        slots.grow()
