"""A JSON Schema as a tree of types, each of one kind: what Confluent's registry compares.

One JSON object becomes one type. If it says several things at once (an enum and a type, a type and a oneOf), it is the
`allOf` of one type for each of them; a list of types is the `anyOf` of them, each with the keywords that concern it.
"""

from typing import Any

# A default of null differs from none.
NO_VALUE: Any = object()


class JsonType:
    """`kind` is true, false, empty, ref, enum, const, not, conditional, combined, string, number, boolean, null, array
    or object. What a kind has no use for stays empty."""

    __slots__ = (
        "additional",
        "additional_type",
        "connect_type",
        "const",
        "criterion",
        "default",
        "description",
        "enum",
        "id",
        "is_unique",
        "item",
        "items",
        "key",
        "kind",
        "limits",
        "parts",
        "pattern",
        "pattern_properties",
        "properties",
        "property_dependencies",
        "required",
        "requires_integer",
        "target",
        "title",
        "type_dependencies",
        "unevaluated",
    )

    def __init__(self, kind: str, key: str = "") -> None:
        self.kind = kind
        # Two types with the same key say the same.
        self.key = key
        self.id: Any = None
        self.title: Any = None
        self.description: Any = None
        self.default: Any = NO_VALUE
        self.connect_type: Any = None
        # maxLength, minimum, maxItems and the like, by their names.
        self.limits: dict[str, Any] = {}
        self.pattern: str | None = None
        self.requires_integer = False
        self.enum: frozenset[str] = frozenset()
        self.const: str = ""
        # allOf, anyOf or oneOf of the parts; a `not` has one part.
        self.criterion = ""
        self.parts: list[JsonType] = []
        self.properties: dict[str, JsonType] = {}
        self.required: frozenset[str] = frozenset()
        self.pattern_properties: dict[str, JsonType] = {}
        self.property_dependencies: dict[str, frozenset[str]] = {}
        self.type_dependencies: dict[str, JsonType] = {}
        # Whether properties or items that are not listed are allowed, and of which type they have to be.
        self.additional = True
        self.additional_type: JsonType | None = None
        self.unevaluated: JsonType | None = None
        # The type of all items, or those of the first ones.
        self.item: JsonType | None = None
        self.items: list[JsonType] = []
        self.is_unique = False
        # What a ref leads to.
        self.target: JsonType | None = None

    @property
    def is_empty(self) -> bool:
        return self.kind in ("empty", "true")

    @property
    def is_open(self) -> bool:
        """Whether anything may be there that the type does not name."""
        if not self.additional or self.additional_type is not None or self.pattern_properties:
            return False
        return self.unevaluated is None or self.unevaluated.is_empty

    def followed(self) -> "JsonType":
        """Where refs lead to in the end."""
        found = self
        seen = set()
        while found.kind == "ref" and id(found) not in seen:
            seen.add(id(found))
            assert found.target is not None
            found = found.target
        return found
