"""Levels and modes: which apply to a subject, and what may be set.

A subject has its own, or its context's (the top-level ones are the default context's), or the global context's, or
BACKWARD and READWRITE.
"""

from typing import Any

from penstock.http.registry import errors, metadata, subjects
from penstock.http.registry.compatibility import LEVELS, POLICIES
from penstock.http.registry.records import ClearSubjectKey, ConfigKey, ModeKey, Record, SchemaKey
from penstock.http.registry.store import Store

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"

_GLOBAL = f":{subjects.GLOBAL_CONTEXT}:"
_INHERITED = (
    "normalize",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
    "compatibilityPolicy",
    "compatibilityGroup",
)
_SETTINGS = (
    "alias",
    "aliasForDeks",
    *_INHERITED,
    "compatibilityLevel",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)

Config = dict[str, Any]
Decision = tuple[list[Record], Any]


def own_config(store: Store, subject: str | None) -> Config | None:
    """What was set for the subject itself; at the top there is always something."""
    config = store.configs.get(subject)
    if config is not None:
        return {"compatibilityLevel": DEFAULT_LEVEL} | _present(config)
    is_top = subject is None or subjects.context_of(subject) == subjects.GLOBAL_CONTEXT
    return {"compatibilityLevel": DEFAULT_LEVEL} if is_top else None


def config_of(store: Store, subject: str | None) -> Config:
    """What applies to the subject."""
    own = None if subject is None else store.configs.get(subject)
    if own is not None:
        top = store.configs.get(None, {})
        inherited = {name: top[name] for name in _INHERITED if top.get(name) is not None}
        return {"compatibilityLevel": DEFAULT_LEVEL} | inherited | _present(own)
    for scope in _scopes(subject):
        if scope in store.configs:
            return {"compatibilityLevel": DEFAULT_LEVEL} | _present(store.configs[scope])
    return {"compatibilityLevel": DEFAULT_LEVEL}


def own_mode(store: Store, subject: str | None) -> str | None:
    mode = store.modes.get(subject)
    if mode is None and (subject is None or subjects.context_of(subject) == subjects.GLOBAL_CONTEXT):
        return DEFAULT_MODE
    return mode


def mode_of(store: Store, subject: str | None) -> str:
    if store.modes.get(None) == "READONLY_OVERRIDE":
        # Over every mode of a subject's own.
        return "READONLY_OVERRIDE"
    for scope in (subject, *_scopes(subject)):
        mode = store.modes.get(scope)
        if mode is not None:
            return mode
    return DEFAULT_MODE


def is_read_only(store: Store, subject: str | None) -> bool:
    return mode_of(store, subject).startswith("READONLY")


def _scopes(subject: str | None) -> tuple[str | None, ...]:
    context = None if subject is None else subjects.parse(subject)
    if context is None or context.context == subjects.DEFAULT_CONTEXT:
        return (None, _GLOBAL)
    return (context.qualified_context, _GLOBAL)


def _present(config: Config) -> Config:
    return {name: value for name, value in config.items() if value is not None}


def checked_config(request: Config) -> Config:
    """A request's settings by the names that are stored. One that is null is taken back."""
    wanted = {name: request[name] for name in _SETTINGS if name in request and name != "compatibilityLevel"}
    level = request.get("compatibility", request.get("compatibilityLevel"))
    if "compatibility" in request or "compatibilityLevel" in request:
        if level is not None and (not isinstance(level, str) or level.upper() not in LEVELS):
            raise errors.invalid_level(level)
        wanted["compatibilityLevel"] = level.upper() if level else None
    policy = wanted.get("compatibilityPolicy")
    if policy is not None:
        if not isinstance(policy, str) or policy.upper() not in POLICIES:
            raise errors.RegistryError(42203, f"The compatibility policy '{policy}' is neither STRICT nor LENIENT.")
        wanted["compatibilityPolicy"] = policy.upper()
    for name in ("normalize", "validateFields", "validateNewSchemas", "validateRules"):
        if not isinstance(wanted.get(name), bool | None):
            raise errors.RegistryError(422, f"{name} is neither true nor false.")
    for name in ("alias", "aliasForDeks", "compatibilityGroup"):
        if not isinstance(wanted.get(name), str | None):
            raise errors.RegistryError(422, f"{name} is not a text.")
    for name in ("defaultMetadata", "overrideMetadata"):
        if name in wanted:
            wanted[name] = metadata.checked_metadata(wanted[name])
    for name in ("defaultRuleSet", "overrideRuleSet"):
        if name in wanted:
            wanted[name] = metadata.checked_rule_set(wanted[name])
    return wanted


def set_config(store: Store, subject: str | None, wanted: Config) -> Decision:
    if is_read_only(store, subject):
        raise errors.read_only(subject)
    config = _present(store.configs.get(subject, {}) | wanted)
    return [Record(ConfigKey(subject), config)], config


def delete_config(store: Store, subject: str | None) -> Decision:
    deleted = own_config(store, subject)
    if deleted is None:
        raise errors.subject_not_found(str(subject))
    if is_read_only(store, subject):
        raise errors.read_only(subject)
    return [Record(ConfigKey(subject), None)], deleted


def checked_mode(mode: Any) -> str | None:
    if mode is None:
        return None
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise errors.invalid_mode(mode)
    return mode.upper()


def set_mode(store: Store, subject: str | None, mode: str | None, *, is_forced: bool) -> Decision:
    records = []
    if mode == "IMPORT" and mode_of(store, subject) != "IMPORT" and not is_forced:
        # What is imported brings its ids along, so nothing may be there that has them.
        if store.has_subjects(subject):
            raise errors.not_permitted("Cannot import: there are subjects already.")
        for name in store.subjects(with_deleted=True):
            if subjects.matches(subject, name):
                for schema in store.versions(name, with_deleted=True):
                    if store.referrers(name, schema.version, with_deleted=True):
                        raise errors.reference_exists(name, schema.version)
                    records.append(Record(SchemaKey(name, schema.version), None))
        records.append(Record(ClearSubjectKey(subject), {}))
    records.append(Record(ModeKey(subject), mode))
    return records, mode


def delete_mode(store: Store, subject: str | None, *, is_recursive: bool) -> Decision:
    deleted = own_mode(store, subject)
    if deleted is None and not is_recursive:
        raise errors.subject_not_found(str(subject))
    records = [Record(ModeKey(subject), None)]
    if is_recursive and (subject is None or not subjects.parse(subject).name):
        context = subjects.context_of(subject)
        inside = [
            name
            for name in store.modes
            if name is not None and name != subject and subjects.context_of(name) == context
        ]
        records += [Record(ModeKey(name), None) for name in inside]
    return records, deleted
