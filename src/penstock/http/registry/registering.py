"""The decision to register a schema: records to write, and the version that comes of them."""

from functools import partial

import msgspec

from penstock.http.registry import errors, metadata, settings, subjects
from penstock.http.registry.compatibility import Previous, reasons_against
from penstock.http.registry.formats import ParsedSchema
from penstock.http.registry.records import ContextKey, Record, SchemaKey, StoredSchema, make_schema
from penstock.http.registry.schemas import SchemaRequest, Schemas
from penstock.http.registry.store import LATEST, Store


def find_registered(
    store: Store, schemas: Schemas, subject: str, request: SchemaRequest, *, is_normalized: bool
) -> StoredSchema | None:
    """The version that a registration would answer with without writing anything."""
    config = settings.config_of(store, subject)
    if any(config.get(name) for name in ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")):
        return None
    is_latest = request.version == LATEST
    found = schemas.look_up(subject, request, is_normalized=is_normalized, with_deleted=False, latest_only=is_latest)
    if found is None:
        return None
    if request.version == 0 or is_latest:
        return found if request.id in (-1, found.id) else None
    return found if (found.id, found.version) == (request.id, request.version) else None


def register(
    store: Store,
    schemas: Schemas,
    subject: str,
    request: SchemaRequest,
    *,
    is_normalized: bool,
    is_forced: bool = False,
) -> tuple[list[Record], StoredSchema]:
    mode = _checked_mode(store, subject, request)
    is_import = mode == "IMPORT"
    config = settings.config_of(store, subject)
    versions = store.versions(subject, with_deleted=True)
    alive = [stored for stored in versions if not stored.is_deleted]
    next_version = max((stored.version for stored in versions), default=0) + 1
    if not is_import:
        request = _completed(config, request, alive[-1] if alive else None, next_version)
    if not request.schema.strip():
        raise errors.invalid_schema("it is empty")
    is_new = request.id < 0 and config.get("validateNewSchemas") is not False
    parsed = schemas.parse(request, subject, is_new=is_new)
    request = schemas.canonical(request, parsed, is_normalized=is_normalized and not is_import)
    schema_id = request.id
    holders = [stored for stored in schemas.holder_of(request, subject) if schema_id in (-1, stored.id)]
    if holders:
        schema_id = holders[0].id
    if request.version == 0:
        for stored in [*holders, *reversed(alive)]:
            if (
                stored.subject == subject
                and not stored.is_deleted
                and schema_id in (-1, stored.id)
                and (stored in holders or schemas.is_same(request, stored))
            ):
                return [], stored
    if not is_import and not is_forced:
        reasons = _reasons(schemas, config, request, parsed, alive)
        if reasons:
            raise errors.incompatible(subject, reasons)
    version = _version_of(request, next_version, is_import)
    _check_import(store, subject, request, version, schema_id)
    if schema_id < 0:
        schema_id = store.id_max(subjects.context_of(subject)) + 1
    new = make_schema(
        subject,
        version,
        schema_id,
        request.schema_type,
        request.schema,
        request.references,
        request.metadata,
        request.rule_set,
    )
    return _records(store, new, versions), new


def _checked_mode(store: Store, subject: str, request: SchemaRequest) -> str:
    mode = settings.mode_of(store, subject)
    if mode.startswith("READONLY"):
        raise errors.read_only(subject)
    if request.id >= 0 and mode != "IMPORT":
        raise errors.not_permitted(f"Subject '{subject}' is not in import mode, so ids are the registry's to give.")
    if request.id < 0 and mode != "READWRITE":
        raise errors.not_permitted(f"Subject '{subject}' is in mode {mode}, not READWRITE.")
    return mode


def _completed(
    config: settings.Config, request: SchemaRequest, previous: StoredSchema | None, next_version: int
) -> SchemaRequest:
    """With what the request leaves to the previous version and to the settings."""
    request = msgspec.structs.replace(request)
    if not request.schema.strip() and previous is not None:
        request.schema, request.schema_type = previous.schema, previous.schema_type
        request.references = previous.references
    request.metadata, request.rule_set = _extras(config, request, previous)
    if request.version != 0 or metadata.version_in(request.metadata) is not None:
        request.metadata = metadata.with_version(request.metadata, next_version)
    return request


def _extras(
    config: settings.Config, request: SchemaRequest, previous: StoredSchema | None
) -> tuple[settings.Config | None, settings.Config | None]:
    own = request.metadata if request.metadata is not None or previous is None else previous.metadata
    rules = request.rule_set if request.rule_set is not None or previous is None else previous.rule_set
    own = metadata.merged_metadata(
        metadata.merged_metadata(config.get("defaultMetadata"), own), config.get("overrideMetadata")
    )
    rules = metadata.merged_rule_sets(
        metadata.merged_rule_sets(config.get("defaultRuleSet"), rules), config.get("overrideRuleSet")
    )
    return own, rules


def look_up(
    store: Store, schemas: Schemas, subject: str, request: SchemaRequest, *, is_normalized: bool, with_deleted: bool
) -> StoredSchema | None:
    """As it was sent; else with the extras that a registration would have given it."""
    found = schemas.look_up(subject, request, is_normalized=is_normalized, with_deleted=with_deleted)
    latest = store.version(subject, LATEST)
    if found is not None or latest is None:
        return found
    extended = msgspec.structs.replace(request)
    extended.metadata, extended.rule_set = _extras(settings.config_of(store, subject), request, latest)
    if extended == request:
        return None
    return schemas.look_up(subject, extended, is_normalized=is_normalized, with_deleted=with_deleted)


def reasons_against_registering(
    store: Store,
    schemas: Schemas,
    subject: str,
    request: SchemaRequest,
    previous: list[StoredSchema],
    *,
    is_normalized: bool,
) -> list[str]:
    """Why the schema may not follow these versions, oldest first."""
    if not request.schema.strip():
        raise errors.invalid_schema("it is empty")
    config = settings.config_of(store, subject)
    parsed = schemas.parse(request, subject, is_new=config.get("validateNewSchemas") is not False)
    request = schemas.canonical(request, parsed, is_normalized=is_normalized)
    return _reasons(schemas, config, request, parsed, previous)


def _reasons(
    schemas: Schemas,
    config: settings.Config,
    request: SchemaRequest,
    parsed: ParsedSchema,
    previous: list[StoredSchema],
) -> list[str]:
    group = config.get("compatibilityGroup")
    if group is not None:
        # Versions are only compared with those of their own group.
        wanted = _property(request.metadata, group)
        previous = [stored for stored in previous if _property(stored.metadata, group) == wanted]
    return reasons_against(
        parsed,
        [Previous(stored.version, partial(schemas.parse_stored, stored)) for stored in previous],
        config["compatibilityLevel"],
        is_lenient=config.get("compatibilityPolicy") == "LENIENT",
    )


def _property(value: settings.Config | None, name: str) -> object:
    return ((value or {}).get("properties") or {}).get(name)


def _version_of(request: SchemaRequest, next_version: int, is_import: bool) -> int:
    if request.version <= 0:
        return next_version
    if request.version != next_version and not is_import:
        raise errors.invalid_schema(f"its version is {request.version}, but the next one is {next_version}")
    return request.version


def _check_import(store: Store, subject: str, request: SchemaRequest, version: int, schema_id: int) -> None:
    if schema_id < 0:
        return
    context = subjects.context_of(subject)
    taken = store.by_id(schema_id, context)
    if taken is not None and (taken.schema, taken.references) != (request.schema, request.references):
        raise errors.not_permitted(f"The id {schema_id} is another schema's in context '{context}'.")
    existing = store.version(subject, version)
    if existing is not None and existing.id != schema_id:
        raise errors.id_mismatch(schema_id, existing.id)


def _records(store: Store, new: StoredSchema, versions: list[StoredSchema]) -> list[Record]:
    records = []
    context = subjects.context_of(new.subject)
    if context not in store.contexts():
        records.append(Record(ContextKey(context), {}))
    for stored in versions:
        # A soft-deleted version with this id is replaced, unless somebody refers to it.
        if (
            stored.is_deleted
            and stored.id == new.id
            and stored.version < new.version
            and not store.referrers(stored.subject, stored.version, with_deleted=True)
        ):
            records.append(Record(SchemaKey(stored.subject, stored.version), None))
    return [*records, Record(SchemaKey(new.subject, new.version), new)]
