"""What every format can do with the values of one schema."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    # (data, starts, ends) -> (column, rows that must be read one by one and are null in it.) Row i is
    # data[starts[i]:ends[i]]; one that starts at NULL_START is null.
    ColumnReader = Callable[
        [NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]], tuple[pa.Array, NDArray[np.bool_]]
    ]

NULL_START = -1


class SchemaUnusable(Exception):
    """A schema that has no columns, or a type of columns that the format cannot say; the message is for people."""


class Undecodable(Exception):
    """A value that is not what its schema says."""


class Reader(Protocol):
    """The schema that rows are wanted in."""

    type: pa.DataType

    @abstractmethod
    def decoder(self, writer: Any) -> "Decoder":
        """For values that were written with this schema. Raises SchemaUnusable."""


class Decoder(Protocol):
    @abstractmethod
    def row(self, data: bytes) -> Any:
        """What follows the schema id, as Python values that Arrow takes. Raises anything for what cannot be read."""

    def columns(self, type_: pa.DataType) -> "ColumnReader | None":
        """Reads many rows at once into a column of this type, with the same result, given numba. None where there is no
        such way."""
        return None


class Encoder(Protocol):
    @abstractmethod
    def encoded(self, rows: Iterable[Any]) -> list[bytes | None]:
        """What follows the schema id. Raises SchemaUnusable for a row that does not fit."""
