"""Avro schemas: read from JSON as Avro's own Java library reads them, and written as its `toString` writes them.

That text is what Confluent's registry stores and hands out, so the same schema has the same text and hash here.
"""

import re
from typing import Any

from penstock.http.registry import json_text
from penstock.http.registry.formats.schema import AVRO, InvalidSchema, Resolved

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED = frozenset(("record", "enum", "fixed"))

_TYPE_KEYS = frozenset(("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"))
_ENUM_KEYS = _TYPE_KEYS | {"default"}
_FIELD_KEYS = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LOGICAL_TYPES = frozenset(
    (
        "decimal",
        "big-decimal",
        "uuid",
        "date",
        "time-millis",
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
        "duration",
    )
)

# A field without a default differs from one whose default is null.
NO_DEFAULT: Any = object()


class AvroField:
    __slots__ = ("aliases", "default", "doc", "name", "order", "properties", "type")

    def __init__(self, name: str, field_type: "AvroType") -> None:
        self.name = name
        self.type = field_type
        self.doc: str | None = None
        self.default: Any = NO_DEFAULT
        self.order = "ascending"
        self.aliases: list[str] = []
        self.properties: dict[str, Any] = {}


class AvroType:
    """One type. `kind` is a primitive's name, or record, enum, fixed, array, map, union."""

    __slots__ = (
        "aliases",
        "branches",
        "doc",
        "enum_default",
        "fields",
        "is_error",
        "item",
        "kind",
        "name",
        "namespace",
        "properties",
        "size",
        "symbols",
    )

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = kind
        self.namespace: str | None = None
        self.doc: str | None = None
        # Full names.
        self.aliases: list[str] = []
        self.properties: dict[str, Any] = {}
        self.fields: list[AvroField] = []
        self.is_error = False
        self.symbols: list[str] = []
        self.enum_default: str | None = None
        self.size = 0
        self.item: AvroType | None = None
        self.branches: list[AvroType] = []

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


class AvroSchema:
    schema_type = AVRO

    def __init__(self, root: AvroType, reference_names: frozenset[str]) -> None:
        self.root = root
        self._reference_names = reference_names
        self.canonical = _text(root, reference_names)

    def normalized(self) -> str:
        return _text(self.root, self._reference_names, is_normalized=True)

    def formatted(self, name: str) -> str:
        return self.resolved_text() if name == "resolved" else self.canonical

    def resolved_text(self) -> str:
        return _text(self.root, frozenset())


def parse(text: str, resolved: Resolved, *, is_new: bool) -> AvroSchema:
    """`is_new` schemas have to have valid names and defaults; what was registered once stays readable."""
    reader = _Reader(is_new)
    reference_names = set()
    try:
        for referenced in resolved.values():
            reference_names.add(reader.read(json_text.read(referenced), None).full_name)
        root = reader.read(json_text.read(text), None)
    except json_text.InvalidJson as problem:
        raise InvalidSchema(str(problem)) from None
    return AvroSchema(root, frozenset(reference_names))


