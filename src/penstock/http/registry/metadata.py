"""What a schema may carry besides its text: metadata and rules. Fields that are not known here are kept as they are.

The hash over all of it, which Confluent also shows as a schema's guid, says whether two schemas are the same.
"""

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.http.registry import errors, json_text
from penstock.http.registry.formats.schema import Reference

VERSION_PROPERTY = "confluent:version"

_METADATA_KEYS = ("tags", "properties", "sensitive")
_RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")
_MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_RULE_TEXTS_FIRST = ("name", "doc", "kind", "mode", "type")
_RULE_TEXTS_LAST = ("expr", "onSuccess", "onFailure")
_RULE_KEYS = frozenset((*_RULE_TEXTS_FIRST, "tags", "params", *_RULE_TEXTS_LAST, "disabled"))


def checked_metadata(value: Any) -> dict[str, Any] | None:
    """With what is a set in order, so that equal metadata are equal."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise errors.invalid_schema("metadata is not an object")
    metadata = dict(value)
    tags = metadata.get("tags")
    if tags is not None:
        if not isinstance(tags, dict) or not all(_are_texts(names) for names in tags.values()):
            raise errors.invalid_schema("the tags of metadata are not lists of texts by name")
        metadata["tags"] = {key: sorted(set(tags[key])) for key in sorted(tags)}
    properties = metadata.get("properties")
    if properties is not None:
        if not isinstance(properties, dict) or not _are_texts(list(properties.values())):
            raise errors.invalid_schema("the properties of metadata are not texts by name")
        metadata["properties"] = {key: properties[key] for key in sorted(properties)}
    sensitive = metadata.get("sensitive")
    if sensitive is not None:
        if not _are_texts(sensitive):
            raise errors.invalid_schema("the sensitive properties of metadata are not a list of names")
        metadata["sensitive"] = sorted(set(sensitive))
    return metadata


def checked_rule_set(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise errors.invalid_rule_set("it is not an object")
    for key in _RULE_LISTS:
        rules = value.get(key)
        if rules is None:
            continue
        if not isinstance(rules, list):
            raise errors.invalid_rule_set(f"{key} is not a list")
        names = set()
        for rule in rules:
            if not isinstance(rule, dict) or not isinstance(rule.get("name"), str) or not rule["name"]:
                raise errors.invalid_rule_set(f"a rule of {key} has no name")
            if rule["name"] in names:
                raise errors.invalid_rule_set(f"{key} has two rules named '{rule['name']}'")
            names.add(rule["name"])
            if not isinstance(rule.get("type"), str):
                raise errors.invalid_rule_set(f"the rule '{rule['name']}' has no type")
            if ((rule.get("mode") or "WRITEREAD") in _MIGRATION_MODES) != (key == "migrationRules"):
                raise errors.invalid_rule_set(f"the rule '{rule['name']}' of {key} has the mode {rule.get('mode')}")
    return value


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def merged_metadata(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    """The new one's values win."""
    if old is None or new is None:
        return new if old is None else old
    merged = old | new
    for key in ("tags", "properties"):
        if old.get(key) and new.get(key):
            both = old[key] | new[key]
            merged[key] = {name: both[name] for name in sorted(both)}
        elif old.get(key):
            merged[key] = old[key]
    if old.get("sensitive"):
        merged["sensitive"] = sorted({*old["sensitive"], *(new.get("sensitive") or [])})
    return merged


def merged_rule_sets(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    """A new rule takes the place of the old one of its name and comes after those that stay."""
    if old is None or new is None:
        return new if old is None else old
    merged = old | new
    for key in _RULE_LISTS:
        before, after = old.get(key) or [], new.get(key) or []
        if before:
            replaced = {rule["name"] for rule in after}
            merged[key] = [rule for rule in before if rule["name"] not in replaced] + after
    return merged


def version_in(metadata: Mapping[str, Any] | None) -> str | None:
    properties = (metadata or {}).get("properties") or {}
    version = properties.get(VERSION_PROPERTY)
    return version if isinstance(version, str) else None


def with_version(metadata: dict[str, Any] | None, version: int) -> dict[str, Any]:
    properties = dict((metadata or {}).get("properties") or {})
    properties[VERSION_PROPERTY] = str(version)
    return (metadata or {}) | {"properties": {key: properties[key] for key in sorted(properties)}}


def without_version(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """A schema that only differs in being told its version is the same."""
    if version_in(metadata) is None:
        return metadata or None
    assert metadata is not None
    properties = {key: value for key, value in metadata["properties"].items() if key != VERSION_PROPERTY}
    rest = {key: value for key, value in metadata.items() if key != "properties"}
    return (rest | {"properties": properties} if properties else rest) or None


def schema_hash(
    text: str,
    references: Iterable[Reference],
    metadata: Mapping[str, Any] | None,
    rule_set: Mapping[str, Any] | None,
) -> bytes:
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode() + reference.subject.encode())
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        digest.update(b"\x01")
        for key, names in sorted((metadata.get("tags") or {}).items()):
            digest.update("".join((key, *sorted(names))).encode())
        for key, value in sorted((metadata.get("properties") or {}).items()):
            digest.update((key + value).encode())
        digest.update("".join(sorted(metadata.get("sensitive") or [])).encode())
        digest.update(_unknown(metadata, _METADATA_KEYS))
    if rule_set is not None:
        digest.update(b"\x01")
        for key in _RULE_LISTS:
            for rule in rule_set.get(key) or []:
                digest.update(_rule_bytes(rule))
        digest.update(str(rule_set.get("enableAt") or "").encode())
        digest.update(_unknown(rule_set, (*_RULE_LISTS, "enableAt")))
    return digest.digest()


def _rule_bytes(rule: Mapping[str, Any]) -> bytes:
    parts = [str(rule[key]) for key in _RULE_TEXTS_FIRST if rule.get(key) is not None]
    parts += sorted(rule.get("tags") or [])
    parts += [key + str(value) for key, value in sorted((rule.get("params") or {}).items())]
    parts += [str(rule[key]) for key in _RULE_TEXTS_LAST if rule.get(key) is not None]
    return "".join(parts).encode() + (b"\x01" if rule.get("disabled") else b"") + _unknown(rule, _RULE_KEYS)


def _unknown(value: Mapping[str, Any], known: Iterable[str]) -> bytes:
    rest = {key: item for key, item in value.items() if key not in known and item is not None}
    return json_text.write(rest, has_sorted_keys=True).encode() if rest else b""


def guid_of(digest: bytes) -> str:
    return str(uuid.UUID(bytes=digest))


def hash_of_guid(guid: str) -> bytes | None:
    try:
        return uuid.UUID(guid).bytes
    except ValueError:
        return None
