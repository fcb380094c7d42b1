"""docs/settings.md, written from the table."""

from penstock.base.settings.brokers import BROKER_SETTINGS
from penstock.base.settings.coordinators import GROUP_SETTINGS
from penstock.base.settings.definition import LONG_MAX, Setting
from penstock.base.settings.topics import TOPIC_SETTINGS

_OPENING = """\
# Settings

Written by `penstock.base.settings.reference_markdown()` from the table in `src/penstock/base/settings/`; a test fails
when the two differ. To write it anew:

    .venv/bin/python -m penstock.base.settings > docs/settings.md

Names, types and defaults are those of Apache Kafka 4.3, except where the text says otherwise.
"""

_TOPICS = """
## Topics

Given when a topic is created or altered later. Where a topic says nothing, the broker setting in the last column
applies; if there are several, the first that has a value.

| setting | type | default | values | what it does | broker setting |
|---|---|---|---|---|---|
"""

_BROKERS = """
## Nodes

Given at the start with `-X name=value`. Those marked *live* can be altered while nodes run, for one node or for all;
what is altered goes before what was given at the start, and one node's before everybody's.

| setting | type | default | values | what it does | |
|---|---|---|---|---|---|
"""

_GROUPS = """
## Groups

Given to one group by its name, at any time.

| setting | type | default | values | what it does | broker setting |
|---|---|---|---|---|---|
"""


def reference_markdown() -> str:
    parts = [_OPENING, _TOPICS]
    parts += [_row(setting, _synonyms(setting)) for setting in TOPIC_SETTINGS.values() if not setting.internal]
    parts.append(_BROKERS)
    parts += [_row(setting, "live" if setting.dynamic else "") for setting in BROKER_SETTINGS.values()]
    parts.append(_GROUPS)
    parts += [_row(setting, _synonyms(setting)) for setting in GROUP_SETTINGS.values()]
    return "".join(parts)


def _row(setting: Setting, last: str) -> str:
    values = "" if setting.rule is None else str(setting.rule)
    cells = (f"`{setting.name}`", setting.kind.name.lower(), _default(setting), values, setting.doc, last)
    return f"| {' | '.join(cells)} |\n"


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "none"
    if setting.default == str(LONG_MAX):
        return "2^63 - 1"
    return f"`{setting.default}`" if setting.default else "empty"


def _synonyms(setting: Setting) -> str:
    return ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms)
