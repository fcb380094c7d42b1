"""`/subjects` and `/compatibility`: registering, looking up, deleting and checking schemas."""

import asyncio
from typing import Any

from starlette.responses import Response

from penstock.http.registry import deleting, errors, registering, settings, subjects
from penstock.http.registry.calls import Call, schema_entity
from penstock.http.registry.records import StoredSchema
from penstock.http.registry.schemas import SchemaRequest
from penstock.http.registry.store import LATEST


async def list_subjects(call: Call) -> Response:
    """All contexts by default; `subjectPrefix` may say one, `:*:prefix` a prefix in all of them."""
    prefix = call.text("subjectPrefix")
    if call.context_prefix is not None:
        prefix = call.in_context(prefix or "")
    found = filtered_subjects(call, prefix if prefix is not None else subjects.ANY_CONTEXT)
    return call.answer(call.page(found))


def filtered_subjects(call: Call, prefix: str) -> list[str]:
    only_deleted = call.flag("deletedOnly")
    with_deleted = only_deleted or call.flag("deleted")
    wanted = subjects.parse(prefix)
    found = []
    for subject in call.store.subjects(with_deleted=with_deleted):
        matches = (
            subjects.parse(subject).name.startswith(wanted.name)
            if wanted.context == "*"
            else subject.startswith(prefix)
        )
        if matches and not (only_deleted and call.store.versions(subject)):
            found.append(subject)
    return sorted(found)


async def look_up(call: Call) -> Response:
    subject = call.subject()
    request = await call.schema_request()
    with_deleted = call.flag("deleted")

    def find() -> StoredSchema | None:
        for name in candidates(call, subject):
            is_normalized = call.is_normalized(settings.config_of(call.store, name))
            found = registering.look_up(
                call.store, call.schemas, name, request, is_normalized=is_normalized, with_deleted=with_deleted
            )
            if found is not None:
                return found
        return None

    found = await asyncio.to_thread(find)
    if found is None:
        if not call.store.has_subjects(subject, with_deleted=with_deleted):
            raise errors.subject_not_found(subject)
        raise errors.schema_not_found()
    return call.answer(schema_entity(found, await formatted(call, found)))


def candidates(call: Call, subject: str) -> list[str]:
    """A subject that is not qualified may be in any context, the default one first."""
    parsed = subjects.parse(subject)
    if parsed.context != subjects.DEFAULT_CONTEXT:
        return [subject]
    return [str(subjects.Subject(context, parsed.name)) for context in call.store.contexts()]


async def formatted(call: Call, schema: StoredSchema) -> str:
    name = (call.text("format") or "").strip().lower()
    if not name:
        return schema.schema
    return await asyncio.to_thread(lambda: call.schemas.parse_stored(schema).formatted(name))


async def delete_subject(call: Call) -> Response:
    subject, is_permanent = call.subject(), call.flag("permanent")
    deleted = await call.registry.change(
        lambda: deleting.delete_subject(call.store, subject, is_permanent=is_permanent)
    )
    return call.answer(deleted)


async def latest_with_metadata(call: Call) -> Response:
    """The latest version whose metadata has all the properties that are asked for."""
    subject, with_deleted = call.subject(), call.flag("deleted")
    wanted = dict(zip(call.texts("key"), call.texts("value"), strict=False))
    for schema in reversed(call.store.versions(subject, with_deleted=with_deleted)):
        properties = (schema.metadata or {}).get("properties") or {}
        if all(properties.get(key) == value for key, value in wanted.items()):
            return call.answer(schema_entity(schema, await formatted(call, schema)))
    if not call.store.has_subjects(subject, with_deleted=with_deleted):
        raise errors.subject_not_found(subject)
    raise errors.schema_not_found()


async def list_versions(call: Call) -> Response:
    subject = call.subject()
    only_deleted, as_negative = call.flag("deletedOnly"), call.flag("deletedAsNegative")
    with_deleted = call.flag("deleted") or only_deleted or as_negative
    if not call.store.has_subjects(subject, with_deleted=with_deleted):
        raise errors.subject_not_found(subject)
    versions = call.store.versions(subject, with_deleted=with_deleted)
    if only_deleted and not as_negative:
        versions = [schema for schema in versions if schema.is_deleted]
    numbers = [-schema.version if as_negative and schema.is_deleted else schema.version for schema in versions]
    return call.answer(call.page(numbers))


