"""The sink with typed values: column `value` of any type, its schema made, registered, and used by the tasks."""

import dataclasses

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.pipeline.schemas.registry_client import AVRO, PROTOBUF, NotInRegistry, RegistryClient, RegistryProblem
from penstock.pipeline.schemas.registry_client import Schema as RegisteredSchema
from penstock.pipeline.schemas.values import SchemaUnusable
from penstock.pipeline.spark.offsets import BadOption
from penstock.pipeline.spark.sink_options import SinkOptions
from penstock.pipeline.spark.typed_options import TypedSinkOptions


def with_value_schema(options: SinkOptions, schema: StructType) -> SinkOptions:
    """Registers what is new; on the driver, before the tasks. Raises BadOption."""
    typed = options.typed
    if typed is None:
        return options
    from pyspark.sql.pandas.types import to_arrow_type

    client = RegistryClient(typed.registry)
    try:
        if not typed.registers:
            return dataclasses.replace(options, value_schema=client.latest(typed.subject))
        type_ = to_arrow_type(schema["value"].dataType, timezone="UTC")
        text = _derived(type_, typed, client)
        found = client.by_id(client.registered(typed.subject, typed.format, text))
    except (RegistryProblem, SchemaUnusable) as problem:
        raise BadOption(f"the schema of subject '{typed.subject}': {problem}") from problem
    return dataclasses.replace(options, value_schema=found)


def _derived(type_: pa.DataType, typed: TypedSinkOptions, client: RegistryClient) -> str:
    if typed.format == AVRO:
        from penstock.pipeline.schemas.derived_avro import avro_schema

        return avro_schema(type_, typed.record_name)
    if typed.format == PROTOBUF:
        from penstock.pipeline.schemas.derived_protobuf import protobuf_schema
        from penstock.pipeline.schemas.protobuf import compiled, message_at

        latest = _latest(client, typed.subject)
        before = message_at(compiled(latest), (0,)) if latest is not None and latest.type == PROTOBUF else None
        return protobuf_schema(type_, typed.record_name, before)
    from penstock.pipeline.schemas.derived_json import json_schema

    return json_schema(type_, typed.record_name)


def _latest(client: RegistryClient, subject: str) -> RegisteredSchema | None:
    try:
        return client.latest(subject)
    except NotInRegistry:
        return None
