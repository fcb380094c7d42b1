"""Subjects and contexts.

A subject is qualified with a context as `:.context:subject`; without one it is in the default context, whose name is
a dot. `:.context:` alone stands for the whole context. The global context `:.__GLOBAL:` has a level and a mode
only.
"""

from typing import NamedTuple

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
ANY_CONTEXT = ":*:"

_RESERVED_NAMES = ("__GLOBAL", "__EMPTY")


class Subject(NamedTuple):
    context: str
    name: str

    @property
    def qualified_context(self) -> str:
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    def __str__(self) -> str:
        return self.qualified_context + self.name


def parse(text: str) -> Subject:
    if text.startswith(":."):
        context, _, name = text[1:].partition(":")
        return Subject(context, name)
    if text.startswith(ANY_CONTEXT):
        return Subject("*", text[len(ANY_CONTEXT) :])
    return Subject(DEFAULT_CONTEXT, text)


def normalize(text: str) -> str:
    """`:.:name` is `name`; a context without its last colon gets it."""
    return str(parse(text))


def context_of(text: str | None) -> str:
    return DEFAULT_CONTEXT if text is None else parse(text).context


def qualify(text: str, parent: str) -> str:
    """A subject named inside a schema of `parent` is in the parent's context, unless it says otherwise."""
    subject = parse(text)
    if subject.context != DEFAULT_CONTEXT:
        return str(subject)
    return str(Subject(parse(parent).context, subject.name))


def in_context(context: str, text: str) -> str:
    """A subject named under `/contexts/{context}/...`; the context may come with or without its delimiters."""
    name = context.strip(":")
    if not name.startswith("."):
        name = "." + name
    if text.startswith(":."):
        return text
    return str(Subject(name, text))


def is_default_context(text: str | None) -> bool:
    return text is None or parse(text) == Subject(DEFAULT_CONTEXT, "")


def is_valid(text: str, *, is_setting: bool = False) -> bool:
    if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in text):
        return False
    subject = parse(text)
    if subject.name in _RESERVED_NAMES:
        return False
    return is_setting or subject.context != GLOBAL_CONTEXT


def matches(wanted: str | None, subject: str) -> bool:
    """Whether a subject is the wanted one or in the wanted context."""
    if wanted is None or wanted == subject:
        return True
    parsed = parse(wanted)
    if parsed.name:
        return False
    return parsed.context == GLOBAL_CONTEXT or parsed.context == parse(subject).context