class _Reader:
    def __init__(self, is_new: bool) -> None:
        self._is_new = is_new
        self._names: dict[str, AvroType] = {}
        # Records around what is being read.
        self._unfinished: list[AvroType] = []

    def read(self, value: Any, namespace: str | None) -> AvroType:
        if isinstance(value, str):
            return self._by_name(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace)
        if not isinstance(value, dict):
            raise InvalidSchema(f"{json_text.write(value)} is not a type")
        kind = value.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema(f"no type: {json_text.write(value)[:200]}")
        if kind in PRIMITIVES:
            primitive = AvroType(kind)
            primitive.properties = _properties(value, _TYPE_KEYS)
            return primitive
        if kind in ("array", "map"):
            return self._collection(kind, value, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(kind, value, namespace)
        if "name" not in value and len(value) == 1:
            return self._by_name(kind, namespace)
        raise InvalidSchema(f"'{kind}' is not a kind of type")

    def _by_name(self, name: str, namespace: str | None) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full_name)
        # Avro allows a name without namespace inside a namespace if nothing there has it.
        if found is None:
            found = self._names.get(name)
        if found is None:
            raise InvalidSchema(f"the type '{full_name}' is not defined")
        return found

    def _union(self, value: list[Any], namespace: str | None) -> AvroType:
        union = AvroType("union")
        seen = set()
        for item in value:
            branch = self.read(item, namespace)
            if branch.kind == "union":
                raise InvalidSchema("a union holds another union")
            name = branch.full_name if branch.kind in NAMED else branch.kind
            if name in seen:
                raise InvalidSchema(f"a union holds '{name}' twice")
            seen.add(name)
            union.branches.append(branch)
        return union

    def _collection(self, kind: str, value: dict[str, Any], namespace: str | None) -> AvroType:
        key = "items" if kind == "array" else "values"
        if key not in value:
            raise InvalidSchema(f"an {kind} has no {key}" if kind == "array" else f"a {kind} has no {key}")
        collection = AvroType(kind)
        collection.item = self.read(value[key], namespace)
        collection.properties = _properties(value, _TYPE_KEYS)
        return collection

    def _named(self, kind: str, value: dict[str, Any], namespace: str | None) -> AvroType:
        named = AvroType("record" if kind == "error" else kind)
        named.is_error = kind == "error"
        named.name, named.namespace = self._name_of(value, namespace)
        doc = value.get("doc")
        named.doc = doc if isinstance(doc, str) else None
        if named.full_name in self._names:
            raise InvalidSchema(f"the type '{named.full_name}' is defined twice")
        if named.full_name in PRIMITIVES:
            raise InvalidSchema(f"'{named.full_name}' is the name of a primitive type")
        self._names[named.full_name] = named
        if kind == "enum":
            self._read_symbols(named, value)
        elif kind == "fixed":
            size = value.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise InvalidSchema(f"the fixed '{named.full_name}' has no valid size")
            named.size = size
        else:
            self._read_fields(named, value)
        named.properties = _properties(value, _ENUM_KEYS if kind == "enum" else _TYPE_KEYS)
        space = f"{named.namespace}." if named.namespace else ""
        named.aliases = list(dict.fromkeys(alias if "." in alias else space + alias for alias in _aliases(value)))
        return named

    def _name_of(self, value: dict[str, Any], namespace: str | None) -> tuple[str, str | None]:
        name = value.get("name")
        if not isinstance(name, str):
            raise InvalidSchema(f"a {value['type']} has no name")
        if "." in name:
            namespace, _, name = name.rpartition(".")
        elif isinstance(value.get("namespace"), str):
            namespace = value["namespace"]
        self._check_name(name)
        return name, namespace or None

    def _check_name(self, name: Any) -> None:
        if self._is_new and not (isinstance(name, str) and _NAME.match(name)):
            raise InvalidSchema(f"'{name}' is not a valid name: letters, digits and _, no digit first")

    def _read_symbols(self, named: AvroType, value: dict[str, Any]) -> None:
        symbols = value.get("symbols")
        if not isinstance(symbols, list):
            raise InvalidSchema(f"the enum '{named.full_name}' has no symbols")
        for symbol in symbols:
            self._check_name(symbol)
            if symbol in named.symbols:
                raise InvalidSchema(f"the enum '{named.full_name}' has the symbol '{symbol}' twice")
            named.symbols.append(str(symbol))
        default = value.get("default")
        if default is not None:
            if default not in named.symbols:
                raise InvalidSchema(f"the default of the enum '{named.full_name}' is not one of its symbols")
            named.enum_default = default

    def _read_fields(self, named: AvroType, value: dict[str, Any]) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"the record '{named.full_name}' has no fields")
        seen = set()
        self._unfinished.append(named)
        for item in fields:
            field = self._field(item, named)
            if field.name in seen:
                raise InvalidSchema(f"the record '{named.full_name}' has the field '{field.name}' twice")
            seen.add(field.name)
            named.fields.append(field)
        self._unfinished.pop()

    def _field(self, value: Any, record: AvroType) -> AvroField:
        where = f"of the record '{record.full_name}'"
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise InvalidSchema(f"a field {where} has no name")
        self._check_name(value["name"])
        if "type" not in value:
            raise InvalidSchema(f"the field '{value['name']}' {where} has no type")
        field = AvroField(value["name"], self.read(value["type"], record.namespace))
        doc = value.get("doc")
        field.doc = doc if isinstance(doc, str) else None
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in ("ascending", "descending", "ignore"):
            raise InvalidSchema(f"the order of the field '{field.name}' {where} is not valid")
        field.order = order.lower()
        if "default" in value:
            field.default = value["default"]
            if field.type.kind in ("float", "double") and isinstance(field.default, str):
                field.default = _decimal(field.default)
            if self._is_new and not _is_valid_default(field.type, field.default, self._unfinished):
                raise InvalidSchema(
                    f"the default {json_text.write(field.default)[:100]} of the field '{field.name}' {where} "
                    "is not a value of its type"
                )
        field.aliases = _aliases(value)
        field.properties = _properties(value, _FIELD_KEYS)
        return field


