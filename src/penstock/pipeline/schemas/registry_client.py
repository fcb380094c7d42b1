"""A client of a schema registry over its REST API: ours, or Confluent's. Schemas never change under an id."""

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TRIES_MAX = 5
_BACKOFF_S = 0.2
_TIMEOUT_S = 30
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


class RegistryProblem(Exception):
    """The registry cannot be reached, or refuses; the message is for people."""


class NotInRegistry(RegistryProblem):
    """There is no such schema, or no such subject."""


@dataclass(frozen=True)
class RegistryConfig:
    urls: tuple[str, ...]
    # "user:password", or empty.
    user_info: str = ""
    bearer_token: str = ""
    # A PEM file; empty for the machine's own authorities.
    ca_file: str = ""


@dataclass(frozen=True)
class Reference:
    name: str
    text: str
    # Protobuf: the compiled file, in base64.
    serialized: str


@dataclass(frozen=True)
class Schema:
    id: int
    type: str
    text: str
    serialized: str
    # What it rests on, the deepest first.
    references: tuple[Reference, ...]


def registry_config(options: Mapping[str, str]) -> RegistryConfig | None:
    """From properties as Confluent's serializers have them (schema.registry.url, ...), in lower case. None without
    a URL."""
    urls = tuple(filter(None, (each.strip().rstrip("/") for each in options.get("schema.registry.url", "").split(","))))
    if not urls:
        return None
    return RegistryConfig(
        urls,
        options.get("schema.registry.basic.auth.user.info", ""),
        options.get("schema.registry.bearer.auth.token", ""),
        options.get("schema.registry.ssl.ca.location", ""),
    )


class RegistryClient:
    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        if config.user_info:
            self._headers["Authorization"] = "Basic " + base64.b64encode(config.user_info.encode()).decode()
        elif config.bearer_token:
            self._headers["Authorization"] = f"Bearer {config.bearer_token}"
        self._tls = ssl.create_default_context(cafile=config.ca_file or None)

    def by_id(self, schema_id: int) -> Schema:
        """Raises NotInRegistry, RegistryProblem."""
        found = self._asked("GET", f"/schemas/ids/{schema_id}")
        return self._schema(schema_id, found)

    def latest(self, subject: str, version: str = "latest") -> Schema:
        """Raises NotInRegistry, RegistryProblem."""
        found = self._asked("GET", f"/subjects/{_quoted(subject)}/versions/{_quoted(version)}")
        return self._schema(int(found["id"]), found)

    def registered(self, subject: str, schema_type: str, text: str) -> int:
        """The id of the schema, which is registered if it is new. Raises RegistryProblem if it is not compatible."""
        body = {"schema": text, "schemaType": schema_type}
        return int(self._asked("POST", f"/subjects/{_quoted(subject)}/versions", body)["id"])

    def _schema(self, schema_id: int, found: Mapping[str, Any]) -> Schema:
        schema_type = found.get("schemaType") or AVRO
        is_protobuf = schema_type == PROTOBUF
        references = self._references(found.get("references") or [], is_protobuf, {})
        serialized = self._serialized(schema_id) if is_protobuf else ""
        return Schema(schema_id, schema_type, found["schema"], serialized, references)

    def _serialized(self, schema_id: int) -> str:
        return str(self._asked("GET", f"/schemas/ids/{schema_id}?format=serialized")["schema"])

    def _references(
        self, named: list[dict[str, Any]], is_protobuf: bool, seen: dict[str, Reference]
    ) -> tuple[Reference, ...]:
        for each in named:
            if each["name"] in seen:
                continue
            found = self._asked("GET", f"/subjects/{_quoted(each['subject'])}/versions/{each['version']}")
            self._references(found.get("references") or [], is_protobuf, seen)
            serialized = self._serialized(int(found["id"])) if is_protobuf else ""
            seen[each["name"]] = Reference(each["name"], found["schema"], serialized)
        return tuple(seen.values())

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        """Another moment, or another of the addresses, may help against what is not an answer."""
        data = None if body is None else json.dumps(body).encode()
        problem: Exception | None = None
        for attempt in range(_TRIES_MAX):
            for url in self._config.urls:
                request = urllib.request.Request(url + path, data, self._headers, method=method)
                try:
                    with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:
                        return json.loads(answer.read())
                except urllib.error.HTTPError as error:
                    refusal = _refusal(error, f"{method} {path}")
                    if error.code < 500:
                        raise refusal from None
                    problem = refusal
                except (OSError, ValueError) as error:
                    problem = error
            time.sleep(_BACKOFF_S * 2**attempt)
        raise RegistryProblem(f"the schema registry at {', '.join(self._config.urls)} does not answer: {problem}")


def _refusal(error: urllib.error.HTTPError, what: str) -> RegistryProblem:
    with error:
        text = error.read().decode(errors="replace")
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        message = text[:300] or error.reason
    kind = NotInRegistry if error.code == 404 else RegistryProblem
    return kind(f"the schema registry refused {what} ({error.code}): {message}")


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
