"""Values with a schema: Avro, Protobuf and JSON Schema to and from JSON, framed as Confluent's serializers do.

The registry is asked by its public HTTP API, in this process, so what any client sees is what we see. Schemas never
change under an id: they are compiled once and kept.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from penstock.http.errors import INVALID_SCHEMA, ApiError
from penstock.http.formats import Format
from penstock.http.schema_codecs import Codec, CodecRefused, avro_codec, json_schema_codec, protobuf_codec

_FRAME = Struct(">bI")
_MAGIC = 0
_CODECS_MAX = 5_000

# Method, path, JSON body -> status, decoded answer.
Ask = Callable[[str, str, Any], Awaitable[tuple[int, Any]]]


class SchemaChoice(NamedTuple):
    """An id; or a schema that is registered if it is new; or neither, for the newest of the subject."""

    schema_id: int | None
    schema: str | None


@dataclass(frozen=True)
class Reference:
    name: str
    text: str
    # Protobuf only: the compiled form.
    serialized: str
    references: tuple["Reference", ...]


class SchemaValues:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._codecs: dict[int, Codec] = {}

    async def encoder_for(self, format: Format, topic: str, choice: SchemaChoice) -> Callable[[Any], bytes | None]:
        """Raises ApiError."""
        return (await self.encoder_and_id(format, topic, choice))[0]

    async def encoder_and_id(
        self, format: Format, topic: str, choice: SchemaChoice, part: str = "value"
    ) -> tuple[Callable[[Any], bytes | None], int]:
        """Of the topic's keys or values. Raises ApiError."""
        schema_id = await self._schema_id(format, f"{topic}-{part}", choice)
        codec = await self.codec(schema_id)
        if codec.format is not format:
            raise ApiError(
                INVALID_SCHEMA,
                f"schema {schema_id} is {codec.format.value}, not {format.value}",
                "Take the content type that goes with the schema.",
            )
        frame = _FRAME.pack(_MAGIC, schema_id)

        def encode(value: msgspec.Raw) -> bytes | None:
            text = bytes(value)
            if text == b"null":
                return None
            try:
                return frame + codec.encode(text)
            except CodecRefused as problem:
                raise ApiError(
                    42201, f"a {part} does not fit schema {schema_id}: {problem}", "Send what the schema describes."
                ) from problem

        return encode, schema_id

    async def _schema_id(self, format: Format, subject: str, choice: SchemaChoice) -> int:
        if choice.schema_id is not None:
            return choice.schema_id
        if choice.schema is None:
            status, answer = await self._ask("GET", f"/subjects/{subject}/versions/latest", None)
        else:
            schema_type = {Format.AVRO: "AVRO", Format.PROTOBUF: "PROTOBUF", Format.JSONSCHEMA: "JSON"}[format]
            body = {"schema": choice.schema, "schemaType": schema_type}
            status, answer = await self._ask("POST", f"/subjects/{subject}/versions", body)
        if status != 200:
            raise _refusal(answer, f"subject '{subject}'")
        schema_id: int = answer["id"]
        return schema_id

    async def codec(self, schema_id: int) -> Codec:
        """Raises ApiError."""
        found = self._codecs.get(schema_id)
        if found is not None:
            return found
        status, answer = await self._ask("GET", f"/schemas/ids/{schema_id}", None)
        if status != 200:
            raise _refusal(answer, f"schema {schema_id}")
        schema_type = answer.get("schemaType", "AVRO")
        references = await self._references(answer.get("references") or [], schema_type == "PROTOBUF")
        try:
            if schema_type == "AVRO":
                made = avro_codec(answer["schema"], _texts(references))
            elif schema_type == "JSON":
                made = json_schema_codec(answer["schema"], dict(_named_texts(references)))
            else:
                _, serialized = await self._ask("GET", f"/schemas/ids/{schema_id}?format=serialized", None)
                made = protobuf_codec(serialized["schema"], _serialized(references))
        except CodecRefused as problem:
            raise ApiError(INVALID_SCHEMA, f"schema {schema_id}: {problem}", "Check the schema.") from problem
        if len(self._codecs) >= _CODECS_MAX:
            self._codecs.clear()
        self._codecs[schema_id] = made
        return made

    async def _references(self, named: list[dict[str, Any]], is_protobuf: bool) -> tuple[Reference, ...]:
        found = []
        for one in named:
            path = f"/subjects/{one['subject']}/versions/{one['version']}"
            status, answer = await self._ask("GET", path, None)
            if status != 200:
                raise _refusal(answer, f"reference '{one['name']}'")
            serialized = ""
            if is_protobuf:
                _, compiled = await self._ask("GET", f"/schemas/ids/{answer['id']}?format=serialized", None)
                serialized = compiled["schema"]
            deeper = await self._references(answer.get("references") or [], is_protobuf)
            found.append(Reference(one["name"], answer["schema"], serialized, deeper))
        return tuple(found)

    async def presenter_for(self, values: Iterable[bytes | None]) -> Callable[[bytes], Any]:
        """Makes JSON of framed values; a value that has no frame, or an unknown schema, raises ValueError."""
        codecs: dict[int, Codec | str] = {}
        for value in values:
            schema_id = framed_schema_id(value)
            if schema_id is not None and schema_id not in codecs:
                try:
                    codecs[schema_id] = await self.codec(schema_id)
                except ApiError as problem:
                    codecs[schema_id] = problem.message

        def present(value: bytes) -> msgspec.Raw:
            schema_id = framed_schema_id(value)
            if schema_id is None:
                raise ValueError("without a schema id")
            codec = codecs[schema_id]
            if isinstance(codec, str):
                raise ValueError(f"not readable: {codec}")
            try:
                return msgspec.Raw(codec.decode(value[_FRAME.size :]))
            except CodecRefused as problem:
                raise ValueError(f"not what schema {schema_id} describes: {problem}") from problem

        return present


def framed_schema_id(value: bytes | None) -> int | None:
    """None where the value is not framed."""
    if value is None or len(value) < _FRAME.size or value[0] != _MAGIC:
        return None
    schema_id: int = _FRAME.unpack_from(value)[1]
    return schema_id


def _texts(references: tuple[Reference, ...]) -> list[str]:
    """What a schema rests on, the deepest first."""
    texts = []
    for one in references:
        texts += [*_texts(one.references), one.text]
    return texts


def _named_texts(references: tuple[Reference, ...]) -> list[tuple[str, str]]:
    texts = []
    for one in references:
        texts += [*_named_texts(one.references), (one.name, one.text)]
    return texts


def _serialized(references: tuple[Reference, ...]) -> list[tuple[str, str]]:
    found = []
    for one in references:
        found += [*_serialized(one.references), (one.name, one.serialized)]
    return found


def _refusal(answer: Any, about: str) -> ApiError:
    code = answer.get("error_code", 50001) if isinstance(answer, dict) else 50001
    message = answer.get("message", "the registry refused") if isinstance(answer, dict) else "the registry refused"
    return ApiError(code, f"{about}: {message}", "See the registry's /subjects, or register the schema first.")
