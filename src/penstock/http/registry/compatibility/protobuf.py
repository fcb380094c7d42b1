"""Whether programs compiled from one .proto file read what programs compiled from another one wrote.

Fields are compared by their numbers, whatever they are called and whichever oneof holds them. Confluent's rules:
numbers of one wire type read each other, removing a field is fine unless a oneof loses a choice, fields that could be
set together must not exclude each other, messages and the package keep their names.
"""

from penstock.http.registry.formats.protobuf import ProtobufSchema
from penstock.http.registry.formats.protobuf_model import Enum, Field, Message, map_types
from penstock.http.registry.formats.protobuf_types import SCALARS, TypeInfo, Types
from penstock.http.registry.formats.schema import Difference

Path = tuple[str, ...]

COMPATIBLE = frozenset(
    (
        "MESSAGE_ADDED",
        "MESSAGE_MOVED",
        "ENUM_ADDED",
        "ENUM_REMOVED",
        "ENUM_CONST_ADDED",
        "ENUM_CONST_CHANGED",
        "ENUM_CONST_REMOVED",
        "FIELD_ADDED",
        "FIELD_REMOVED",
        "FIELD_NAME_CHANGED",
        "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
        "ONEOF_ADDED",
        "ONEOF_REMOVED",
        "ONEOF_FIELD_ADDED",
        "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
    )
)

_TEXTS = {
    "PACKAGE_CHANGED": "the package of the %s schema is not that of the %s schema",
    "MESSAGE_REMOVED": "the message {} is missing in the %s schema, but is in the %s schema",
    "FIELD_KIND_CHANGED": "the field {} is of another kind (scalar, message, map) in the %s schema than in the %s",
    "FIELD_SCALAR_KIND_CHANGED": "the type of the field {} in the %s schema has another encoding than in the %s schema",
    "FIELD_NAMED_TYPE_CHANGED": "the message type of the field {} in the %s schema is not that of the %s schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "the number {} has another label in the %s schema than in the %s schema",
    "REQUIRED_FIELD_ADDED": "the field {} is required by the %s schema and is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": "the field {} is missing in the %s schema and is required by the %s schema",
    "ONEOF_FIELD_REMOVED": "the choice {} of a oneof is missing in the %s schema, but is in the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "fields of the oneof {} of the %s schema can be set together in the %s schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "a field of the oneof {} of the %s schema is outside of it in the %s schema",
}

# Which types read each other: those with the same encoding and meaning on the wire.
_SCALAR_KINDS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "text"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}


def differences(original: ProtobufSchema, update: ProtobufSchema) -> list[Difference]:
    """Why the update does not read what was written; nothing if it does. Texts have %s for new and old."""
    found = []
    for kind, path in changes(original, update):
        if kind not in COMPATIBLE:
            location = "#/" + "/".join(path)
            found.append(Difference(kind, location, _TEXTS[kind].format(f"at '{location}'")))
    return found


def changes(original: ProtobufSchema, update: ProtobufSchema) -> list[tuple[str, Path]]:
    comparison = _Comparison(original.types, update.types)
    found: list[tuple[str, Path]] = []
    if original.file.package != update.file.package:
        found.append(("PACKAGE_CHANGED", ()))
    return found + comparison.types(original.file.types, update.file.types, ())


