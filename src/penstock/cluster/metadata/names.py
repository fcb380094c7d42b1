"""Which topic names there may be."""

import re

from penstock.base.errors import ErrorCode, Refused

NAME_LENGTH_MAX = 249
METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises Refused. A legal name is also a safe name for a directory."""
    if is_legal_topic_name(name):
        return
    if not name:
        complaint = "the empty string is not allowed"
    elif name in (".", ".."):
        complaint = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        complaint = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    else:
        complaint = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    raise Refused(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {complaint}")


def is_legal_topic_name(name: str) -> bool:
    return len(name) <= NAME_LENGTH_MAX and name not in (".", "..") and _LEGAL.fullmatch(name) is not None


def collision_key(name: str) -> str | None:
    """Names with the same key would share a metric name in Kafka's world, which takes "." for "_"; names with neither
    character collide with nothing."""
    return name.replace(".", "_") if "." in name or "_" in name else None
