"""`/schemas`: schemas by id and guid. By id is what every consumer of every topic asks, so it has a short way."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.http.registry import errors, json_text, metadata, subjects
from penstock.http.registry.api_subjects import filtered_subjects, formatted, qualified_references
from penstock.http.registry.calls import Call, error_response, media_type_of, schema_entity
from penstock.http.registry.formats import TYPES
from penstock.http.registry.records import StoredSchema
from penstock.http.registry.registry import Registry
from penstock.http.registry.store import Store

_SCHEMAS_MAX = 1000
_CACHED_MAX = 10000


def find_by_id(store: Store, schema_id: int, subject: str | None) -> StoredSchema | None:
    """In the subject's context; a subject that is not qualified may be in another one."""
    if subject is None:
        return store.by_id(schema_id, subjects.DEFAULT_CONTEXT)
    parsed = subjects.parse(subject)
    if not parsed.name:
        return store.by_id(schema_id, parsed.context)
    found = store.by_id(schema_id, parsed.context, str(parsed))
    if found is not None or parsed.context != subjects.DEFAULT_CONTEXT:
        return found
    for context in store.contexts():
        found = store.by_id(schema_id, context, str(subjects.Subject(context, parsed.name)))
        if found is not None:
            return found
    return store.by_id(schema_id, subjects.DEFAULT_CONTEXT)


def _id_of(text: str) -> int:
    if not text.isdecimal() or len(text) > 10:
        raise errors.RegistryError(404, "An id of a schema is a number.")
    return int(text)


class SchemaById:
    """GET /schemas/ids/{id}: whole answers are kept until something is registered or deleted."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept: dict[tuple[str, str, bytes, bytes], list[dict[str, Any]]] = {}
        self._change_count = -1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        store = self._registry.store
        if self._change_count != store.change_count or len(self._kept) > _CACHED_MAX:
            self._kept = {}
            self._change_count = store.change_count
        accept = b""
        for name, value in scope["headers"]:
            if name == b"accept":
                accept = value
                break
        parameters = scope["path_params"]
        key = (parameters["id"], parameters.get("context", ""), scope["query_string"], accept)
        messages = self._kept.get(key)
        if messages is None:
            change_count = store.change_count
            try:
                messages = await self._messages(scope, accept)
            except errors.RegistryError as problem:
                await error_response(problem)(scope, receive, send)
                return
            if change_count == store.change_count:
                self._kept[key] = messages
        for message in messages:
            await send(message)

    async def _messages(self, scope: Scope, accept: bytes) -> list[dict[str, Any]]:
        media_type = media_type_of(accept.decode("latin-1"))
        call = Call(self._registry, Request(scope))
        store = self._registry.store
        schema = _required_by_id(call)
        entity = schema_entity(schema, await formatted(call, schema))
        if call.flag("fetchMaxId"):
            entity["maxId"] = store.id_max(subjects.context_of(schema.subject))
        if call.text("referenceFormat") == "qualified":
            entity |= qualified_references(schema)
        del entity["id"]
        body = json_text.write(entity).encode()
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", media_type.encode())]
        return [
            {"type": "http.response.start", "status": 200, "headers": headers},
            {"type": "http.response.body", "body": body},
        ]


async def get_schema_text(call: Call) -> Response:
    return Response(await formatted(call, _required_by_id(call)), media_type=call.media_type())


async def get_subjects(call: Call) -> Response:
    return call.answer(call.page([schema.subject for schema in _versions_with_id(call)]))


async def get_versions(call: Call) -> Response:
    found = [{"subject": schema.subject, "version": schema.version} for schema in _versions_with_id(call)]
    return call.answer(call.page(found))


def _required_by_id(call: Call) -> StoredSchema:
    schema_id = _id_of(call.path("id"))
    subject = call.text("subject")
    if call.context_prefix is not None:
        subject = call.in_context(subject or "")
    if subject is not None:
        subject = call.without_alias(subjects.normalize(subject))
    schema = find_by_id(call.store, schema_id, subject)
    if schema is None:
        raise errors.schema_not_found(schema_id)
    return schema


def _versions_with_id(call: Call) -> list[StoredSchema]:
    schema = _required_by_id(call)
    versions = call.store.versions_with_id(schema.id, subjects.context_of(schema.subject))
    return [item for item in versions if call.flag("deleted") or not item.is_deleted]


async def get_by_guid(call: Call) -> Response:
    guid = call.path("guid")
    for context, schema_id in _ids_of_guid(call, guid):
        schema = call.store.by_id(schema_id, context)
        assert schema is not None
        entity = schema_entity(schema, await formatted(call, schema))
        return call.answer({key: value for key, value in entity.items() if key not in ("subject", "version", "id")})
    raise errors.schema_not_found(guid[:40])


async def get_ids_by_guid(call: Call) -> Response:
    found = _ids_of_guid(call, call.path("guid"))
    return call.answer([{"context": context, "id": schema_id} for context, schema_id in sorted(found)])


def _ids_of_guid(call: Call, guid: str) -> list[tuple[str, int]]:
    digest = metadata.hash_of_guid(guid)
    if digest is None:
        return []
    found = [(context, call.store.id_of_hash(digest, context)) for context in call.store.contexts()]
    return [
        (context, schema_id)
        for context, schema_id in found
        if schema_id is not None and call.store.by_id(schema_id, context) is not None
    ]


async def list_types(call: Call) -> Response:
    return call.answer(list(TYPES))


async def list_schemas(call: Call) -> Response:
    with_deleted = call.flag("deleted")
    found = []
    for subject in filtered_subjects(call, call.in_context(call.text("subjectPrefix") or "")):
        versions = call.store.versions(subject, with_deleted=with_deleted)
        found += versions[-1:] if call.flag("latestOnly") else versions
    rule_type = call.text("ruleType")
    if rule_type is not None:
        found = [schema for schema in found if _has_rule_type(schema, rule_type)]
    return call.answer([schema_entity(schema) for schema in call.page(found, _SCHEMAS_MAX)])


def _has_rule_type(schema: StoredSchema, rule_type: str) -> bool:
    rule_lists = [rules for rules in (schema.rule_set or {}).values() if isinstance(rules, list)]
    return any(rule.get("type") == rule_type for rules in rule_lists for rule in rules)
