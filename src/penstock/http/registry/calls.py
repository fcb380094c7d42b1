"""Requests and answers over HTTP: media types, bounded bodies, parameters, and errors as Confluent's clients expect
them. Whatever goes wrong inside is logged, and answered without a stack trace.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from penstock.http.registry import errors, json_text, metadata, subjects
from penstock.http.registry.formats.schema import AVRO, Reference
from penstock.http.registry.forwarding import FORWARDED_HEADER, forward
from penstock.http.registry.records import StoredSchema
from penstock.http.registry.registry import Registry
from penstock.http.registry.schemas import SchemaRequest
from penstock.http.registry.store import LATEST

log = logging.getLogger("penstock.registry")

MEDIA_TYPES = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
# A schema of the largest size may need twice its bytes inside JSON.
BODY_BYTES_MAX = 4 * errors.SCHEMA_BYTES_MAX

_LIST_MAX = 20000
# A leader that was killed is replaced within the group's session and a little more.
_LEADER_SECONDS_MAX = 15.0
_LEADER_PAUSE_SECONDS = 0.1
_INT_MAX = (1 << 31) - 1


class Call:
    """One request."""

    def __init__(self, registry: Registry, request: Request) -> None:
        self.registry = registry
        self.store = registry.store
        self.schemas = registry.schemas
        self._request = request
        self._body: bytes | None = None

    def flag(self, name: str) -> bool:
        return self._request.query_params.get(name, "").lower() == "true"

    def text(self, name: str) -> str | None:
        return self._request.query_params.get(name) or None

    def texts(self, name: str) -> list[str]:
        return self._request.query_params.getlist(name)

    def path(self, name: str) -> str:
        value: str = self._request.path_params[name]
        return value

    def in_context(self, subject: str) -> str:
        """A subject as it is meant under `/contexts/{context}`."""
        context = self._request.path_params.get("context")
        return subject if context is None else subjects.in_context(context, subject)

    @property
    def context_prefix(self) -> str | None:
        """The context of a request under `/contexts/{context}`, as a subject without a name."""
        return self.in_context("") if "context" in self._request.path_params else None

    def subject(self) -> str:
        return self.without_alias(subjects.normalize(self.in_context(self.path("subject"))))

    def without_alias(self, subject: str) -> str:
        """A subject whose settings name another one stands for it."""
        alias = self.store.configs.get(subject, {}).get("alias")
        return subjects.qualify(alias, subject) if alias else subject

    def setting_subject(self) -> str | None:
        """None: the top-level settings."""
        raw = self._request.path_params.get("subject")
        subject = self.context_prefix if raw is None else self.in_context(raw)
        if subject is None or subjects.is_default_context(subject):
            return None
        if not subjects.is_valid(subject, is_setting=True):
            raise errors.invalid_subject(subject)
        return subjects.normalize(subject)

    def version(self) -> int:
        text = self.path("version").strip()
        if text.lower() == "latest" or text == str(LATEST):
            return LATEST
        if not text.isdecimal() or not 1 <= int(text) <= _INT_MAX:
            raise errors.invalid_version(text[:40])
        return int(text)

    def page(self, items: list[Any], limit_max: int = _LIST_MAX) -> list[Any]:
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        if not 0 < limit <= limit_max:
            limit = limit_max
        return items[max(0, offset) : max(0, offset) + limit]

    def _number(self, name: str, default: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise errors.RegistryError(400, f"The parameter {name} is not a number.") from None

    async def body(self) -> dict[str, Any]:
        content_type = self._request.headers.get("content-type", MEDIA_TYPES[0]).split(";")[0].strip().lower()
        if content_type not in (*MEDIA_TYPES, "application/octet-stream"):
            raise errors.RegistryError(415, f"The content type is {content_type[:100]}; send application/json.")
        if self._request.headers.get("content-encoding", "identity").lower() != "identity":
            raise errors.RegistryError(415, "Compressed bodies are not accepted.")
        try:
            value = json_text.read(await self.raw_body())
        except json_text.InvalidJson as problem:
            raise errors.RegistryError(400, f"The body is not valid: {problem}.") from None
        if not isinstance(value, dict):
            raise errors.RegistryError(422, "The body is not a JSON object.")
        return value

    async def raw_body(self) -> bytes:
        if self._body is not None:
            return self._body
        parts: list[bytes] = []
        size = 0
        async for part in self._request.stream():
            size += len(part)
            if size > BODY_BYTES_MAX:
                raise errors.RegistryError(413, f"The body is larger than {BODY_BYTES_MAX} bytes.")
            parts.append(part)
        self._body = b"".join(parts)
        return self._body

    async def schema_request(self) -> SchemaRequest:
        body = await self.body()
        return SchemaRequest(
            schema=_typed(body, "schema", str, ""),
            schema_type=_typed(body, "schemaType", str, AVRO).upper(),
            references=tuple(_reference(item) for item in _typed(body, "references", list, [])),
            metadata=metadata.checked_metadata(body.get("metadata")),
            rule_set=metadata.checked_rule_set(body.get("ruleSet")),
            version=_typed(body, "version", int, 0),
            id=_typed(body, "id", int, -1),
        )

    def is_normalized(self, subject_config: dict[str, Any]) -> bool:
        return self.flag("normalize") or subject_config.get("normalize") is True

    def media_type(self) -> str:
        accept = self._request.headers.get("accept")
        return MEDIA_TYPES[0] if accept is None else media_type_of(accept)

    def answer(self, value: Any, status: int = 200) -> Response:
        return Response(json_text.write(value), status, media_type=self.media_type())

    async def answer_of_leader(self) -> Response | None:
        """For requests that change something: None if this registry is the leader."""
        if self.is_forwarded:
            if not self.registry.is_leader:
                raise errors.no_leader()
            return None
        url = await self.registry.other_leader()
        if url is None:
            return None
        scope = self._request.scope
        target = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("latin-1")
        try:
            answer = await forward(url, self._request.method, target, self._request.headers, await self.raw_body())
        except errors.RegistryError:
            self.registry.forget_leader()
            raise
        if answer.status == 500 and f'"error_code":{errors.NO_LEADER}'.encode() in answer.body:
            # It was the leader a moment ago.
            self.registry.forget_leader()
            raise errors.no_leader()
        return Response(answer.body, answer.status, media_type=answer.content_type)

    @property
    def is_forwarded(self) -> bool:
        return self._request.headers.get(FORWARDED_HEADER) is not None


Handler = Callable[[Call], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def endpoint(registry: Registry, handler: Handler, *, is_change: bool) -> Endpoint:
    async def respond(request: Request) -> Response:
        try:
            return await _respond(Call(registry, request), handler, is_change)
        except errors.RegistryError as problem:
            return error_response(problem)
        except ClientDisconnect:
            return error_response(errors.RegistryError(400, "The request ended too early."))
        except Exception:
            log.exception("%s %s met a defect", request.method, request.url.path)
            return error_response(errors.RegistryError(500, "The registry met a defect; its log says more."))

    return respond


async def _respond(call: Call, handler: Handler, is_change: bool) -> Response:
    call.media_type()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LEADER_SECONDS_MAX
    while True:
        try:
            forwarded = await call.answer_of_leader() if is_change else None
            return forwarded or await handler(call)
        except errors.RegistryError as problem:
            if not problem.is_worth_another_try or call.is_forwarded or loop.time() > deadline:
                raise
        await asyncio.sleep(_LEADER_PAUSE_SECONDS)


def error_response(problem: errors.RegistryError) -> Response:
    body = json_text.write({"error_code": problem.code, "message": problem.message})
    return Response(body.encode("utf-8", "replace"), problem.status, media_type=MEDIA_TYPES[0])


def media_type_of(accept: str) -> str:
    """The first that the client names and we have; the common one if it takes anything."""
    names = [item.split(";")[0].strip().lower() for item in accept.split(",")]
    for name in names:
        if name in MEDIA_TYPES:
            return name
    if not accept.strip() or "*/*" in names or "application/*" in names:
        return MEDIA_TYPES[0]
    raise errors.RegistryError(406, f"The registry answers with {', '.join(MEDIA_TYPES)}.")


def _typed(body: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise errors.RegistryError(422, f"{name} is not of the type that it has to be.")
    return value


def _reference(item: Any) -> Reference:
    if isinstance(item, dict):
        name, subject, version = item.get("name"), item.get("subject"), item.get("version")
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int):
            return Reference(name, subject, version)
    raise errors.invalid_schema("a reference needs a name, a subject and a version")


def schema_entity(schema: StoredSchema, text: str | None = None) -> dict[str, Any]:
    """A version of a subject, as it is shown."""
    entity: dict[str, Any] = {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        "guid": schema.guid,
    }
    if schema.schema_type != AVRO:
        entity["schemaType"] = schema.schema_type
    if schema.references:
        entity["references"] = [reference._asdict() for reference in schema.references]
    if schema.metadata is not None:
        entity["metadata"] = schema.metadata
    if schema.rule_set is not None:
        entity["ruleSet"] = schema.rule_set
    entity["schema"] = schema.schema if text is None else text
    if schema.timestamp_ms > 0:
        entity["ts"] = schema.timestamp_ms
    entity["deleted"] = schema.is_deleted
    return entity
