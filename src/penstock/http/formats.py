"""How values look in JSON: named by the media type of the request, or of the answer that it accepts.

`application/json` has base64, which carries any bytes. Another format is a parameter (`application/json; value=text`)
or a media type of its own (`application/vnd.penstock.text+json`). The REST proxy's types mean the same here.
"""

import re
from enum import Enum

from penstock.http.errors import ApiError


class Format(Enum):
    BASE64 = "base64"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSONSCHEMA = "jsonschema"

    @property
    def needs_registry(self) -> bool:
        return self in (Format.AVRO, Format.PROTOBUF, Format.JSONSCHEMA)


_BY_NAME = {format.value: format for format in Format} | {"binary": Format.BASE64}
_VENDOR = re.compile(r"application/vnd\.(?:penstock\.([a-z0-9]+)|kafka\.([a-z0-9]+)\.v2)\+json")
_PLAIN = ("application/json", "*/*", "application/*", "", "application/vnd.kafka.v2+json", "application/vnd.kafka+json")
_WHAT_TO_DO = (
    "Take application/json for base64, or application/json; value=json, text, avro, protobuf or jsonschema "
    "(application/vnd.penstock.json+json and so on mean the same)."
)


def format_of_content(content_type: str | None) -> Format:
    """Of a request's body. Raises ApiError 415."""
    found = _format_of(content_type or "")
    if found is None:
        raise ApiError(415, f"the content type {(content_type or '')[:80]!r} is not known here", _WHAT_TO_DO)
    return found


def format_of_accept(accept: str | None, default: Format = Format.BASE64) -> Format:
    """Of an answer: the first that we can give. Raises ApiError 406."""
    if not accept:
        return default
    for one in accept.split(","):
        media_type = one.partition(";")[0].strip().lower()
        if media_type in _PLAIN and "value=" not in one.lower():
            return default
        found = _format_of(one)
        if found is not None:
            return found
    # What browsers send; they get plain JSON.
    if "text/html" in accept:
        return default
    raise ApiError(406, f"none of {accept[:80]!r} can be given here", _WHAT_TO_DO)


def _format_of(media: str) -> Format | None:
    media_type, _, parameters = media.partition(";")
    media_type = media_type.strip().lower()
    vendor = _VENDOR.fullmatch(media_type)
    if vendor:
        return _BY_NAME.get(vendor[1] or vendor[2])
    if media_type not in _PLAIN:
        return None
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "value":
            return _BY_NAME.get(value.strip().strip('"').lower())
    return Format.BASE64
