"""What every format can do with the values of one schema."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa


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


class Encoder(Protocol):
    @abstractmethod
    def encoded(self, rows: Iterable[Any]) -> list[bytes | None]:
        """What follows the schema id. Raises SchemaUnusable for a row that does not fit."""
