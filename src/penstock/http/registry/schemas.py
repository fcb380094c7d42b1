"""Schemas as texts and as what they mean: references are resolved here, and equal schemas found."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from penstock.http.registry import errors, metadata, subjects
from penstock.http.registry.formats import InvalidSchema, ParsedSchema, Reference, parse
from penstock.http.registry.formats.schema import AVRO
from penstock.http.registry.records import StoredSchema, make_schema
from penstock.http.registry.store import LATEST, Store

_PARSED_MAX = 1000

Parse = Callable[[str, str, tuple[Reference, ...], str, bool], ParsedSchema]


class SchemaRequest(msgspec.Struct):
    """What somebody wants to register, look up or check."""

    schema: str = ""
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    # 0: the next one; -1 the same, and the version is written into the metadata.
    version: int = 0
    # -1: one that the registry gives.
    id: int = -1


class Schemas:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._parse: Parse = lru_cache(_PARSED_MAX)(self._parse_anew)
        self._removal_count = 0

    def parse(self, request: SchemaRequest, subject: str, *, is_new: bool) -> ParsedSchema:
        """Raises RegistryError 42201. Versions of references that say `latest` become numbers in the request."""
        if len(request.schema.encode()) > errors.SCHEMA_BYTES_MAX:
            raise errors.schema_too_large(len(request.schema.encode()))
        request.references = tuple(self._numbered(reference, subject) for reference in request.references)
        return self._parsed(request.schema_type, request.schema, request.references, subject, is_new)

    def parse_stored(self, stored: StoredSchema) -> ParsedSchema:
        return self._parsed(stored.schema_type, stored.schema, stored.references, stored.subject, False)

    def _parsed(
        self, schema_type: str, text: str, references: tuple[Reference, ...], subject: str, is_new: bool
    ) -> ParsedSchema:
        if self._store.removal_count != self._removal_count:
            # A version that is removed for good may come again with another schema.
            self._removal_count = self._store.removal_count
            self._parse = lru_cache(_PARSED_MAX)(self._parse_anew)
        parent = str(subjects.Subject(subjects.context_of(subject), ""))
        try:
            return self._parse(schema_type, text, references, parent, is_new)
        except InvalidSchema as problem:
            raise errors.invalid_schema(str(problem)) from None

    def _parse_anew(
        self, schema_type: str, text: str, references: tuple[Reference, ...], parent: str, is_new: bool
    ) -> ParsedSchema:
        resolved: dict[str, str] = {}
        self._resolve(references, parent, resolved, set(), is_new)
        return parse(schema_type, text, resolved, references, is_new=is_new)

    def _numbered(self, reference: Reference, parent: str) -> Reference:
        if reference.version != LATEST:
            return reference
        found = self._store.version(subjects.qualify(reference.subject, parent), LATEST)
        return reference if found is None else reference._replace(version=found.version)

    def _resolve(
        self,
        references: tuple[Reference, ...],
        parent: str,
        resolved: dict[str, str],
        visited: set[str],
        is_new: bool,
    ) -> None:
        for reference in references:
            subject = subjects.qualify(reference.subject, parent)
            found = self._store.version(subject, reference.version, with_deleted=not is_new)
            if found is None:
                raise InvalidSchema(
                    f"the reference '{reference.name}' names version {reference.version} of subject '{subject}', "
                    "which does not exist"
                )
            if reference.name not in visited:
                visited.add(reference.name)
                self._resolve(found.references, found.subject, resolved, visited, is_new)
                resolved.setdefault(reference.name, found.schema)

    def canonical(self, request: SchemaRequest, parsed: ParsedSchema, *, is_normalized: bool) -> SchemaRequest:
        """The request with the text that would be stored."""
        text = parsed.canonical
        references = request.references
        if is_normalized:
            try:
                text = parsed.normalized()
            except InvalidSchema as problem:
                raise errors.invalid_schema(str(problem)) from None
            references = tuple(sorted(set(references)))
        return msgspec.structs.replace(request, schema=text, references=references)

    def holder_of(self, request: SchemaRequest, subject: str) -> list[StoredSchema]:
        """The versions, in the subject's context, that are this very schema."""
        context = subjects.context_of(subject)
        wanted = make_schema(
            subject, 0, 0, request.schema_type, request.schema, request.references, request.metadata, request.rule_set
        )
        schema_id = self._store.id_of_hash(wanted.hash, context)
        if schema_id is None:
            return []
        return [
            stored
            for stored in self._store.versions_with_id(schema_id, context)
            if stored.schema_type == request.schema_type
        ]

    def is_same(self, request: SchemaRequest, stored: StoredSchema) -> bool:
        """Also if the one is sent with its references written out, or one of them is told its version."""
        if request.schema_type != stored.schema_type or request.rule_set != stored.rule_set:
            return False
        version = metadata.version_in(request.metadata)
        if version is not None and version != (metadata.version_in(stored.metadata) or str(stored.version)):
            return False
        if metadata.without_version(request.metadata) != metadata.without_version(stored.metadata):
            return False
        if request.references == stored.references:
            return request.schema == stored.schema
        if request.references:
            return False
        try:
            return request.schema == self.parse_stored(stored).resolved_text()
        except errors.RegistryError:
            return False

    def look_up(
        self,
        subject: str,
        request: SchemaRequest,
        *,
        is_normalized: bool,
        with_deleted: bool,
        latest_only: bool = False,
    ) -> StoredSchema | None:
        """The version of the subject that is this schema."""
        if not request.schema.strip():
            return None
        parsed = self.parse(request, subject, is_new=False)
        wanted = self.canonical(request, parsed, is_normalized=is_normalized)
        if latest_only:
            latest = self._store.version(subject, LATEST)
            return latest if latest is not None and self.is_same(wanted, latest) else None
        for stored in self.holder_of(wanted, subject):
            if stored.subject == subject and (with_deleted or not stored.is_deleted):
                return stored
        for stored in reversed(self._store.versions(subject, with_deleted=with_deleted)):
            if self.is_same(wanted, stored):
                return stored
        return None
