"""The kinds of difference between two JSON Schemas, which of them leave old data valid, and what they say to people."""


def _kinds(names: str) -> frozenset[str]:
    return frozenset(names.split())


COMPATIBLE_STRICT = _kinds(
    """
    ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
    EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED
    MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED
    MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED
    UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED
    UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED
    COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
    """
)

COMPATIBLE_LENIENT = COMPATIBLE_STRICT | _kinds(
    """
    ADDITIONAL_PROPERTIES_NARROWED ADDITIONAL_PROPERTIES_REMOVED
    UNEVALUATED_PROPERTIES_NARROWED UNEVALUATED_PROPERTIES_REMOVED
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    """
)

_TYPES = _kinds(
    "TYPE_CHANGED TYPE_NARROWED COMBINED_TYPE_CHANGED COMBINED_TYPE_SUBSCHEMAS_CHANGED ENUM_ARRAY_CHANGED SCHEMA_ADDED"
)

# By the end of the kind's name, the first that fits.
_TEXTS = (
    (
        "ADDED_TO_OPEN_CONTENT_MODEL",
        "{} is new in the %s schema; under the %s schema, which is open, it may hold anything",
    ),
    ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", "{} is required by the %s schema and unknown to the %s schema"),
    (
        "REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "{} is not allowed by the %s schema, which is closed, but is in the %s schema",
    ),
    (
        "REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "{} is not named by the %s schema, and what that says of others does not cover what the %s schema has there",
    ),
    (
        "ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "{} is new in the %s schema and does not cover what the %s schema says of what it does not name",
    ),
    ("ADDITIONAL_PROPERTIES_REMOVED", "{} are no longer allowed by the %s schema, but by the %s schema"),
    ("ADDITIONAL_ITEMS_REMOVED", "{} are no longer allowed by the %s schema, but by the %s schema"),
    ("UNEVALUATED_PROPERTIES_REMOVED", "{} are no longer allowed by the %s schema, but by the %s schema"),
    ("UNEVALUATED_ITEMS_REMOVED", "{} are no longer allowed by the %s schema, but by the %s schema"),
    ("NARROWED", "{} allows less in the %s schema than in the %s schema"),
    ("EXTENDED", "{} demands more in the %s schema than in the %s schema"),
    ("EXPANDED", "{} is more in the %s schema than in the %s schema"),
    ("INCREASED", "{} is more in the %s schema than in the %s schema"),
    ("DECREASED", "{} is less in the %s schema than in the %s schema"),
    ("CHANGED", "{} differs between the %s schema and the %s schema"),
    ("ADDED", "{} is demanded by the %s schema and not by the %s schema"),
)


def described(kind: str, location: str) -> str:
    place = f"what is at '{location.replace('%', '%%')}'"
    if kind in _TYPES:
        return f"the type at '{location.replace('%', '%%')}' differs between the %s schema and the %s schema"
    return next(text for end, text in _TEXTS if kind.endswith(end)).format(place)
