"""Whether a reader with one Avro schema understands what a writer with another one wrote.

The rules are those of Avro's schema resolution as its Java library checks them, which Confluent's registry asks:
names compare without their namespace, aliases of the reader count, numbers widen, strings and bytes read each other,
and a schema that refers to itself is compatible unless something in it is not.
"""

from penstock.http.registry.formats.avro import NO_DEFAULT, AvroField, AvroType
from penstock.http.registry.formats.schema import Difference

# What a reader's primitive type reads apart from itself.
_READS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


def differences(reader: AvroType, writer: AvroType) -> list[Difference]:
    """Why the reader cannot read; nothing if it can. Texts have %s for the reader's and the writer's schema."""
    return _Check().compare(reader, writer, ())


class _Check:
    def __init__(self) -> None:
        # None while a pair is being compared: what it refers to may be the pair itself.
        self._found: dict[tuple[int, int], list[Difference] | None] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        pair = (id(reader), id(writer))
        if pair in self._found:
            return self._found[pair] or []
        self._found[pair] = None
        found = self._found[pair] = self._compare(reader, writer, path)
        return found

    def _compare(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        if reader.kind == writer.kind:
            return self._compare_same_kind(reader, writer, path)
        if writer.kind == "union":
            found = []
            for position, branch in enumerate(writer.branches):
                found += self.compare(reader, branch, (*path, str(position)))
            return found
        if reader.kind == "union":
            if any(not self.compare(branch, writer, ()) for branch in reader.branches):
                return []
            return [_missing_branch(writer, path)]
        if writer.kind in _READS.get(reader.kind, ()):
            return []
        return [
            Difference(
                "TYPE_MISMATCH",
                _location(path),
                f"at '{_location(path)}' the %s schema has the type {reader.kind}, which does not read the type "
                f"{writer.kind} of the %s schema",
            )
        ]

    def _compare_same_kind(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        kind = reader.kind
        if kind in ("array", "map"):
            assert reader.item is not None
            assert writer.item is not None
            return self.compare(reader.item, writer.item, (*path, "items" if kind == "array" else "values"))
        if kind == "union":
            return [
                _missing_branch(branch, (*path, str(position)))
                for position, branch in enumerate(writer.branches)
                if self.compare(reader, branch, ())
            ]
        if kind in ("record", "enum", "fixed"):
            return _compare_names(reader, writer, path) + self._compare_named(reader, writer, path)
        return []

    def _compare_named(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        if reader.kind == "fixed":
            if reader.size == writer.size:
                return []
            location = _location((*path, "size"))
            text = f"the fixed at '{location}' has {reader.size} bytes in the %s schema, {writer.size} in the %s schema"
            return [Difference("FIXED_SIZE_MISMATCH", location, text)]
        if reader.kind == "enum":
            missing = sorted(set(writer.symbols) - set(reader.symbols))
            if not missing or reader.enum_default in reader.symbols:
                return []
            location = _location((*path, "symbols"))
            text = f"the enum at '{location}' of the %s schema lacks the symbols {missing} of the %s schema".replace(
                "'", '"'
            )
            return [Difference("MISSING_ENUM_SYMBOLS", location, text)]
        found: list[Difference] = []
        for position, field in enumerate(reader.fields):
            found += self._compare_field(field, writer, (*path, "fields", str(position)))
        return found

    def _compare_field(self, field: AvroField, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
        # An alias that repeats the name counts as a second field that is meant, in Avro's Java library too.
        written = [
            candidate for name in (field.name, *field.aliases) for candidate in writer.fields if candidate.name == name
        ]
        if len(written) > 1:
            text = f"the field '{field.name}' of the %s schema stands for several fields of the %s schema"
            return [Difference("AMBIGUOUS_FIELD", _location(path), text)]
        if written:
            return self.compare(field.type, written[0].type, (*path, "type"))
        if field.default is not NO_DEFAULT:
            return []
        if field.type.kind == "enum" and field.type.enum_default is not None:
            # Avro's Java library compares the enum with the whole record here, and so refuses.
            return self.compare(field.type, writer, (*path, "type"))
        location = _location(path)
        text = f"the field '{field.name}' at '{location}' of the %s schema has no default and is not in the %s schema"
        return [Difference("READER_FIELD_MISSING_DEFAULT_VALUE", location, text)]


def _compare_names(reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Difference]:
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return []
    location = _location((*path, "name"))
    names = f"'{reader.full_name}' in the %s schema, '{writer.full_name}' in the %s schema"
    text = f"the {reader.kind} at '{location}' is named {names}"
    return [Difference("NAME_MISMATCH", location, text)]


def _missing_branch(branch: AvroType, path: tuple[str, ...]) -> Difference:
    location = _location(path)
    text = f"the union at '{location}' of the %s schema has nothing that reads the type {branch.kind} of the %s schema"
    return Difference("MISSING_UNION_BRANCH", location, text)


def _location(path: tuple[str, ...]) -> str:
    return "/" + "/".join(path)