async def register(call: Call) -> Response:
    subject = call.subject()
    if not subjects.is_valid(subject):
        raise errors.invalid_subject(subject)
    request = await call.schema_request()
    is_normalized = call.is_normalized(settings.config_of(call.store, subject))
    is_forced = call.flag("force")

    def find() -> StoredSchema | None:
        return registering.find_registered(call.store, call.schemas, subject, request, is_normalized=is_normalized)

    found = await asyncio.to_thread(find)
    if found is None:
        forwarded = await call.answer_of_leader()
        if forwarded is not None:
            return forwarded
        found = await call.registry.change(
            lambda: registering.register(
                call.store, call.schemas, subject, request, is_normalized=is_normalized, is_forced=is_forced
            )
        )
    # Not the schema unless a form of it is asked for: Confluent's Python client would keep our text in place of what it
    # sent, and take it for a serialized descriptor later.
    answer = {"id": found.id, "version": found.version, "guid": found.guid}
    if call.text("format") is not None:
        answer["schema"] = await formatted(call, found)
    return call.answer(answer)


async def get_version(call: Call) -> Response:
    schema = found_version(call, with_deleted=call.flag("deleted"))
    entity = schema_entity(schema, await formatted(call, schema))
    if call.text("referenceFormat") == "qualified":
        entity |= qualified_references(schema)
    return call.answer(entity)


def qualified_references(schema: StoredSchema) -> dict[str, Any]:
    """The references of a schema, with the context in which each was found."""
    if not schema.references:
        return {}
    return {
        "references": [
            reference._asdict() | {"subject": subjects.qualify(reference.subject, schema.subject)}
            for reference in schema.references
        ]
    }


async def get_version_schema(call: Call) -> Response:
    schema = found_version(call, with_deleted=call.flag("deleted"))
    return Response(await formatted(call, schema), media_type=call.media_type())


def found_version(call: Call, *, with_deleted: bool) -> StoredSchema:
    subject, version = call.subject(), call.version()
    for name in candidates(call, subject):
        schema = call.store.version(name, version, with_deleted=with_deleted)
        if schema is not None:
            return schema
    if not call.store.has_subjects(subject, with_deleted=with_deleted):
        raise errors.subject_not_found(subject)
    raise errors.version_not_found(version)


async def referenced_by(call: Call) -> Response:
    schema = found_version(call, with_deleted=True)
    found = call.store.referrers(schema.subject, schema.version, with_deleted=call.flag("deleted"))
    return call.answer(call.page([schema_id for _, schema_id in found]))


async def delete_version(call: Call) -> Response:
    subject, version, is_permanent = call.subject(), call.version(), call.flag("permanent")
    deleted = await call.registry.change(
        lambda: deleting.delete_version(call.store, subject, version, is_permanent=is_permanent)
    )
    return call.answer(deleted)


async def check_version(call: Call) -> Response:
    """Against one version; a subject without versions takes anything if the latest is asked for."""
    subject, version = call.subject(), call.version()
    request = await call.schema_request()
    previous = call.store.version(subject, version)
    if previous is None and version != LATEST:
        raise errors.version_not_found(version)
    return await _check(call, subject, request, [] if previous is None else [previous])


async def check_subject(call: Call) -> Response:
    """As a registration would."""
    subject = call.subject()
    request = await call.schema_request()
    return await _check(call, subject, request, call.store.versions(subject))


async def _check(call: Call, subject: str, request: SchemaRequest, previous: list[StoredSchema]) -> Response:
    is_normalized = call.is_normalized(settings.config_of(call.store, subject))
    is_verbose = call.flag("verbose")
    try:
        reasons = await asyncio.to_thread(
            lambda: registering.reasons_against_registering(
                call.store, call.schemas, subject, request, previous, is_normalized=is_normalized
            )
        )
    except errors.RegistryError as problem:
        if problem.code != 42201 or not is_verbose:
            raise
        reasons = [problem.message]
    verdict: dict[str, Any] = {"is_compatible": not reasons}
    if is_verbose:
        verdict["messages"] = reasons
    return call.answer(verdict)