class _Comparison:
    def __init__(self, before: Types, after: Types, packages: tuple[str, str] | None = None) -> None:
        self._before = before
        self._after = after
        # What names are relative to: the package of the message that is being compared.
        self._packages = packages or (before.package, after.package)
        self._in_progress: set[int] = set()

    def types(self, before: list[Message | Enum], after: list[Message | Enum], scope: Path) -> list[tuple[str, Path]]:
        found: list[tuple[str, Path]] = []
        old = [element for element in before if isinstance(element, Message)]
        new = [element for element in after if isinstance(element, Message)]
        old_by_name = {element.name: (position, element) for position, element in enumerate(old)}
        new_by_name = {element.name: (position, element) for position, element in enumerate(new)}
        for name in old_by_name.keys() | new_by_name.keys():
            path = (*scope, name)
            if name not in new_by_name:
                found.append(("MESSAGE_REMOVED", path))
            elif name not in old_by_name:
                found.append(("MESSAGE_ADDED", path))
            else:
                found += self.message(old_by_name[name][1], new_by_name[name][1], path)
                if old_by_name[name][0] != new_by_name[name][0]:
                    found.append(("MESSAGE_MOVED", path))
        old_enums = {element.name: element for element in before if isinstance(element, Enum)}
        new_enums = {element.name: element for element in after if isinstance(element, Enum)}
        for name in old_enums.keys() | new_enums.keys():
            if name not in new_enums or name not in old_enums:
                found.append(("ENUM_ADDED" if name in new_enums else "ENUM_REMOVED", (*scope, name)))
            else:
                found += _enum(old_enums[name], new_enums[name], (*scope, name))
        return found

    def message(self, before: Message, after: Message, path: Path) -> list[tuple[str, Path]]:
        found: list[tuple[str, Path]] = []
        if id(before) not in self._in_progress:
            self._in_progress.add(id(before))
            found += _exclusions(before, after, path)
            found += self._fields(before, after, path)
            self._in_progress.discard(id(before))
        return found + self.types(before.types, after.types, path)

    def _fields(self, before: Message, after: Message, path: Path) -> list[tuple[str, Path]]:
        found: list[tuple[str, Path]] = []
        old = {field.number: field for field in before.all_fields()}
        new = {field.number: field for field in after.all_fields()}
        old_oneofs, new_oneofs = _oneof_by_number(before), _oneof_by_number(after)
        # A oneof that is gone with all its choices took nothing away from who reads.
        gone = {
            oneof.name
            for oneof in before.oneofs
            if oneof.name not in {other.name for other in after.oneofs}
            and not any(field.number in new for field in oneof.fields)
        }
        for number in sorted(old.keys() | new.keys()):
            old_oneof, new_oneof = old_oneofs.get(number), new_oneofs.get(number)
            at = (*path, str(number))
            if number not in new:
                if old_oneof is None:
                    is_required = old[number].label == "required"
                    found.append(("REQUIRED_FIELD_REMOVED" if is_required else "FIELD_REMOVED", at))
                elif old_oneof not in gone:
                    found.append(("ONEOF_FIELD_REMOVED", (*path, old_oneof, str(number))))
            elif number not in old:
                if new_oneof is None:
                    is_required = new[number].label == "required"
                    found.append(("REQUIRED_FIELD_ADDED" if is_required else "FIELD_ADDED", at))
                else:
                    found.append(("ONEOF_FIELD_ADDED", (*path, new_oneof, str(number))))
            else:
                if old_oneof is not None and new_oneof is None:
                    found.append(("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", at))
                if new_oneof is not None:
                    at = (*path, new_oneof, str(number))
                found += self._field(old[number], new[number], path, at)
        return found

    def _field(self, before: Field, after: Field, scope: Path, path: Path) -> list[tuple[str, Path]]:
        renamed = [("FIELD_NAME_CHANGED", path)] if before.name != after.name else []
        return renamed + self._types_of_field((before.type, before.label), (after.type, after.label), scope, path)

    def _types_of_field(
        self, before: tuple[str, str | None], after: tuple[str, str | None], scope: Path, path: Path
    ) -> list[tuple[str, Path]]:
        (old, old_label), (new, new_label) = before, after
        old_type = self._before.find(old, scope, self._packages[0])
        new_type = self._after.find(new, scope, self._packages[1])
        old_kind, new_kind = _kind(old, old_type), _kind(new, new_type)
        if old_kind != new_kind:
            return [("FIELD_KIND_CHANGED", path)]
        if old_kind == "map":
            old_pair, new_pair = map_types(old), map_types(new)
            assert old_pair is not None
            assert new_pair is not None
            found = []
            for one, other in zip(old_pair, new_pair, strict=True):
                found += self._types_of_field((one, None), (other, None), scope, path)
            return found
        if old_kind == "message":
            return self._messages_of_field(old, old_type, new, new_type, path)
        scalar = "number" if old_type is not None else _SCALAR_KINDS[old]
        if scalar != ("number" if new_type is not None else _SCALAR_KINDS[new]):
            return [("FIELD_SCALAR_KIND_CHANGED", path)]
        if old_label is None or new_label is None or old_label == new_label:
            return []
        return [("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if scalar == "text" else "FIELD_NUMERIC_LABEL_CHANGED", path)]

    def _messages_of_field(
        self, old: str, old_type: TypeInfo | None, new: str, new_type: TypeInfo | None, path: Path
    ) -> list[tuple[str, Path]]:
        if old_type is None or new_type is None:
            return [("FIELD_NAMED_TYPE_CHANGED", path)] if old != new else []
        if old_type.local_name != new_type.local_name:
            return [("FIELD_NAMED_TYPE_CHANGED", path)]
        origins = (old_type.origin, new_type.origin)
        if None not in origins and _source(old_type) == _source(new_type):
            # Of this very file, which is compared anyway, or of the same registered version.
            return []
        if not isinstance(old_type.element, Message) or not isinstance(new_type.element, Message):
            return []
        inner = _Comparison(self._before, self._after, (old_type.package, new_type.package))
        inner._in_progress |= self._in_progress
        found = inner.message(old_type.element, new_type.element, tuple(old_type.local_name.split(".")))
        if any(kind not in COMPATIBLE for kind, _ in found):
            found.append(("FIELD_NAMED_TYPE_CHANGED", path))
        return found


def _source(found: TypeInfo) -> tuple[str, int]:
    assert found.origin is not None
    return found.origin.subject, found.origin.version


def _kind(name: str, found: TypeInfo | None) -> str:
    if name in SCALARS or (found is not None and isinstance(found.element, Enum)):
        return "scalar"
    return "map" if name.startswith("map<") else "message"


def _oneof_by_number(message: Message) -> dict[int, str]:
    return {field.number: oneof.name for oneof in message.oneofs for field in oneof.fields}


def _exclusions(before: Message, after: Message, path: Path) -> list[tuple[str, Path]]:
    """Oneofs of the update that exclude what could be set together before; then oneofs that came or went."""
    found: list[tuple[str, Path]] = []
    old_oneofs = _oneof_by_number(before)
    old_numbers = {field.number for field in before.all_fields()}
    for oneof in after.oneofs:
        groups = set()
        moved_in = 0
        for field in oneof.fields:
            if field.number in old_oneofs:
                groups.add(old_oneofs[field.number])
            elif field.number in old_numbers:
                groups.add(str(field.number))
                moved_in += 1
        if len(groups) > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved_in > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            found.append((kind, (*path, oneof.name)))
    old_names, new_names = {oneof.name for oneof in before.oneofs}, {oneof.name for oneof in after.oneofs}
    for name in sorted(old_names ^ new_names):
        found.append(("ONEOF_ADDED" if name in new_names else "ONEOF_REMOVED", (*path, name)))
    return found


def _enum(before: Enum, after: Enum, path: Path) -> list[tuple[str, Path]]:
    old = {value.number: value.name for value in before.values}
    new = {value.number: value.name for value in after.values}
    found = []
    for number in sorted(old.keys() | new.keys()):
        if old.get(number) != new.get(number):
            how = "ADDED" if number not in old else "REMOVED" if number not in new else "CHANGED"
            found.append((f"ENUM_CONST_{how}", (*path, str(number))))
    return found
