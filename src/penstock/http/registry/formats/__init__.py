"""The kinds of schema: each is read, brought into one canonical text, and normalised."""

from penstock.http.registry.formats import avro, json_schema
from penstock.http.registry.formats.schema import (
    AVRO,
    JSON,
    PROTOBUF,
    InvalidSchema,
    ParsedSchema,
    Reference,
    Resolved,
)

TYPES = (JSON, PROTOBUF, AVRO)

__all__ = ["AVRO", "JSON", "PROTOBUF", "TYPES", "InvalidSchema", "ParsedSchema", "Reference", "Resolved", "parse"]


def parse(
    schema_type: str, text: str, resolved: Resolved, references: tuple[Reference, ...], *, is_new: bool
) -> ParsedSchema:
    """Raises InvalidSchema. What is not new was valid once and is read leniently."""
    if schema_type == AVRO:
        return avro.parse(text, resolved, is_new=is_new)
    if schema_type == JSON:
        return json_schema.parse(text, resolved, is_new=is_new)
    if schema_type == PROTOBUF:
        # Google's library takes as long to load as the rest of the registry: only where it is needed.
        from penstock.http.registry.formats import protobuf

        return protobuf.parse(text, resolved, references, is_new=is_new)
    raise InvalidSchema(f"the schema type '{schema_type}' is not known; there are AVRO, JSON and PROTOBUF")
