"""What the three kinds of schema have in common."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

AVRO = "AVRO"
PROTOBUF = "PROTOBUF"
JSON = "JSON"


class InvalidSchema(ValueError):
    """Says what is wrong with a schema."""


class Reference(NamedTuple):
    """A schema that another one uses: by which name, and where it is registered."""

    name: str
    subject: str
    version: int


# The texts of all references of a schema, and of theirs, by name; what a schema needs comes before it.
Resolved = Mapping[str, str]


class Difference(NamedTuple):
    """One thing in which two schemas differ, where, and what that means for who reads."""

    kind: str
    path: str
    description: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.description}'}}"


class ParsedSchema(Protocol):
    """A schema that was read and found valid. It never changes, so threads may share it."""

    @property
    def schema_type(self) -> str: ...

    @property
    def canonical(self) -> str:
        """The text that is stored and that decides whether two schemas are the same."""
        ...

    def normalized(self) -> str:
        """The canonical text of what this one means, without what does not matter."""
        ...

    def formatted(self, name: str) -> str:
        """The text in one of the format's own forms; unknown names mean the canonical one."""
        ...

    def resolved_text(self) -> str:
        """The text with all references written out, as far as the format has that; else the canonical one."""
        ...
