"""Whether a new schema may follow those that a subject has.

BACKWARD: who has the new schema reads what was written with the last one. FORWARD: the other way round. FULL: both.
The TRANSITIVE ones ask it of all versions, not only of the last.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.http.registry.compatibility import avro, json_schema
from penstock.http.registry.formats.avro import AvroSchema
from penstock.http.registry.formats.json_schema import JsonSchema
from penstock.http.registry.formats.schema import PROTOBUF, Difference, ParsedSchema

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
POLICIES = ("STRICT", "LENIENT")

_SCHEMA_CHARACTERS_SHOWN_MAX = 10 * 1024


class Previous(NamedTuple):
    """A version to compare with; it is read when its turn comes."""

    version: int
    schema: Callable[[], ParsedSchema]


def differences(reader: ParsedSchema, writer: ParsedSchema, *, is_lenient: bool = False) -> list[Difference]:
    """Why who has the one schema cannot read what was written with the other."""
    if isinstance(reader, AvroSchema) and isinstance(writer, AvroSchema):
        return avro.differences(reader.root, writer.root)
    if isinstance(reader, JsonSchema) and isinstance(writer, JsonSchema):
        return json_schema.differences(writer.root, reader.root, is_lenient=is_lenient)
    if reader.schema_type == writer.schema_type == PROTOBUF:
        # Loaded only where it is needed, as in `formats.parse`.
        from penstock.http.registry.compatibility import protobuf
        from penstock.http.registry.formats.protobuf import ProtobufSchema

        assert isinstance(reader, ProtobufSchema)
        assert isinstance(writer, ProtobufSchema)
        return protobuf.differences(writer, reader)
    return [Difference("SCHEMA_TYPE_CHANGED", "/", "the %s schema is of another type than the %s schema")]


def reasons_against(
    new: ParsedSchema, previous: Sequence[Previous], level: str, *, is_lenient: bool = False
) -> list[str]:
    """Why the new schema may not follow the previous ones (oldest first); nothing if it may."""
    if level == "NONE" or not previous:
        return []
    to_check = previous[::-1] if level.endswith("_TRANSITIVE") else previous[-1:]
    direction = level.removesuffix("_TRANSITIVE")
    for version, read in to_check:
        old = read()
        reasons = []
        if direction in ("FORWARD", "FULL"):
            reasons += [_filled(item, "old", "new") for item in differences(old, new, is_lenient=is_lenient)]
        if direction in ("BACKWARD", "FULL"):
            reasons += [_filled(item, "new", "old") for item in differences(new, old, is_lenient=is_lenient)]
        if reasons:
            shown = old.canonical[:_SCHEMA_CHARACTERS_SHOWN_MAX]
            dots = "..." if len(shown) < len(old.canonical) else ""
            return [
                *reasons,
                f"{{oldSchemaVersion: {version}}}",
                f"{{oldSchema: '{shown}{dots}'}}",
                f"{{compatibility: '{level}'}}",
            ]
    return []


def _filled(difference: Difference, reader: str, writer: str) -> str:
    before, _, rest = difference.description.partition("%s")
    between, _, after = rest.partition("%s")
    return str(difference._replace(description=f"{before}{reader}{between}{writer}{after}"))