def _decimal(text: str) -> json_text.Decimal:
    try:
        return json_text.Decimal(text)
    except ValueError:
        raise InvalidSchema(f"the default '{text}' is not a number") from None


def _aliases(value: dict[str, Any]) -> list[str]:
    aliases = value.get("aliases")
    if aliases is None:
        return []
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise InvalidSchema("aliases are not a list of names")
    return list(dict.fromkeys(aliases))


def _properties(value: dict[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in reserved}


def _is_valid_default(avro_type: AvroType, value: Any, unfinished: list[AvroType]) -> bool:
    """A union's default may be of any branch. No default may need a record that is still being read."""
    kind = avro_type.kind
    if kind in ("string", "bytes", "enum", "fixed"):
        return isinstance(value, str)
    if kind in ("int", "long"):
        limit = 1 << (31 if kind == "int" else 63)
        return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if kind == "union":
        return any(_is_valid_default(branch, value, unfinished) for branch in avro_type.branches)
    if kind == "record":
        if not isinstance(value, dict) or any(avro_type is record for record in unfinished):
            return False
        return all(
            _is_valid_default(field.type, value.get(field.name, field.default), unfinished)
            for field in avro_type.fields
        )
    assert avro_type.item is not None
    items = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else None
    if items is None or isinstance(value, list) != (kind == "array"):
        return False
    return all(_is_valid_default(avro_type.item, item, unfinished) for item in items)


def _text(root: AvroType, known_names: frozenset[str], *, is_normalized: bool = False) -> str:
    return json_text.write(_Writer(set(known_names), is_normalized).value_of(root, None))


class _Writer:
    def __init__(self, known_names: set[str], is_normalized: bool) -> None:
        self._known_names = known_names
        self._is_normalized = is_normalized

    def value_of(self, avro_type: AvroType, namespace: str | None) -> Any:
        kind = avro_type.kind
        if kind == "union":
            return [self.value_of(branch, namespace) for branch in avro_type.branches]
        if kind in NAMED:
            return self._named(avro_type, namespace)
        properties = self._ordered(avro_type.properties)
        if kind in PRIMITIVES:
            return {"type": kind, **properties} if properties else kind
        assert avro_type.item is not None
        item = self.value_of(avro_type.item, namespace)
        return {"type": kind, "items" if kind == "array" else "values": item, **properties}

    def _named(self, named: AvroType, namespace: str | None) -> Any:
        if named.full_name in self._known_names:
            return _short(named.full_name, namespace) if named.namespace else named.name
        self._known_names.add(named.full_name)
        value: dict[str, Any] = {"type": "error" if named.is_error else named.kind, "name": named.name}
        if named.namespace != namespace:
            value["namespace"] = named.namespace or ""
        if named.doc is not None and not (self._is_normalized and not named.doc):
            value["doc"] = named.doc
        if named.kind == "record":
            value["fields"] = [self._field(field, named.namespace) for field in named.fields]
        elif named.kind == "enum":
            value["symbols"] = named.symbols
            if named.enum_default is not None:
                value["default"] = named.enum_default
        else:
            value["size"] = named.size
        value.update(self._ordered(named.properties))
        if named.aliases:
            aliases = sorted(named.aliases) if self._is_normalized else named.aliases
            value["aliases"] = [_short(alias, named.namespace) for alias in aliases]
        return value

    def _field(self, field: AvroField, namespace: str | None) -> dict[str, Any]:
        value: dict[str, Any] = {"name": field.name, "type": self.value_of(field.type, namespace)}
        if field.doc is not None:
            value["doc"] = field.doc
        if field.default is not NO_DEFAULT:
            value["default"] = _sorted(field.default) if self._is_normalized else field.default
        if field.order != "ascending":
            value["order"] = field.order
        if field.aliases:
            value["aliases"] = sorted(field.aliases) if self._is_normalized else field.aliases
        value.update(self._ordered(field.properties))
        return value

    def _ordered(self, properties: dict[str, Any]) -> dict[str, Any]:
        if not self._is_normalized:
            return properties
        ordered: dict[str, Any] = {}
        if properties.get("logicalType") in _LOGICAL_TYPES:
            ordered["logicalType"] = properties["logicalType"]
            if ordered["logicalType"] == "decimal":
                ordered |= {key: properties[key] for key in ("precision", "scale") if properties.get(key)}
        return ordered | {key: _sorted(properties[key]) for key in sorted(properties)}


def _short(full_name: str, namespace: str | None) -> str:
    space, _, name = full_name.rpartition(".")
    # The name of a primitive type alone would mean that type.
    return name if (space or None) == namespace and name not in PRIMITIVES else full_name


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
