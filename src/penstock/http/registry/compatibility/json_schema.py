"""Whether everything that is valid under one JSON Schema is valid under its update, by Confluent's rules.

The two are compared place by place; each difference has a kind, and the kind says whether old data stays valid. The
policy LENIENT also lets pass what only matters for properties that nobody named.
Recursive schemas are compared optimistically, and again with what was found, until nothing changes.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from penstock.http.registry.compatibility.json_kinds import COMPATIBLE_LENIENT, COMPATIBLE_STRICT, described
from penstock.http.registry.compatibility.json_matching import is_pattern_of, matching
from penstock.http.registry.formats.json_model import JsonType
from penstock.http.registry.formats.schema import Difference

Path = tuple[str, ...]
Pair = tuple[int, int]

_UPPER_LIMITS = {
    "string": (("maxLength", "MAX_LENGTH"),),
    "number": (("maximum", "MAXIMUM"), ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM")),
    "array": (("maxItems", "MAX_ITEMS"), ("maxContains", "MAX_CONTAINS")),
    "object": (("maxProperties", "MAX_PROPERTIES"),),
}
_LOWER_LIMITS = {
    "string": (("minLength", "MIN_LENGTH"),),
    "number": (("minimum", "MINIMUM"), ("exclusiveMinimum", "EXCLUSIVE_MINIMUM")),
    "array": (("minItems", "MIN_ITEMS"), ("minContains", "MIN_CONTAINS")),
    "object": (("minProperties", "MIN_PROPERTIES"),),
}


class Change(NamedTuple):
    kind: str
    path: Path = ()


def differences(original: JsonType, update: JsonType, *, is_lenient: bool = False) -> list[Difference]:
    """Why what was valid may be no more; nothing if all stays valid. Texts have %s for the new and the old schema."""
    compatible = COMPATIBLE_LENIENT if is_lenient else COMPATIBLE_STRICT
    return [
        Difference(change.kind, _location(change.path), described(change.kind, _location(change.path)))
        for change in changes(original, update, compatible)
        if change.kind not in compatible
    ]


def changes(original: JsonType, update: JsonType, compatible: frozenset[str] = COMPATIBLE_STRICT) -> list[Change]:
    known: dict[Pair, list[Change]] = {}
    while True:
        comparison = _Comparison(compatible, known)
        found = comparison.compare(original, update)
        incompatible = comparison.incompatible_pairs()
        if not comparison.was_optimistic or incompatible.keys() == known.keys():
            return found
        known = incompatible


def _location(path: Path) -> str:
    return "#/" + "/".join(path)


class _Comparison:
    def __init__(self, compatible: frozenset[str], known: dict[Pair, list[Change]]) -> None:
        self._compatible = compatible
        self._known = known
        self._found: dict[Pair, list[Change]] = {}
        self._in_progress: set[Pair] = set()
        self.was_optimistic = False

    def incompatible_pairs(self) -> dict[Pair, list[Change]]:
        return {pair: found for pair, found in self._found.items() if not self._is_compatible(found)}

    def _is_compatible(self, found: Iterable[Change]) -> bool:
        return all(change.kind in self._compatible for change in found)

    def compare(self, original: JsonType | None, update: JsonType | None, path: Path = ()) -> list[Change]:
        if original is None or update is None:
            if original is update:
                return []
            return [Change("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED", path)]
        original, update = original.followed(), update.followed()
        pair = (id(original), id(update))
        found = self._found.get(pair)
        if found is None:
            if pair in self._in_progress:
                if pair not in self._known:
                    self.was_optimistic = True
                found = self._known.get(pair, [])
            else:
                self._in_progress.add(pair)
                found = self._found[pair] = self._compare(original, update)
                self._in_progress.discard(pair)
        return [Change(change.kind, path + change.path) for change in found]

    def _compare(self, original: JsonType, update: JsonType) -> list[Change]:
        widened = self._into_or_out_of_combined(original, update)
        if widened is not None:
            return widened
        if original.kind != update.kind:
            if original.kind == "false" or update.is_empty:
                return []
            if original.connect_type == update.connect_type == "bytes":
                # What Kafka Connect calls bytes is the same, however it is written.
                return []
            return [Change("TYPE_CHANGED")]
        found = [
            Change(kind)
            for kind, name in (
                ("ID_CHANGED", "id"),
                ("TITLE_CHANGED", "title"),
                ("DESCRIPTION_CHANGED", "description"),
                ("DEFAULT_CHANGED", "default"),
            )
            if getattr(original, name) != getattr(update, name)
        ]
        return found + self._compare_kind(original, update)

    def _into_or_out_of_combined(self, original: JsonType, update: JsonType) -> list[Change] | None:
        """One type against several: None if that alone does not decide it."""
        if original.kind != "combined" and update.kind == "combined":
            is_choice = update.criterion in ("anyOf", "oneOf")
            pairs = [(original, part) for part in update.parts]
            extra = "SUM_TYPE_EXTENDED"
        elif original.kind == "combined" and update.kind != "combined":
            is_choice = original.criterion == "allOf"
            pairs = [(part, update) for part in original.parts]
            extra = "PRODUCT_TYPE_NARROWED"
        else:
            return None
        if len(pairs) != 1 and not is_choice:
            return None
        for one, other in pairs:
            found = self.compare(one, other)
            if self._is_compatible(found):
                return found if len(pairs) == 1 else [*found, Change(extra)]
        return None

    def _compare_kind(self, original: JsonType, update: JsonType) -> list[Change]:
        kind = original.kind
        if kind == "const":
            return [Change("ENUM_ARRAY_CHANGED", ("const",))] if original.const != update.const else []
        if kind == "enum":
            return [Change("ENUM_ARRAY_" + how, ("enum",)) for how in _of_sets(original.enum, update.enum)]
        if kind == "combined":
            return self._combined(original, update)
        if kind == "not":
            # The other way round: what is excluded may only become less.
            inner = self.compare(update.parts[0], original.parts[0])
            return [Change("NOT_TYPE_NARROWED" if self._is_compatible(inner) else "NOT_TYPE_EXTENDED", ("not",))]
        if kind == "object":
            return self._object(original, update)
        if kind == "array":
            return self._array(original, update)
        if kind == "string":
            return _limits(original, update) + _pattern(original, update)
        return _limits(original, update) + _number(original, update) if kind == "number" else []

    def _combined(self, original: JsonType, update: JsonType) -> list[Change]:
        found = []
        if original.criterion != update.criterion:
            is_one, becomes_one = len(original.parts) == 1, len(update.parts) == 1
            is_wider = (
                update.criterion == "anyOf"
                or (is_one and becomes_one)
                or (is_one and update.criterion == "oneOf")
                or (becomes_one and original.criterion == "allOf")
            )
            if not is_wider:
                return [Change("COMBINED_TYPE_CHANGED")]
            found.append(Change("COMBINED_TYPE_EXTENDED"))
        before = list({part.key: part for part in original.parts}.values())
        after = list({part.key: part for part in update.parts}.values())
        if len(before) < len(after):
            found.append(Change("PRODUCT_TYPE_EXTENDED" if update.criterion == "allOf" else "SUM_TYPE_EXTENDED"))
        elif len(before) > len(after):
            found.append(Change("PRODUCT_TYPE_NARROWED" if original.criterion == "allOf" else "SUM_TYPE_NARROWED"))
        edges: dict[int, dict[int, list[Change]]] = {}
        for row, one in enumerate(before):
            for column, other in enumerate(after):
                inner = self.compare(one, other, (original.criterion, str(row)))
                if self._is_compatible(inner):
                    edges.setdefault(row, {})[column] = inner
        matched = matching(edges)
        for row, column in matched.items():
            found += edges[row][column]
        if len(matched) < min(len(before), len(after)):
            found.append(Change("COMBINED_TYPE_SUBSCHEMAS_CHANGED"))
        return found

    def _object(self, original: JsonType, update: JsonType) -> list[Change]:
        found = []
        for name in original.properties.keys() & update.properties.keys():
            if name in original.required and name not in update.required:
                found.append(Change("REQUIRED_ATTRIBUTE_REMOVED", ("required", name)))
            elif name in update.required and name not in original.required:
                has_default = _has_default(update.properties[name])
                kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if has_default else "REQUIRED_ATTRIBUTE_ADDED"
                found.append(Change(kind, ("required", name)))
        for name in sorted(original.properties.keys() | update.properties.keys()):
            found += self._property(name, original, update)
        found += self._dependencies(original, update)
        found += self._additional(original, update, "PROPERTIES", "additionalProperties")
        found += self._unevaluated(original, update, "PROPERTIES", "unevaluatedProperties")
        return found + _limits(original, update)

    def _property(self, name: str, original: JsonType, update: JsonType) -> list[Change]:
        path = ("properties", name)
        before, after = original.properties.get(name), update.properties.get(name)
        if before is not None and after is not None:
            return self.compare(before, after, path)
        if after is None:
            assert before is not None
            return self._removed(before, update, _partial(update, name), path, "PROPERTY")
        has_default = _has_default(after)
        is_required = name in update.required
        if original.is_open:
            if after.is_empty:
                return [Change("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", path)]
            return [Change(_required_kind(is_required, has_default) + "_ADDED_TO_OPEN_CONTENT_MODEL", path)]
        found = []
        partial = _partial(original, name)
        if partial is not None:
            found = self.compare(partial, after, path)
            covered = "IS" if self._is_compatible(found) else "NOT"
            found.append(Change(f"PROPERTY_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path))
        found.append(Change(_required_kind(is_required, has_default) + "_ADDED_TO_UNOPEN_CONTENT_MODEL", path))
        return found

    def _removed(
        self, before: JsonType, update: JsonType, partial: JsonType | None, path: Path, what: str
    ) -> list[Change]:
        """A property or item that the update no longer names: what the update says of unnamed ones decides."""
        if update.is_open:
            return [Change(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL", path)]
        if partial is not None:
            found = self.compare(before, partial, path)
            covered = "IS" if self._is_compatible(found) else "NOT"
            return [*found, Change(f"{what}_REMOVED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]
        with_false = "WITH_FALSE_" if before.kind == "false" else ""
        return [Change(f"{what}_{with_false}REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]

    def _dependencies(self, original: JsonType, update: JsonType) -> list[Change]:
        found = []
        for name in sorted(original.property_dependencies.keys() | update.property_dependencies.keys()):
            path = ("dependencies", name)
            before, after = original.property_dependencies.get(name), update.property_dependencies.get(name)
            if before is None or after is None:
                found.append(Change("DEPENDENCY_ARRAY_" + ("ADDED" if before is None else "REMOVED"), path))
            else:
                found += [Change("DEPENDENCY_ARRAY_" + how, path) for how in _of_sets(before, after)]
        for name in sorted(original.type_dependencies.keys() | update.type_dependencies.keys()):
            path = ("dependencies", name)
            one, other = original.type_dependencies.get(name), update.type_dependencies.get(name)
            if one is None or other is None:
                found.append(Change("DEPENDENCY_SCHEMA_" + ("ADDED" if one is None else "REMOVED"), path))
            else:
                found += self.compare(one, other, path)
        return found

    def _additional(self, original: JsonType, update: JsonType, what: str, key: str) -> list[Change]:
        prefix = f"ADDITIONAL_{what}_"
        if original.additional != update.additional:
            return [Change(prefix + ("ADDED" if update.additional else "REMOVED"), (key,))]
        if original.additional_type is None and update.additional_type is not None:
            return [Change(prefix + "NARROWED", (key,))]
        if update.additional_type is None and original.additional_type is not None:
            return [Change(prefix + "EXTENDED", (key,))]
        return self.compare(original.additional_type, update.additional_type, (key,))

    def _unevaluated(self, original: JsonType, update: JsonType, what: str, key: str) -> list[Change]:
        before, after = original.unevaluated, update.unevaluated
        if before is None and after is None:
            return []
        prefix = f"UNEVALUATED_{what}_"
        was_closed = before is not None and before.kind == "false"
        is_closed = after is not None and after.kind == "false"
        if was_closed != is_closed:
            return [Change(prefix + ("ADDED" if was_closed else "REMOVED"), (key,))]
        if after is None or (before is not None and after.is_empty and not before.is_empty):
            return [Change(prefix + "EXTENDED", (key,))]
        if before is None or (before.is_empty and not after.is_empty):
            return [Change(prefix + "NARROWED", (key,))]
        return self.compare(before, after, (key,))

    def _array(self, original: JsonType, update: JsonType) -> list[Change]:
        found = self.compare(original.item, update.item, ("items",))
        for position in range(max(len(original.items), len(update.items))):
            found += self._item(position, original, update)
        found += self._additional(original, update, "ITEMS", "additionalItems")
        found += self._unevaluated(original, update, "ITEMS", "unevaluatedItems")
        if original.is_unique != update.is_unique:
            found.append(Change("UNIQUE_ITEMS_" + ("REMOVED" if original.is_unique else "ADDED"), ("uniqueItems",)))
        return found + _limits(original, update)

    def _item(self, position: int, original: JsonType, update: JsonType) -> list[Change]:
        path = ("items", str(position))
        if position >= len(update.items):
            return self._removed(original.items[position], update, _partial(update, None), path, "ITEM")
        after = update.items[position]
        if position < len(original.items):
            return self.compare(original.items[position], after, path)
        if original.is_open:
            with_empty = "WITH_EMPTY_SCHEMA_" if after.is_empty else ""
            return [Change(f"ITEM_{with_empty}ADDED_TO_OPEN_CONTENT_MODEL", path)]
        partial = _partial(original, None)
        if partial is None:
            return [Change("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", path)]
        found = self.compare(partial, after, path)
        covered = "IS" if self._is_compatible(found) else "NOT"
        return [*found, Change(f"ITEM_ADDED_{covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]


def _partial(container: JsonType, name: str | None) -> JsonType | None:
    """The type that a property or item has to have that the container does not name."""
    for pattern, partial in container.pattern_properties.items():
        if name is not None and is_pattern_of(pattern, name):
            return partial
    if container.additional_type is not None or not container.additional:
        return container.additional_type
    unevaluated = container.unevaluated
    if unevaluated is None or unevaluated.is_empty or unevaluated.kind == "false":
        return None
    return unevaluated


def _has_default(json_type: JsonType) -> bool:
    return isinstance(json_type.default, str)


def _required_kind(is_required: bool, has_default: bool) -> str:
    if not is_required:
        return "OPTIONAL_PROPERTY"
    return "REQUIRED_PROPERTY_WITH_DEFAULT" if has_default else "REQUIRED_PROPERTY"


def _of_sets(before: frozenset[str], after: frozenset[str]) -> list[str]:
    if before == after:
        return []
    return ["EXTENDED" if before <= after else "NARROWED" if after <= before else "CHANGED"]


def _limits(original: JsonType, update: JsonType) -> list[Change]:
    found = []
    for key, name in _UPPER_LIMITS[original.kind] + _LOWER_LIMITS[original.kind]:
        before, after = original.limits.get(key), update.limits.get(key)
        if before == after:
            continue
        if before is None or after is None:
            how = "ADDED" if before is None else "REMOVED"
        else:
            how = "INCREASED" if before < after else "DECREASED"
        found.append(Change(f"{name}_{how}", (key,)))
    return found


def _pattern(original: JsonType, update: JsonType) -> list[Change]:
    if original.pattern == update.pattern:
        return []
    how = "ADDED" if original.pattern is None else "REMOVED" if update.pattern is None else "CHANGED"
    return [Change("PATTERN_" + how, ("pattern",))]


def _number(original: JsonType, update: JsonType) -> list[Change]:
    found = []
    before, after = original.limits.get("multipleOf"), update.limits.get("multipleOf")
    if before != after:
        if before is None or after is None:
            how = "ADDED" if before is None else "REMOVED"
        elif _is_multiple(after, before):
            how = "EXPANDED"
        else:
            how = "REDUCED" if _is_multiple(before, after) else "CHANGED"
        found.append(Change("MULTIPLE_OF_" + how, ("multipleOf",)))
    if original.requires_integer != update.requires_integer:
        found.append(Change("TYPE_EXTENDED" if original.requires_integer else "TYPE_NARROWED"))
    return found


def _is_multiple(number: float, divisor: float) -> bool:
    return Decimal(repr(float(number))) % Decimal(repr(float(divisor))) == 0
