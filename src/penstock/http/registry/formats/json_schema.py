"""JSON Schemas: drafts 4, 6, 7, 2019-09 and 2020-12.

References lead into the schema itself or to registered schemas, never to files or the network.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urljoin

from penstock.http.registry import json_text
from penstock.http.registry.formats.json_model import JsonType
from penstock.http.registry.formats.schema import JSON, InvalidSchema, Resolved

_ARRAY_KEYS = frozenset(("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"))
_OBJECT_KEYS = frozenset(
    (
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "dependencies",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
    )
)
_NUMBER_KEYS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_STRING_KEYS = frozenset(("minLength", "maxLength", "pattern", "format"))
_MODERN_ARRAY_KEYS = _ARRAY_KEYS | {"prefixItems", "unevaluatedItems"}
_MODERN_OBJECT_KEYS = _OBJECT_KEYS | {"dependentRequired", "dependentSchemas", "unevaluatedProperties"}
_CONDITIONAL_KEYS = ("if", "then", "else")
_CRITERIA = ("allOf", "anyOf", "oneOf")
_KNOWN_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")


class JsonSchema:
    schema_type = JSON

    def __init__(self, value: Any, root: JsonType | None, resolved: Resolved) -> None:
        self._value = value
        self._root = root
        self._resolved = resolved
        self.canonical = json_text.write(value)

    @property
    def root(self) -> JsonType:
        if self._root is None:
            self._root = _Loader(self._value, self._resolved).load()
        return self._root

    def normalized(self) -> str:
        return json_text.write(self._value, has_sorted_keys=True)

    def formatted(self, name: str) -> str:
        return self.canonical

    def resolved_text(self) -> str:
        return self.canonical


def parse(text: str, resolved: Resolved, *, is_new: bool) -> JsonSchema:
    try:
        value = json_text.read(text)
        if not isinstance(value, dict | bool):
            raise InvalidSchema("a JSON Schema is an object or a boolean")
        return JsonSchema(value, _Loader(value, resolved).load() if is_new else None, resolved)
    except json_text.InvalidJson as problem:
        raise InvalidSchema(str(problem)) from None


class _Document:
    """One text with schemas in it."""

    def __init__(self, value: Any, base: str) -> None:
        self.value = value
        self.base = base
        self.draft = _draft_of(value)
        self.id_key = "id" if self.draft == "4" else "$id"
        self.by_id: dict[str, Any] = {}
        self.by_anchor: dict[str, Any] = {}
        if isinstance(value, dict) and isinstance(value.get(self.id_key), str):
            self.base = urljoin(base, value[self.id_key])
        self._collect(value, base)

    @property
    def is_modern(self) -> bool:
        return self.draft == "modern"

    def _collect(self, value: Any, base: str) -> None:
        if isinstance(value, dict):
            identifier = value.get(self.id_key)
            if isinstance(identifier, str):
                base = urljoin(base, identifier)
                self.by_id.setdefault(base.rstrip("#"), value)
                if identifier.startswith("#"):
                    self.by_anchor.setdefault(identifier[1:], value)
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(value.get(key), str):
                    self.by_anchor.setdefault(value[key], value)
            for item in value.values():
                self._collect(item, base)
        elif isinstance(value, list):
            for item in value:
                self._collect(item, base)

    def at(self, fragment: str) -> Any:
        """What a fragment leads to; None if nothing is there."""
        if not fragment:
            return self.value
        if not fragment.startswith("/"):
            return self.by_anchor.get(fragment)
        found = _at_pointer(self.value, fragment)
        if found is None and fragment.startswith("/$defs/"):
            found = _at_pointer(self.value, "/definitions/" + fragment.removeprefix("/$defs/"))
        return found


def _draft_of(value: Any) -> str:
    schema = value.get("$schema") if isinstance(value, dict) else None
    uri = schema.rstrip("#") if isinstance(schema, str) else ""
    if uri.endswith(("/draft/2019-09/schema", "/draft/2020-12/schema")):
        return "modern"
    if uri.endswith(("/draft-04/schema", "json-schema.org/schema")):
        return "4"
    return "7"


def _at_pointer(value: Any, pointer: str) -> Any:
    for part in pointer[1:].split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


class _Loader:
    def __init__(self, value: Any, resolved: Resolved) -> None:
        self._root = _Document(value, "")
        self._documents = {}
        for name, text in resolved.items():
            document = _Document(json_text.read(text), urljoin(self._root.base, name))
            self._documents[name] = self._documents[urljoin(self._root.base, name)] = document
        # Types by the identity of the JSON that they were read from, so that refs to one place lead to one type.
        self._loaded: dict[int, JsonType] = {}
        self._pending: list[tuple[JsonType, str, _Document]] = []

    def load(self) -> JsonType:
        root = self._load(self._root.value, self._root)
        while self._pending:
            reference, uri, document = self._pending.pop()
            reference.target = self._target(uri, document)
        return root

    def _load(self, value: Any, document: _Document) -> JsonType:
        if id(value) in self._loaded and not isinstance(value, bool):
            return self._loaded[id(value)]
        if isinstance(value, bool):
            return JsonType("true" if value else "false", json_text.write(value))
        if not isinstance(value, dict):
            raise InvalidSchema(f"{json_text.write(value)[:100]} is not a schema")
        loaded = _ObjectReader(value, document, lambda child: self._load(child, document), self._refer).read()
        self._loaded[id(value)] = loaded
        return loaded

    def _refer(self, uri: Any, key: str, document: _Document) -> JsonType:
        if not isinstance(uri, str):
            raise InvalidSchema(f"$ref {json_text.write(uri)[:100]} is not a text")
        reference = JsonType("ref", key)
        self._pending.append((reference, uri, document))
        return reference

    def _target(self, uri: str, document: _Document) -> JsonType:
        path, _, fragment = uri.partition("#")
        fragment = unquote(fragment)
        if path:
            absolute = urljoin(document.base, path)
            embedded = document.by_id.get(absolute)
            if embedded is not None and not fragment:
                return self._load(embedded, document)
            if _draft_of({"$schema": absolute}) != "7" or absolute.endswith(("/draft-06/schema", "/draft-07/schema")):
                # A schema that refers to the specification's own takes any schema.
                return JsonType("empty", absolute)
            found = (
                document
                if absolute == document.base
                else self._documents.get(absolute) or self._documents.get(path.removeprefix("./"))
            )
            if found is None:
                raise InvalidSchema(
                    f"$ref '{uri[:200]}' leads to nothing in the schema or its references; "
                    "files and other places are never read"
                )
            document = found
        value = document.at(fragment)
        if value is None:
            raise InvalidSchema(f"$ref '{uri[:200]}' leads to nothing")
        return self._load(value, document)


class _ObjectReader:
    """Reads one JSON object that is a schema."""

    def __init__(
        self,
        value: dict[str, Any],
        document: _Document,
        load: Callable[[Any], JsonType],
        refer: Callable[[Any, str, _Document], JsonType],
    ) -> None:
        self._value = value
        self._document = document
        self._load = load
        self._refer = refer
        self._key = json_text.write(value, has_sorted_keys=True)

    def read(self) -> JsonType:
        parts = self._parts()
        if not parts:
            whole = JsonType("empty", self._key)
        elif len(parts) == 1:
            whole = parts[0]
        else:
            whole = JsonType("combined", self._key)
            whole.criterion = "allOf"
            whole.parts = parts
        value = self._value
        whole.id = self._optional(value.get(self._document.id_key), str, self._document.id_key)
        whole.title = self._optional(value.get("title"), str, "title")
        whole.description = self._optional(value.get("description"), str, "description")
        if "default" in value:
            whole.default = json_text.write(value["default"], has_sorted_keys=True)
        whole.connect_type = value.get("connect.type")
        return whole

    def _parts(self) -> list[JsonType]:
        value = self._value
        parts = []
        is_modern = self._document.is_modern
        for key in ("$ref", "$dynamicRef", "$recursiveRef") if is_modern else ("$ref",):
            if key in value:
                parts.append(self._refer(value[key], self._key, self._document))
        if parts and not is_modern:
            return parts
        if "enum" in value:
            parts.append(self._enum())
        parts.extend(self._combined(criterion) for criterion in _CRITERIA if criterion in value)
        if "not" in value:
            negated = JsonType("not", self._key)
            negated.parts = [self._load(value["not"])]
            parts.append(negated)
        if "const" in value and self._document.draft != "4":
            constant = JsonType("const", self._key)
            constant.const = json_text.write(value["const"], has_sorted_keys=True)
            parts.append(constant)
        parts.extend(self._by_type())
        if self._document.draft != "4" and any(key in value for key in _CONDITIONAL_KEYS):
            conditional = JsonType("conditional", self._key)
            conditional.parts = [self._load(value[key]) for key in _CONDITIONAL_KEYS if key in value]
            parts.append(conditional)
        return parts

    def _enum(self) -> JsonType:
        enum = JsonType("enum", self._key)
        values = self._required(self._value["enum"], list, "enum")
        enum.enum = frozenset(json_text.write(item, has_sorted_keys=True) for item in values)
        return enum

    def _combined(self, criterion: str) -> JsonType:
        combined = JsonType("combined", f"{criterion} {self._key}")
        combined.criterion = criterion
        combined.parts = [self._load(item) for item in self._required(self._value[criterion], list, criterion)]
        return combined

    def _by_type(self) -> list[JsonType]:
        """The named type or types; without one, what the keywords speak of."""
        value = self._value
        is_modern = self._document.is_modern
        array_keys = _MODERN_ARRAY_KEYS if is_modern else _ARRAY_KEYS
        object_keys = _MODERN_OBJECT_KEYS if is_modern else _OBJECT_KEYS
        string_keys = _STRING_KEYS - {"format"} if is_modern else _STRING_KEYS
        by_keys = [("array", array_keys), ("object", object_keys), ("number", _NUMBER_KEYS), ("string", string_keys)]
        spoken_of = [name for name, keys in by_keys if not keys.isdisjoint(value)]
        if "type" not in value:
            return [self._typed(name) for name in spoken_of]
        names = value["type"]
        if isinstance(names, str):
            found = [self._typed(names)]
        else:
            union = JsonType("combined", f"types {self._key}")
            union.criterion = "anyOf"
            union.parts = [self._typed(name) for name in self._required(names, list, "type")]
            found = [union]
        named = {"number" if name == "integer" else name for name in ([names] if isinstance(names, str) else names)}
        return found + [self._typed(name) for name in spoken_of if name not in named]

    def _typed(self, name: Any) -> JsonType:
        if name not in _KNOWN_TYPES:
            raise InvalidSchema(f"{json_text.write(name)[:100]} is not a type of JSON")
        typed = JsonType("number" if name == "integer" else name, f"{name} {self._key}")
        if name in ("integer", "number"):
            typed.requires_integer = name == "integer"
            self._read_number(typed)
        elif name == "string":
            self._read_limits(typed, "minLength", "maxLength")
            typed.pattern = self._optional(self._value.get("pattern"), str, "pattern")
        elif name == "array":
            self._read_array(typed)
        elif name == "object":
            self._read_object(typed)
        return typed

    def _read_number(self, typed: JsonType) -> None:
        for key in _NUMBER_KEYS:
            limit = self._value.get(key)
            if limit is None or (isinstance(limit, bool) and self._document.draft == "4"):
                continue
            if isinstance(limit, bool) or not isinstance(limit, int | float):
                raise InvalidSchema(f"{key} is not a number")
            typed.limits[key] = limit
        if typed.limits.get("multipleOf") == 0:
            raise InvalidSchema("multipleOf is 0")

    def _read_limits(self, typed: JsonType, *keys: str) -> None:
        for key in keys:
            limit = self._value.get(key)
            if limit is None:
                continue
            if isinstance(limit, bool) or not isinstance(limit, int | float) or limit != int(limit):
                raise InvalidSchema(f"{key} is not a whole number")
            typed.limits[key] = int(limit)

    def _read_array(self, typed: JsonType) -> None:
        value = self._value
        self._read_limits(typed, "minItems", "maxItems")
        typed.is_unique = self._optional(value.get("uniqueItems"), bool, "uniqueItems") or False
        tuple_key = "prefixItems" if self._document.is_modern else "items"
        if isinstance(value.get(tuple_key), list):
            typed.items = [self._load(item) for item in value[tuple_key]]
            rest_key = "items" if self._document.is_modern else "additionalItems"
        else:
            rest_key = "additionalItems"
            if self._document.is_modern and value.get("items") is False:
                typed.additional = False
            elif "items" in value and not (self._document.is_modern and value["items"] is True):
                typed.item = self._load(value["items"])
        if isinstance(value.get(rest_key), bool):
            # Where all items have one type there are no others.
            typed.additional = value[rest_key] or typed.item is not None
        elif rest_key in value:
            typed.additional_type = self._load(value[rest_key])
        if "contains" in value:
            self._load(value["contains"])
        if self._document.is_modern:
            if "contains" in value:
                self._read_limits(typed, "minContains", "maxContains")
                typed.limits.setdefault("minContains", 1)
            if "unevaluatedItems" in value:
                typed.unevaluated = self._load(value["unevaluatedItems"])

    def _read_object(self, typed: JsonType) -> None:
        value = self._value
        self._read_limits(typed, "minProperties", "maxProperties")
        typed.properties = self._types_of("properties")
        typed.pattern_properties = self._types_of("patternProperties")
        typed.required = self._names_of(value.get("required", []), "required")
        if isinstance(value.get("additionalProperties"), bool):
            typed.additional = value["additionalProperties"]
        elif "additionalProperties" in value:
            typed.additional_type = self._load(value["additionalProperties"])
        if "propertyNames" in value:
            self._load(value["propertyNames"])
        modern = ("dependentRequired", "dependentSchemas") if self._document.is_modern else ()
        for key in ("dependencies", *modern):
            for name, dependency in self._required(value.get(key, {}), dict, key).items():
                if isinstance(dependency, list):
                    typed.property_dependencies[name] = self._names_of(dependency, key)
                else:
                    typed.type_dependencies[name] = self._load(dependency)
        if self._document.is_modern and "unevaluatedProperties" in value:
            typed.unevaluated = self._load(value["unevaluatedProperties"])

    def _types_of(self, key: str) -> dict[str, JsonType]:
        return {name: self._load(item) for name, item in self._required(self._value.get(key, {}), dict, key).items()}

    def _names_of(self, value: Any, key: str) -> frozenset[str]:
        names = self._required(value, list, key)
        if not all(isinstance(name, str) for name in names):
            raise InvalidSchema(f"{key} is not a list of names")
        return frozenset(names)

    def _required(self, value: Any, kind: type, key: str) -> Any:
        if not isinstance(value, kind):
            raise InvalidSchema(f"{key} is {json_text.write(value)[:100]}, which it cannot be")
        return value

    def _optional(self, value: Any, kind: type, key: str) -> Any:
        return None if value is None else self._required(value, kind, key)
