"""The records of the topic `_schemas`, in Confluent's format: JSON in keys and values.

Keys are written byte for byte as Confluent writes them, since compaction goes by bytes: both registries may have
written to one topic.
"""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from penstock.http.registry import json_text
from penstock.http.registry.formats.schema import AVRO, Reference
from penstock.http.registry.metadata import guid_of, schema_hash


class SchemaKey(NamedTuple):
    subject: str
    version: int


class ConfigKey(NamedTuple):
    # None: for all subjects that have none of their own.
    subject: str | None


class ModeKey(NamedTuple):
    subject: str | None


class DeleteSubjectKey(NamedTuple):
    subject: str


class ClearSubjectKey(NamedTuple):
    subject: str | None


class ContextKey(NamedTuple):
    context: str


class NoopKey(NamedTuple):
    """Written by Confluent's leaders to see how far the topic is read."""


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey


class StoredSchema(msgspec.Struct, frozen=True):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    is_deleted: bool = False
    hash: bytes = b""
    timestamp_ms: int = 0

    @property
    def guid(self) -> str:
        return guid_of(self.hash)


class DeletedUpTo(NamedTuple):
    """All versions of a subject up to this one are soft-deleted."""

    version: int


# A setting is a dict of Confluent's JSON names; a mode is its name. None is a tombstone.
Value = StoredSchema | DeletedUpTo | dict[str, Any] | str | None


class Record(NamedTuple):
    key: Key
    value: Value


_KEY_TYPES: dict[type, tuple[str, int]] = {
    SchemaKey: ("SCHEMA", 1),
    ConfigKey: ("CONFIG", 0),
    ModeKey: ("MODE", 0),
    DeleteSubjectKey: ("DELETE_SUBJECT", 0),
    ClearSubjectKey: ("CLEAR_SUBJECT", 0),
    ContextKey: ("CONTEXT", 0),
    NoopKey: ("NOOP", 0),
}
_SUBJECT_KEYS: dict[str, Callable[[Any], Key]] = {
    "CONFIG": ConfigKey,
    "MODE": ModeKey,
    "DELETE_SUBJECT": DeleteSubjectKey,
    "CLEAR_SUBJECT": ClearSubjectKey,
}


def make_schema(
    subject: str,
    version: int,
    schema_id: int,
    schema_type: str,
    schema: str,
    references: tuple[Reference, ...] = (),
    metadata: dict[str, Any] | None = None,
    rule_set: dict[str, Any] | None = None,
) -> StoredSchema:
    digest = schema_hash(schema, references, metadata, rule_set)
    return StoredSchema(subject, version, schema_id, schema_type, schema, references, metadata, rule_set, hash=digest)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    name, magic = _KEY_TYPES[type(record.key)]
    key: dict[str, Any] = {"keytype": name}
    if isinstance(record.key, ContextKey):
        key["tenant"] = "default"
    key |= {field: value for field, value in record.key._asdict().items() if value is not None}
    key["magic"] = magic
    value = _encode_value(record)
    return json_text.write(key).encode(), None if value is None else json_text.write(value).encode()


def _encode_value(record: Record) -> dict[str, Any] | None:
    key, value = record
    if value is None:
        return None
    if isinstance(value, StoredSchema):
        return _encode_schema(value)
    if isinstance(key, ContextKey):
        return {"tenant": "default", "context": key.context}
    subject = getattr(key, "subject", None)
    encoded: dict[str, Any] = {} if subject is None else {"subject": subject}
    if isinstance(value, DeletedUpTo):
        encoded["version"] = value.version
    elif isinstance(value, str):
        encoded["mode"] = value
    else:
        encoded |= {name: item for name, item in value.items() if item is not None}
    return encoded


def _encode_schema(schema: StoredSchema) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        "md5": base64.b64encode(schema.hash).decode(),
    }
    if schema.schema_type != AVRO:
        encoded["schemaType"] = schema.schema_type
    if schema.references:
        encoded["references"] = [reference._asdict() for reference in schema.references]
    if schema.metadata is not None:
        encoded["metadata"] = schema.metadata
    if schema.rule_set is not None:
        encoded["ruleSet"] = schema.rule_set
    return encoded | {"schema": schema.schema, "deleted": schema.is_deleted}


def decode(key: bytes, value: bytes | None, timestamp_ms: int) -> Record | None:
    """None for what is of no use here: kinds of record that only others know. Raises ValueError for what is no JSON."""
    raw = json_text.read(key)
    if not isinstance(raw, dict):
        raise ValueError("the key is not an object")
    name = raw.get("keytype")
    content = None if value is None else json_text.read(value)
    if content is not None and not isinstance(content, dict):
        raise ValueError("the value is not an object")
    if name == "SCHEMA":
        schema_key = SchemaKey(str(raw["subject"]), int(raw["version"]))
        return Record(schema_key, None if content is None else _decode_schema(schema_key, content, timestamp_ms))
    if name == "CONTEXT":
        return Record(ContextKey(str(raw["context"])), None if content is None else {})
    if name == "NOOP":
        return Record(NoopKey(), None)
    kind = _SUBJECT_KEYS.get(str(name))
    if kind is None:
        return None
    subject_key = kind(raw.get("subject"))
    if content is None:
        return Record(subject_key, None)
    if name == "MODE":
        return Record(subject_key, str(content["mode"]))
    if name == "DELETE_SUBJECT":
        return Record(subject_key, DeletedUpTo(int(content["version"])))
    return Record(subject_key, {field: item for field, item in content.items() if field != "subject"})


def _decode_schema(key: SchemaKey, content: dict[str, Any], timestamp_ms: int) -> StoredSchema:
    references = tuple(
        Reference(item["name"], item["subject"], int(item["version"])) for item in content.get("references") or []
    )
    metadata, rule_set = content.get("metadata"), content.get("ruleSet")
    md5 = content.get("md5")
    digest = base64.b64decode(md5) if md5 else schema_hash(content["schema"], references, metadata, rule_set)
    return StoredSchema(
        key.subject,
        key.version,
        int(content["id"]),
        content.get("schemaType") or AVRO,
        content["schema"],
        references,
        metadata,
        rule_set,
        bool(content.get("deleted")),
        digest,
        timestamp_ms,
    )
