"""What the registry knows: the records of `_schemas`, replayed.

State changes by `replay` only. An id stands for one text in its context for ever: a record that would give it to
another one (two leaders at once) is passed over by everybody who reads it.
"""

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.http.registry import subjects
from penstock.http.registry.records import (
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeletedUpTo,
    DeleteSubjectKey,
    ModeKey,
    Record,
    SchemaKey,
    StoredSchema,
)

log = logging.getLogger("penstock.registry")

LATEST = -1


class Store:
    def __init__(self) -> None:
        self._versions: dict[str, dict[int, StoredSchema]] = {}
        # By context and id: the versions that have it, one for each subject.
        self._by_id: dict[str, dict[int, dict[str, int]]] = {}
        self._id_by_hash: dict[str, dict[bytes, int]] = {}
        self._id_max: dict[str, int] = {}
        # By subject and version: contexts and ids of the schemas that refer to it.
        self._referrers: dict[SchemaKey, set[tuple[str, int]]] = {}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self._contexts: set[str] = set()
        # Goes up with every change, so that others know when what they keep is out of date.
        self.change_count = 0
        self.removal_count = 0

    def replay(self, record: Record) -> None:
        self.change_count += 1
        key, value = record
        if isinstance(key, SchemaKey):
            if value is None:
                self._remove(key)
            else:
                assert isinstance(value, StoredSchema)
                self._put(key, value)
        elif isinstance(key, ConfigKey):
            _put_or_remove(self.configs, key.subject, value)
        elif isinstance(key, ModeKey):
            _put_or_remove(self.modes, key.subject, value)
        elif isinstance(key, DeleteSubjectKey) and isinstance(value, DeletedUpTo):
            for version, schema in list(self._versions.get(key.subject, {}).items()):
                if version <= value.version and not schema.is_deleted:
                    self._put(SchemaKey(key.subject, version), msgspec.structs.replace(schema, is_deleted=True))
        elif isinstance(key, ClearSubjectKey) and value is not None:
            for subject in [name for name in self._versions if subjects.matches(key.subject, name)]:
                for version, schema in list(self._versions[subject].items()):
                    if schema.is_deleted:
                        self._remove(SchemaKey(subject, version))
        elif isinstance(key, ContextKey):
            if value is None:
                self._contexts.discard(key.context)
            else:
                self._contexts.add(key.context)

    def _put(self, key: SchemaKey, schema: StoredSchema) -> None:
        context = subjects.context_of(key.subject)
        existing = self.by_id(schema.id, context)
        if existing is not None and existing.schema != schema.schema:
            log.error("the id %d of %s version %d is taken by another schema, the record is ignored", schema.id, *key)
            return
        before = self._versions.get(key.subject, {}).get(key.version)
        if before is not None and before.id != schema.id:
            self._remove(key)
        self._versions.setdefault(key.subject, {})[key.version] = schema
        self._by_id.setdefault(context, {}).setdefault(schema.id, {})[key.subject] = key.version
        self._id_by_hash.setdefault(context, {})[schema.hash] = schema.id
        self._id_max[context] = max(self._id_max.get(context, 0), schema.id)
        for reference in schema.references:
            target = SchemaKey(subjects.qualify(reference.subject, key.subject), reference.version)
            self._referrers.setdefault(target, set()).add((context, schema.id))

    def _remove(self, key: SchemaKey) -> None:
        versions = self._versions.get(key.subject, {})
        schema = versions.pop(key.version, None)
        if schema is None:
            return
        self.removal_count += 1
        if not versions:
            del self._versions[key.subject]
        context = subjects.context_of(key.subject)
        holders = self._by_id[context].get(schema.id, {})
        if holders.get(key.subject) == key.version:
            others = [version for version, other in versions.items() if other.id == schema.id]
            if others:
                holders[key.subject] = max(others)
            else:
                del holders[key.subject]
        if holders:
            return
        self._by_id[context].pop(schema.id, None)
        if self._id_by_hash[context].get(schema.hash) == schema.id:
            del self._id_by_hash[context][schema.hash]
        for reference in schema.references:
            target = SchemaKey(subjects.qualify(reference.subject, key.subject), reference.version)
            referrers = self._referrers.get(target, set())
            referrers.discard((context, schema.id))
            if not referrers:
                self._referrers.pop(target, None)

    # Questions.

    def version(self, subject: str, version: int, *, with_deleted: bool = False) -> StoredSchema | None:
        versions = self._versions.get(subject, {})
        if version == LATEST:
            alive = [number for number, schema in list(versions.items()) if not schema.is_deleted]
            return versions.get(max(alive)) if alive else None
        schema = versions.get(version)
        return schema if schema is not None and (with_deleted or not schema.is_deleted) else None

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[StoredSchema]:
        """Oldest first."""
        found = sorted(self._versions.get(subject, {}).values(), key=lambda schema: schema.version)
        return found if with_deleted else [schema for schema in found if not schema.is_deleted]

    def subjects(self, *, with_deleted: bool = False) -> Iterator[str]:
        for subject, versions in list(self._versions.items()):
            if with_deleted or any(not schema.is_deleted for schema in list(versions.values())):
                yield subject

    def has_subjects(self, wanted: str | None, *, with_deleted: bool = False) -> bool:
        """Whether the subject is there, or any in the context, or any at all."""
        if wanted is not None and subjects.parse(wanted).name:
            return bool(self.versions(wanted, with_deleted=with_deleted))
        return any(subjects.matches(wanted, subject) for subject in self.subjects(with_deleted=with_deleted))

    def by_id(self, schema_id: int, context: str, subject: str | None = None) -> StoredSchema | None:
        holders = self._by_id.get(context, {}).get(schema_id)
        if not holders:
            return None
        if subject is None:
            subject = next(iter(holders))
        version = holders.get(subject)
        return None if version is None else self._versions[subject][version]

    def versions_with_id(self, schema_id: int, context: str) -> list[StoredSchema]:
        holders = list(self._by_id.get(context, {}).get(schema_id, {}).items())
        return [self._versions[subject][version] for subject, version in holders]

    def id_of_hash(self, digest: bytes, context: str) -> int | None:
        return self._id_by_hash.get(context, {}).get(digest)

    def id_max(self, context: str) -> int:
        return self._id_max.get(context, 0)

    def contexts(self) -> list[str]:
        return [subjects.DEFAULT_CONTEXT, *sorted(self._contexts)]

    def referrers(self, subject: str, version: int, *, with_deleted: bool) -> list[tuple[str, int]]:
        """Contexts and ids of the schemas that refer to a version."""
        found = sorted(self._referrers.get(SchemaKey(subject, version), ()))
        if with_deleted:
            return found
        return [
            (context, schema_id)
            for context, schema_id in found
            if any(not schema.is_deleted for schema in self.versions_with_id(schema_id, context))
        ]


def _put_or_remove(settings: Any, subject: str | None, value: Any) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value
