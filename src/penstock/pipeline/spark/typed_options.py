"""The options of typed columns: `schema=registry`, for the source and for the sink."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.pipeline.schemas.registry_client import AVRO, JSON, PROTOBUF, RegistryConfig, registry_config
from penstock.pipeline.spark.offsets import BadOption

FAIL, NULL, DEAD_LETTER = "fail", "null", "dead-letter"
_FORMATS = {"avro": AVRO, "protobuf": PROTOBUF, "json": JSON}
_STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_RECORD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_RECORD_NAME_DEFAULT = "Value"


@dataclass(frozen=True)
class TypedSourceOptions:
    registry: RegistryConfig
    subject: str
    # "latest", or a number.
    version: str
    # Protobuf: which message of the schema; empty for the first.
    record_name: str
    on_decode_error: str
    dead_letter_topic: str


@dataclass(frozen=True)
class TypedSinkOptions:
    registry: RegistryConfig
    subject: str
    format: str
    record_name: str
    # False: the subject's newest schema is taken as it is.
    registers: bool


def typed_source_options(given: Mapping[str, str], topics: Sequence[str] | None) -> TypedSourceOptions:
    """`topics` are those that are read, or None where that is a pattern. Raises BadOption."""
    on_error = given.get("ondecodeerror", FAIL).strip().lower()
    if on_error not in (FAIL, NULL, DEAD_LETTER):
        raise BadOption(f"onDecodeError is {FAIL}, {NULL} or {DEAD_LETTER}; got '{on_error}'")
    dead_letter_topic = given.get("deadlettertopic", "").strip()
    if (on_error == DEAD_LETTER) != bool(dead_letter_topic):
        raise BadOption("onDecodeError=dead-letter and the option deadLetterTopic, the topic for them, need each other")
    version = given.get("schemaversion", "latest").strip().lower()
    if version != "latest" and not version.isdecimal():
        raise BadOption(f"schemaVersion is a number or 'latest'; got '{version}'")
    only = topics[0] if topics is not None and len(topics) == 1 else None
    name = _record_name(given)
    return TypedSourceOptions(_registry(given), _subject(given, only, name), version, name, on_error, dead_letter_topic)


def typed_sink_options(given: Mapping[str, str], topic: str | None) -> TypedSinkOptions:
    """Raises BadOption."""
    format_ = _FORMATS.get(given.get("valueformat", "avro").strip().lower())
    if format_ is None:
        raise BadOption(f"valueFormat is one of {', '.join(_FORMATS)}; got '{given['valueformat']}'")
    registers = given.get("autoregisterschemas", "true").strip().lower()
    if registers not in ("true", "false"):
        raise BadOption(f"autoRegisterSchemas is true or false; got '{registers}'")
    name = _record_name(given)
    subject = _subject(given, topic, name)
    return TypedSinkOptions(_registry(given), subject, format_, name or _RECORD_NAME_DEFAULT, registers == "true")


def _registry(given: Mapping[str, str]) -> RegistryConfig:
    if given["schema"].strip().lower() != "registry":
        raise BadOption(f"option schema is 'registry'; got '{given['schema']}'. Columns are chosen with .schema(...)")
    config = registry_config(given)
    if config is None:
        raise BadOption("schema=registry needs the option schema.registry.url: http://HOST:PORT[,http://HOST:PORT...]")
    for url in config.urls:
        if not url.startswith(("http://", "https://")):
            raise BadOption(f"schema.registry.url is http://HOST:PORT or https://HOST:PORT; got '{url}'")
    return config


def _record_name(given: Mapping[str, str]) -> str:
    name = given.get("recordname", "").strip()
    if name and not _RECORD_NAME.fullmatch(name):
        raise BadOption(f"recordName is a name such as Order or shop.Order; got '{name}'")
    return name


def _subject(given: Mapping[str, str], topic: str | None, record_name: str) -> str:
    """As Confluent's strategies of these names."""
    if given.get("subject", "").strip():
        return given["subject"].strip()
    asked = given.get("subjectnamestrategy", _STRATEGIES[0]).strip()
    strategy = next((each for each in _STRATEGIES if asked.rpartition(".")[2].lower() == each.lower()), None)
    if strategy is None:
        raise BadOption(f"subjectNameStrategy is one of {', '.join(_STRATEGIES)}; got '{asked}'")
    if strategy != "TopicNameStrategy" and not record_name:
        raise BadOption(f"{strategy} needs the option recordName: the full name of the record or message")
    if strategy == "RecordNameStrategy":
        return record_name
    if topic is None:
        raise BadOption(f"{strategy} needs one topic: say with the option 'subject' whose schema the rows have")
    return f"{topic}-value" if strategy == "TopicNameStrategy" else f"{topic}-{record_name}"
