"""Names that come in by the path, checked before they go anywhere: into the cluster, a header, a log line."""

import re
from typing import TYPE_CHECKING

from penstock.http.errors import UNPROCESSABLE, ApiError, bad_request

if TYPE_CHECKING:
    from starlette.requests import Request

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_INSTANCE = re.compile(r"[a-zA-Z0-9._~-]{1,128}")
_GROUP_CHARACTERS_MAX = 255


def topic_of(request: "Request") -> str:
    return checked_topic(request.path_params["topic"])


def checked_topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ApiError(
            UNPROCESSABLE,
            f"{name[:80]!r} cannot be a topic",
            "Topic names have letters, digits, '.', '_' and '-', at most 249 of them.",
        )
    return name


def group_of(request: "Request") -> str:
    """Kafka takes nearly anything; control characters have no business in a name."""
    name: str = request.path_params["group"]
    if not name or len(name) > _GROUP_CHARACTERS_MAX or not name.isprintable():
        raise bad_request(
            f"{name[:80]!r} cannot be a group", f"Take at most {_GROUP_CHARACTERS_MAX} characters that can be printed."
        )
    return name


def checked_instance(name: str) -> str:
    if not _INSTANCE.fullmatch(name):
        raise bad_request(
            f"{name[:80]!r} cannot be a consumer instance",
            "Take letters, digits, '.', '_', '~' and '-', at most 128 of them.",
        )
    return name


def partition_of(request: "Request") -> int:
    text: str = request.path_params["partition"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_request(f"{text[:40]!r} is not a partition", "Take a number from 0 on.")
    return int(text)
