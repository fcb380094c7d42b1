"""The decisions to delete: softly first, which hides a version, then for good."""

import msgspec

from penstock.http.registry import errors, settings, subjects
from penstock.http.registry.records import (
    ConfigKey,
    ContextKey,
    DeletedUpTo,
    DeleteSubjectKey,
    ModeKey,
    Record,
    SchemaKey,
)
from penstock.http.registry.store import Store


def delete_version(store: Store, subject: str, version: int, *, is_permanent: bool) -> tuple[list[Record], int]:
    schema = store.version(subject, version, with_deleted=True)
    if schema is None:
        if not store.has_subjects(subject, with_deleted=True):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(version)
    version = schema.version
    if schema.is_deleted and not is_permanent:
        raise errors.version_soft_deleted(subject, version)
    if settings.is_read_only(store, subject):
        raise errors.read_only(subject)
    if store.referrers(subject, version, with_deleted=is_permanent):
        raise errors.reference_exists(subject, version)
    if not is_permanent:
        return [Record(SchemaKey(subject, version), msgspec.structs.replace(schema, is_deleted=True))], version
    if not schema.is_deleted:
        raise errors.version_not_soft_deleted(subject, version)
    records = [Record(SchemaKey(subject, version), None)]
    if len(store.versions(subject, with_deleted=True)) == 1:
        records += _settings_of(store, subject)
    return records, version


def delete_subject(store: Store, subject: str, *, is_permanent: bool) -> tuple[list[Record], list[int]]:
    if not store.has_subjects(subject, with_deleted=True):
        raise errors.subject_not_found(subject)
    if not is_permanent and not store.has_subjects(subject):
        raise errors.subject_soft_deleted(subject)
    if settings.is_read_only(store, subject):
        raise errors.read_only(subject)
    versions = store.versions(subject, with_deleted=is_permanent)
    for schema in versions:
        for context, schema_id in store.referrers(subject, schema.version, with_deleted=is_permanent):
            holders = store.versions_with_id(schema_id, context)
            if any(holder.subject != subject and (is_permanent or not holder.is_deleted) for holder in holders):
                raise errors.reference_exists(subject, schema.version)
        if is_permanent and not schema.is_deleted:
            raise errors.subject_not_soft_deleted(subject)
    numbers = [schema.version for schema in versions]
    if not is_permanent:
        return [Record(DeleteSubjectKey(subject), DeletedUpTo(max(numbers, default=0)))], numbers
    # The latest first: versions may refer to earlier ones.
    records = [Record(SchemaKey(subject, number), None) for number in reversed(numbers)]
    return records + _settings_of(store, subject), numbers


def delete_context(store: Store, context: str) -> tuple[list[Record], None]:
    parsed = subjects.parse(context)
    if store.has_subjects(str(subjects.Subject(parsed.context, "")), with_deleted=True):
        raise errors.context_not_empty(parsed.context)
    return [Record(ContextKey(parsed.context), None)], None


def _settings_of(store: Store, subject: str) -> list[Record]:
    records = []
    if subject in store.modes:
        records.append(Record(ModeKey(subject), None))
    if subject in store.configs:
        records.append(Record(ConfigKey(subject), None))
    return records
