"""The options of the sink and the columns it takes, as those of Spark's Kafka sink."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from penstock.client.cluster import ClientConfig
from penstock.client.producing import ACKS_ALL, ProduceSettings
from penstock.pipeline.spark.offsets import BadOption
from penstock.pipeline.spark.options import boolean, client_config, client_properties
from penstock.protocol.compression import CODEC_NAMES

if TYPE_CHECKING:
    from penstock.pipeline.schemas.registry_client import Schema
    from penstock.pipeline.spark.typed_options import TypedSinkOptions

_REFUSED = {
    "key.serializer": "keys are written as they are; make them string or binary",
    "value.serializer": "values are written as they are; make them string or binary",
    "partitioner.class": "the sink partitions as Java's default does; a column 'partition' chooses otherwise",
    "interceptor.classes": "the sink has no interceptors",
    "transactional.id": "set the option exactlyOnce to true, with a sinkId",
}
_SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}
_HEADERS = "array<struct<key:string,value:binary>>"
_COLUMNS = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "headers": (_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
}


@dataclass(frozen=True)
class SinkOptions:
    client: ClientConfig
    produce: ProduceSettings
    # All rows go there; None: each row says where.
    topic: str | None
    # Set for a sink that writes exactly once.
    sink_id: str | None = None
    batch_bytes_max: int = 900_000
    # Set where values are encoded by the schema registry; the schema itself once it is registered.
    typed: "TypedSinkOptions | None" = None
    value_schema: "Schema | None" = None


def sink_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Raises BadOption for options and for columns that cannot be written."""
    given = {name.lower(): value for name, value in options.items()}
    properties = client_properties(given)
    for name, instead in _REFUSED.items():
        if name in properties:
            raise BadOption(f"option kafka.{name} is not supported: {instead}")
    topic = given["topic"].strip() if "topic" in given else None
    typed = None
    if "schema" in given:
        from penstock.pipeline.spark.typed_options import typed_sink_options

        typed = typed_sink_options(given, topic)
    _check_columns(schema, topic, is_typed=typed is not None)
    produce = _produce_settings(properties)
    return SinkOptions(client_config(properties), produce, topic, _sink_id(given, produce), typed=typed)


def _sink_id(given: Mapping[str, str], produce: ProduceSettings) -> str | None:
    if not boolean(given, "exactlyOnce", False):
        return None
    sink_id = given.get("sinkid", "").strip()
    if not sink_id:
        raise BadOption(
            "exactlyOnce needs the option sinkId: a name of your choice for this query's output, which stays the same "
            "when the query is started again, and which no other query uses"
        )
    if not _SINK_ID.fullmatch(sink_id):
        raise BadOption(f"sinkId is made of letters, digits, '.', '_' and '-'; got '{sink_id}'")
    if produce.acks != ACKS_ALL or not produce.is_idempotent:
        raise BadOption("exactlyOnce needs kafka.acks=all and kafka.enable.idempotence=true, which are the defaults")
    return sink_id


def _produce_settings(properties: Mapping[str, str]) -> ProduceSettings:
    acks = _ACKS.get(properties.get("acks", "all").strip().lower())
    if acks is None:
        raise BadOption(f"kafka.acks is all, 1 or 0; got '{properties['acks']}'")
    compression = properties.get("compression.type", "none").strip().lower()
    if compression not in CODEC_NAMES:
        raise BadOption(f"kafka.compression.type is one of {', '.join(CODEC_NAMES)}; got '{compression}'")
    is_idempotent = boolean(properties, "enable.idempotence", acks == ACKS_ALL)
    if is_idempotent and acks != ACKS_ALL:
        raise BadOption("kafka.enable.idempotence needs kafka.acks=all")
    defaults = ProduceSettings()
    try:
        delivery_ms = int(properties.get("delivery.timeout.ms", defaults.delivery_timeout_ms))
        request_ms = int(properties.get("request.timeout.ms", defaults.request_timeout_ms))
    except ValueError as error:
        raise BadOption(f"kafka.delivery.timeout.ms and kafka.request.timeout.ms are in ms: {error}") from error
    return ProduceSettings(acks, compression, delivery_ms, request_ms, is_idempotent)


def _check_columns(schema: StructType, topic: str | None, *, is_typed: bool) -> None:
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        raise BadOption(f"the sink needs a column 'value', string or binary; there are {', '.join(types) or 'none'}")
    if topic is None and "topic" not in types:
        raise BadOption("say where to write: option 'topic', or a column 'topic' for each row")
    for name, allowed in _COLUMNS.items():
        if name == "value" and is_typed:
            continue
        if name in types and types[name] not in allowed and not (name == "topic" and topic is not None):
            raise BadOption(f"column {name} is {types[name]}; the sink takes {' or '.join(allowed)} there")
